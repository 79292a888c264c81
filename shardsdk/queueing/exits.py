"""A `sys.exit()` in a task that a reconcile has started: whose it was.

asyncio hands it to whoever runs the loop, past the reconcile; what is left of where it came from is the context that
the task has from the reconcile.
"""

from __future__ import annotations

import asyncio
from contextvars import Context, ContextVar
from typing import Any, Final

from shardsdk.logs import logger_of

log: Final = logger_of(__name__)

#: The controller and the item that are reconciled, for all that a reconcile starts.
RECONCILE: Final[ContextVar[tuple[str, Any] | None]] = ContextVar("reconcile", default=None)


def tell_exit(error: BaseException) -> None:
    """Say which reconcile has started the task whose `sys.exit()` has ended the loop, if that is so."""
    context = _context_of(error) if isinstance(error, SystemExit) else None
    of = None if context is None else context.get(RECONCILE)
    if of is not None:
        controller, item = of
        log.error(
            "A task that a reconcile has started ends the process by sys.exit(): raise an error instead",
            extra={
                "controller": controller,
                "namespace": getattr(item, "namespace", ""),
                "object": getattr(item, "name", str(item)),
            },
            exc_info=error,
        )


def _context_of(error: BaseException) -> Context | None:
    """The context of the step of the loop that has raised it; `None`: it was none of asyncio's own loop."""
    traceback = error.__traceback__
    while traceback is not None:
        step = traceback.tb_frame.f_locals.get("self")
        if isinstance(step, asyncio.Handle):
            found: Context | None = getattr(step, "_context", None)
            return found
        traceback = traceback.tb_next
    return None

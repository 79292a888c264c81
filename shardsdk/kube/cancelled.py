"""Who is meant by a `CancelledError`: the task that runs, or only something that it awaited or called."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from shardsdk.errors import StreamInterrupted


def is_cancelled() -> bool:
    """Whether the task that runs was told to end."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


@contextmanager
def interrupted_at_most(name: str) -> Iterator[None]:
    """Have a stream go on after a cancellation inside of it, as after anything else; raises: StreamInterrupted then."""
    try:
        yield
    except asyncio.CancelledError as error:
        if is_cancelled():
            raise
        raise StreamInterrupted(f"{name}: something that it awaited was cancelled: {error!r}") from error

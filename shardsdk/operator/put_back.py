"""Statuses that a function returns and somebody else changes, in turns and for ever: told, with object and fields.

A returned status is the whole status.  So two functions of one kind that each return a part of it take away what the
other has said, and each write wakes both.  Nothing of that is an error, and neither wakes itself, so that
`shardsdk.reconcile.rounds` does not see it.

Costs: a digest of each of the `REMEMBERED` objects that have got a status last.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

from shardsdk.kinds import Kind
from shardsdk.kinds.wire import written_out
from shardsdk.logs import logger_of
from shardsdk.operator.failures import remember
from shardsdk.reconcile.applied import digest_of
from shardsdk.reconcile.applying import PUT_BACK
from shardsdk.reconcile.changed import changed_fields, is_told
from shardsdk.reconcile.context import Context

log: Final = logger_of(__name__)

#: Of so many objects of a function it is known what status they have got last.
REMEMBERED: Final = 1_000


class PutBack:
    """How often in a row one function has written the same status of an object of the same spec."""

    def __init__(self) -> None:
        #: By uid: a digest of the status and of what it is about, and how often in a row; the longest ago first.
        self._written: OrderedDict[str, tuple[bytes, int]] = OrderedDict()

    def note(self, context: Context[Any], returned: Any, before: Kind | None) -> None:
        """The status of the object was written as it was `returned`; `before` it was as this one has it."""
        after = written_out(returned)
        after.pop("observedGeneration", None)  # which is not the function's to say
        written = digest_of([context.metadata.generation, after])
        known, times = self._written.get(context.metadata.uid, (b"", 0))
        times = times + 1 if known == written else 0
        remember(self._written, context.metadata.uid, (written, times), REMEMBERED)
        if times and is_told(times, PUT_BACK):
            there = getattr(before, "status", None)
            shown = {} if there is None else written_out(there)
            log.warning(
                "The status that is returned is changed by somebody else again and again, and put back: have one of the"
                " two leave it",
                extra={
                    "controller": context.controller,
                    "namespace": context.namespace,
                    "object": context.name,
                    "times": times,
                    "fields": changed_fields({"status": shown}, {"status": after}, {"status": after}),
                },
            )

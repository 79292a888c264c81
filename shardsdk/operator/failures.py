"""What a reconcile raises on purpose, and what is remembered of what it raised.

raise Retry("the certificate is not issued yet", after=30)
raise Permanent("no such region", reason="UnknownRegion")
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from shardsdk.errors import ConfigurationError, RetryRule, ShardingError
from shardsdk.kinds import Kind
from shardsdk.reconcile.applied import state_of

#: What a condition's reason may be.  Source: apimachinery, metav1.Condition.
_REASON: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]{0,1022}[A-Za-z0-9_])?")
#: So many objects are remembered; one that was forgotten is tried, or told of, once more.
MAX_REMEMBERED: Final = 10_000


class Retry(ShardingError):
    """Raised by a reconcile that cannot go on yet: it is called again in `after` seconds, and nobody is alarmed.

    `message` says what it waits for.
    """

    retry = RetryRule.BACKOFF

    def __init__(self, message: str = "", *, after: float) -> None:
        super().__init__(message)
        if not after >= 0:
            raise ConfigurationError(f"Retry(after={after:g}) lies in the past: use zero seconds or more")
        self.after = after


class Permanent(ShardingError):
    """Raised by a reconcile that no retry can mend: the object is left alone until its spec has changed.

    `message` is a sentence for people, `reason` a word in CamelCase.  Both show as an Event, and as the condition
    `condition` (False) where the status has conditions.
    """

    retry = RetryRule.NEVER

    def __init__(self, message: str, *, reason: str = "Permanent", condition: str = "Ready") -> None:
        super().__init__(message)
        if not _REASON.fullmatch(reason):
            raise ConfigurationError(
                f"{reason!r} cannot be the reason of a condition: write a word in CamelCase, as in"
                f' Permanent("…", reason="UnknownRegion")'
            )
        self.reason = reason
        self.condition = condition


class Failures:
    """Of one reconcile function: which objects failed for good, and which errors people were told of."""

    def __init__(self) -> None:
        self._permanent: OrderedDict[str, str] = OrderedDict()
        self._told: OrderedDict[str, str] = OrderedDict()

    def is_permanent(self, uid: str, read: Callable[[], Kind | None]) -> bool:
        """Whether the object with this uid failed for good, and is, as `read` has it, still as it was then."""
        known = self._permanent.get(uid)
        thing = None if known is None else read()
        return thing is not None and known == _spec_of(thing)

    def note_permanent(self, thing: Kind) -> None:
        """It failed for good as it is."""
        _remember(self._permanent, thing.metadata.uid, _spec_of(thing))

    def is_news(self, uid: str, error: str) -> bool:
        """Whether the object's last failure, if any, was another one."""
        if self._told.get(uid) == error:
            return False
        _remember(self._told, uid, error)
        return True

    def forget(self, uid: str) -> None:
        """It was reconciled."""
        self._permanent.pop(uid, None)
        self._told.pop(uid, None)


def _spec_of(thing: Kind) -> str:
    """What changes with the spec; kinds that are not counted in generations have no status either."""
    return str(thing.metadata.generation or state_of(thing).hex())


def _remember(notes: OrderedDict[str, str], uid: str, note: str) -> None:
    notes[uid] = note
    notes.move_to_end(uid)
    if len(notes) > MAX_REMEMBERED:
        notes.popitem(last=False)

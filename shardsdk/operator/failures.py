"""What a reconcile raises on purpose, and what is remembered of what it raised.

raise Retry("the certificate is not issued yet", after=30)
raise Permanent("no such region", reason="UnknownRegion")
"""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import Any, Final, NamedTuple, TypeVar

from msgspec.structs import replace

from shardsdk.errors import ConfigurationError, RetryRule, ShardingError, TerminalError
from shardsdk.kinds import Kind
from shardsdk.kinds.conditions import Condition
from shardsdk.queueing.workers import is_finite
from shardsdk.reconcile.applied import state_of

#: What a condition's reason may be.  Source: apimachinery, metav1.Condition.
_REASON: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]{0,1022}[A-Za-z0-9_])?")
#: The reason of a `Permanent` that was given none.
_NO_REASON: Final = "Permanent"
#: So many objects are remembered; one that was forgotten is tried, or told of, once more.
MAX_REMEMBERED: Final = 10_000

N = TypeVar("N")


class Retry(ShardingError):
    """Raised by a reconcile that cannot go on yet: it is called again in `after` seconds, and nobody is alarmed.

    `message` says what it waits for.
    """

    retry = RetryRule.BACKOFF

    def __init__(self, message: str = "", *, after: float) -> None:
        super().__init__(message)
        if not is_finite(after) or after < 0:
            raise ConfigurationError(
                f"Retry(after={after!r}) is no time from now on: use seconds, of a timedelta its total_seconds()"
            )
        self.after = after

    def __reduce__(self) -> tuple[Any, ...]:
        """How it is copied and pickled, as by a pool of processes: not by another call, which would lack `after`."""
        return type(self).__new__, (type(self), *self.args), vars(self)


class Permanent(TerminalError):
    """Raised by a reconcile that no retry can mend: the object is left alone until its spec has changed.

    What something else can mend, such as an object that it watches, is a `Retry`.  One on its way out is tried again by
    each event.

    `message` is a sentence for people, `reason` a word in CamelCase.  Both show as an Event, as the condition
    `condition` (False) where the status has conditions, and as what the object's last reconcile ended with.
    """

    def __init__(self, message: str, *, reason: str = _NO_REASON, condition: str = "Ready") -> None:
        super().__init__(message)
        if not _REASON.fullmatch(reason):
            raise ConfigurationError(
                f"{reason!r} cannot be the reason of a condition: write a word in CamelCase, as in"
                f' Permanent("…", reason="UnknownRegion")'
            )
        self.message = message
        self.reason = reason
        self.condition = condition

    def __str__(self) -> str:
        return self.message if self.reason == _NO_REASON else f"{self.reason}: {self.message}"


#: What an object waits for after `Permanent`.
SPEC_CHANGE: Final = "a change of its spec, or another process"


class _Failed(NamedTuple):
    """What an object failed with for good, and what stood for its spec at that time.

    `untold`: that is still to be written into its status, of which this was raised.
    """

    error: str
    spec: str
    untold: BaseException | None


class Failures:
    """Of one reconcile function: which objects failed for good, and which errors people were told of."""

    def __init__(self) -> None:
        self._permanent: OrderedDict[str, _Failed] = OrderedDict()
        #: By which condition a status tells of that; those of objects that were given away since, too.
        self._conditions: OrderedDict[str, Condition] = OrderedDict()
        self._told: OrderedDict[str, str] = OrderedDict()
        #: How often in a row somebody was faster.
        self._refused: OrderedDict[str, int] = OrderedDict()

    def permanent(self, thing: Kind) -> str | None:
        """What the object failed with for good, and it is still as it was then; `None`: it did not, or is not."""
        known = self._permanent.get(thing.metadata.uid)
        return known.error if known is not None and known.spec == _spec_of(thing) else None

    def condition(self, uid: str) -> Condition | None:
        """The condition by which its status says that it failed for good; `None`: none of ours."""
        return self._conditions.get(uid)

    def untold(self, uid: str) -> BaseException | None:
        """What the object failed with for good, while its status does not say so, and is to."""
        known = self._permanent.get(uid)
        return None if known is None else known.untold

    def note_permanent(
        self, thing: Kind, error: str, condition: Condition | None = None, *, untold: BaseException | None = None
    ) -> None:
        """It failed for good with `error`, as the reconcile was called with it; its status has this `condition`.

        `untold`: it is to have another one, which says of this that it was raised.
        """
        uid = thing.metadata.uid
        remember(self._permanent, uid, _Failed(error, _spec_of(thing), untold))
        if condition is None:
            self._conditions.pop(uid, None)
        else:
            remember(self._conditions, uid, condition)

    def is_news(self, uid: str, error: str) -> bool:
        """Whether the object's last failure, if any, was another one."""
        if self._told.get(uid) == error:
            return False
        remember(self._told, uid, error)
        return True

    def refused(self, uid: str) -> int:
        """Somebody was faster; how often that was so before, in a row."""
        times = self._refused.get(uid, 0)
        remember(self._refused, uid, times + 1)
        return times

    def not_refused(self, uid: str) -> None:
        """Something else has happened than that somebody was faster."""
        self._refused.pop(uid, None)

    def let_go(self, uid: str) -> None:
        """It is not this process's any more, so that it is tried again when it is back; its status stays as it is."""
        self._permanent.pop(uid, None)
        self._told.pop(uid, None)
        self._refused.pop(uid, None)

    def forget(self, uid: str) -> None:
        """It was reconciled."""
        self.let_go(uid)
        self._conditions.pop(uid, None)


def _spec_of(thing: Kind) -> str:
    """What changes with the spec; kinds that are not counted in generations have no status either."""
    if thing.metadata.generation:
        return str(thing.metadata.generation)
    # A reconcile's own finalizer, which it may not have had when it was called, is nobody's correction.
    return state_of(replace(thing, metadata=replace(thing.metadata, finalizers=None))).hex()


def remember(notes: OrderedDict[str, N], uid: str, note: N, most: int = MAX_REMEMBERED) -> None:
    """Note that of the object with this uid; of more than `most` what was noted the longest ago is forgotten."""
    notes[uid] = note
    notes.move_to_end(uid)
    if len(notes) > most:
        notes.popitem(last=False)

"""What a ring's status said when this leader began, and what a leader knows only once it has led for a while.

A leader knows of a drain's age what it has seen itself, and takes each shard for ready until its lease runs out anew.
Without this each new one would say of a drain that has waited for an hour that shards acknowledge in time, of shards
that are gone that they are available, and the opposite a minute later.

Refuses: to know more of it than was said: the age is that of the drain which the message names, and of no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from msgspec.structs import replace

from sharder.core.conditions import ConditionReason, ConditionType, conditions_in
from sharder.core.observed import ObservedLease, longest_duration
from sharder.core.status import NOT_WORKED_ON
from sharder.core.summary import OldestDrain, Summary
from shardsdk.kube.clock import Clock

#: What it takes to find, after a lease has run out, that it cannot be acquired (`sharder.takeover.records`).
ATTEMPTS_SECONDS: Final = 15.0


class OverdueBefore:
    """`status` is the ring's as whoever led before has left it."""

    def __init__(self, status: Mapping[str, Any], clock: Clock, alarm_seconds: float) -> None:
        self._clock = clock
        now = clock.monotonic()
        self._unsure_until = now + alarm_seconds
        #: Since when the drain waits that is named in what was said; `None`: none was overdue, or it has ended.
        self._since: float | None = None
        self._said = (ConditionReason.OVERDUE, "")
        for condition in conditions_in(status):
            if condition.get("type") == ConditionType.DRAINS_ACKNOWLEDGED and condition.get("status") == "False":
                told_for = _seconds_since(condition.get("lastTransitionTime"), clock.now())
                self._since = now - alarm_seconds - told_for
                unlisted = condition.get("reason") == ConditionReason.NOBODY_WATCHES
                reason = ConditionReason.NOBODY_WATCHES if unlisted else ConditionReason.OVERDUE
                self._said = reason, str(condition.get("message"))

    def apply(self, summary: Summary) -> Summary:
        """The same with the age of the oldest drain as it is, as far as can be told."""
        oldest, now = summary.oldest_drain, self._clock.monotonic()
        if self._since is None:
            return summary
        unsure = now < self._unsure_until and not summary.settled
        if oldest is not None and self._names(oldest):
            return replace(summary, oldest_drain=replace(oldest, seconds=max(oldest.seconds, now - self._since)))
        if unsure:
            return replace(summary, overdue_before=self._said)  # it may not be listed yet, or behind others
        self._since = None
        return summary

    def _names(self, drain: OldestDrain) -> bool:
        return any(f": {drain}{sign}" in self._said[1] for sign in ";,")


class ShardsBefore:
    """The same of shards that are gone, and that nobody takes over."""

    def __init__(self, status: Mapping[str, Any], clock: Clock) -> None:
        self._clock = clock
        self._began = clock.monotonic()
        self._said: tuple[ConditionReason, str] | None = None
        for condition in conditions_in(status):
            if condition.get("type") == ConditionType.SHARDS_AVAILABLE and condition.get("reason") in NOT_WORKED_ON:
                self._said = ConditionReason(condition["reason"]), str(condition.get("message"))

    def apply(self, summary: Summary, leases: Iterable[ObservedLease]) -> Summary:
        """The same with what was said before, until this leader has to know; `leases` are the ring's."""
        held = [each for each in leases if each.lease.held_by_shard]
        # Without a fence a lease counts for twice its time.
        has_to_know = self._clock.monotonic() >= self._began + 2 * longest_duration(held) + ATTEMPTS_SECONDS
        # What cannot be acquired may be nobody's, or missing: then something waits for it.
        if has_to_know or ((summary.settled or self._said_of_held) and all(map(self._has_seen, held))):
            self._said = None
        if self._said is None or summary.not_acquired or summary.abandoned:
            return summary
        return replace(summary, shards_before=self._said, at_rest=False)

    @property
    def _said_of_held(self) -> bool:
        """Whether leases were meant that their shards hold, and no others."""
        return self._said is not None and self._said[0] is ConditionReason.NOBODY_READY

    def _has_seen(self, seen: ObservedLease) -> bool:
        """Whether this leader saw a shard acquire or renew its lease; one that is listed first may have run out."""
        written = seen.history.pause > 0.0 or seen.history.held_since >= self._began
        return written and seen.observed_at > self._began


def _seconds_since(moment: Any, now: datetime) -> float:
    try:
        return max(0.0, (now - datetime.fromisoformat(str(moment))).total_seconds())
    except (ValueError, TypeError):
        return 0.0

"""Similar Events: many messages for one reason about one object become one Event.

A message with a name or a number in it never repeats, so counting repeats does
not help: a deployment that fails to make each of 500 pods would have 500 Events.
Source: client-go, tools/record/events_cache.go, EventAggregator (10 messages in 600 s).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Group:
    """The messages of one group, and when the last one came."""

    at: float
    messages: set[str] = field(default_factory=set)


class Similar:
    """Tells when a group has had `most` messages; it starts anew after `within_seconds` without any."""

    def __init__(self, most: int, within_seconds: float, remembered: int) -> None:
        self._most = most
        self._within_seconds = within_seconds
        self._remembered = remembered
        self._groups: OrderedDict[Hashable, _Group] = OrderedDict()

    def too_many(self, group: Hashable, message: str, now: float) -> bool:
        """Whether `message`, at `now` (monotonic), is to be combined with those before it."""
        known = self._groups.pop(group, None)
        if known is None or now - known.at > self._within_seconds:
            known = _Group(now)
        self._groups[group] = known
        if len(self._groups) > self._remembered:
            self._groups.popitem(last=False)
        known.at = now
        if message in known.messages:
            return False
        if len(known.messages) >= self._most:
            return True
        known.messages.add(message)
        return False

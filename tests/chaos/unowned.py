"""For how long each object had nobody who worked on it.

A process owns an object from its first reconcile of it, after the object was given to its shard, until the label is
taken away, or the process ends or is kept from its work.  One that goes on afterwards owns again what it had.
"""

from __future__ import annotations

from collections import defaultdict

from tests.chaos.history import OWNERS, History, Reconcile, Version

Span = tuple[float, float]


def longest_without_owner(history: History) -> tuple[float, str]:
    """The longest time for which an object had no owner since `history.begin`, in seconds, and which that was."""
    begun: dict[str, list[Reconcile]] = defaultdict(list)
    for each in history.reconciles:
        begun[each.uid].append(each)
    worst = (0.0, "")
    for versions in history.of(OWNERS).values():
        first, last = versions[0], versions[-1]
        begin = max(first.seen, history.begin)
        end = last.seen if last.deleted else history.end
        spans = owned(history, versions, begun[first.uid])
        worst = max(worst, (longest_gap(spans, begin, end), first.name))
    return worst


def owned(history: History, versions: list[Version], reconciles: list[Reconcile]) -> list[Span]:
    """When the object of these versions had an owner."""
    found: list[Span] = []
    for shard, since, until in _labelled(history, versions):
        starts: dict[str, float] = {}
        for each in reconciles:
            if each.shard == shard and since <= each.begin < until:
                starts[each.process] = min(each.begin, starts.get(each.process, until))
        for process, start in starts.items():
            found += _working(history, process, start, until)
    return found


def longest_gap(spans: list[Span], begin: float, end: float) -> float:
    """The longest time between these moments that no span covers."""
    covered, longest = begin, 0.0
    for since, until in sorted(spans):
        longest = max(longest, min(since, end) - covered)
        covered = max(covered, min(until, end))
    return max(longest, end - covered)


def _labelled(history: History, versions: list[Version]) -> list[tuple[str, float, float]]:
    """Which shard's label the object carried from when to when."""
    found: list[tuple[str, float, float]] = []
    shard, since = "", 0.0
    for version in versions:
        now = "" if version.deleted else version.shard or ""
        if now == shard:
            continue
        if shard:
            found.append((shard, since, version.seen))
        shard, since = now, history.clock.after(version.at)
    return [*found, (shard, since, history.end)] if shard else found


def _working(history: History, process: str, start: float, until: float) -> list[Span]:
    """When a process worked between these moments."""
    spans: list[Span] = []
    for down in sorted((each for each in history.downs if each.process == process), key=lambda each: each.since):
        if down.since < until and start < down.since:
            spans.append((start, down.since))
        start = max(start, until if down.until is None else down.until) if down.since < until else start
    return [*spans, (start, until)] if start < until else spans

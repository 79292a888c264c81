"""What must hold of a history of a ring by ranges beside the other rules, by what Leases and RingAssignment say.

Etcd's log has writes, Leases and RingAssignment in one order, so that what was held when something was written is known
exactly; and where times are known within bounds only, the bound counts that excuses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final

from tests.chaos.history import ASSIGNMENTS, CHILDREN, OWNERS, History, Reconcile, Version, Violation
from tests.chaos.holdings import Hold, named_for


def foreign_writes(history: History) -> Iterator[Violation]:
    """What a reconcile writes is stored while its shard's Lease says that it holds the namespace."""
    shards = {each.key: each.shard for each in history.reconciles}
    writers = {each.id: shards.get(each.reconcile) for each in history.writes}
    known: set[str] = set()
    for version in history.versions:
        if version.resource != CHILDREN or version.deleted or not version.write or version.write in known:
            continue
        known.add(version.write)
        shard = writers.get(version.write)
        if shard is None:
            continue  # writers.unrecorded_writes tells
        holds = [each for each in history.holdings.holds[version.namespace] if each.shard == shard]
        moment = history.clock.after(version.at)
        if not any(each.at(version.at) or _counted_on(history, each, moment) for each in holds):
            yield Violation(
                "foreign write",
                f"{version.write} of {version.name} in {version.namespace} was stored at {version.at}, which the Lease"
                f" of {shard} did not hold",
            )


def foreign_reconciles(history: History) -> Iterator[Violation]:
    """A reconcile begins while its shard's Lease says that it holds the namespace.

    Or said so when its process was suspended: between the look at the Lease and the first word of the reconcile, say.
    No two are there at once.
    """
    for each in history.reconciles:
        holds = [hold for hold in history.holdings.holds[history.places[each.uid]] if hold.shard == each.shard]
        moments = chain((each.begin,), _suspended_before(history, each))
        if not any(_may_hold(history, hold, moment) for moment in moments for hold in holds):
            yield Violation(
                "foreign reconcile",
                f"{each.process} began {each.uid} in {history.places[each.uid]} at {each.begin:.3f}, which its Lease"
                " did not hold",
            )


def let_go_too_early(history: History) -> Iterator[Violation]:
    """Nothing runs any more in what a shard takes off its Lease."""
    for hold, each in _by_hold(history):
        until = hold.until
        if until is None or hold.torn or until.holder not in ("", hold.shard) or each.end is None:
            continue
        if each.begin < history.clock.after(until.at) and each.end > history.clock.before(until.at):
            yield Violation(
                "let go too early",
                f"{each.process} took {history.places[each.uid]} off its Lease at {until.at}, and ended {each.uid} at"
                f" {each.end:.3f}",
            )


def overlaps(history: History) -> Iterator[Violation]:
    """No reconcile begins where another shard's Lease has held the namespace since before its own did."""
    for hold, each in _by_hold(history):
        for other in history.holdings.holds[history.places[each.uid]]:
            if other.shard == hold.shard or other.since.at >= hold.since.at:
                continue
            if other.until is None or history.clock.after(other.until.at) > each.begin:
                yield Violation(
                    "overlap",
                    f"{each.process} began {each.uid} at {each.begin:.3f}, which the Lease of {other.shard} held since"
                    f" {other.since.at}",
                )


def early_grants(history: History) -> Iterator[Violation]:
    """The sharder names nobody for what another shard's Lease holds, and held when it was looked at."""
    before: Version | None = None
    for stored in history.stored:
        version = stored.version
        if version.resource != ASSIGNMENTS:
            continue
        if before is not None and not any(each.kind == "user" for each in stored.writers):
            for namespace, shard in _gained(history, before, version):
                for hold in history.holdings.holds[namespace]:
                    if hold.shard != shard and hold.at(before.at) and hold.at(version.at):
                        yield Violation(
                            "early grant",
                            f"{shard} was named for {namespace} at {version.at}, which the Lease of {hold.shard} held"
                            f" since {hold.since.at}",
                        )
        before = version


def misnamed(history: History) -> Iterator[Violation]:
    """In the end whoever holds an object is named for it."""
    last = next((each for each in reversed(history.versions) if each.resource == ASSIGNMENTS), None)
    for versions in history.of(OWNERS).values():
        object_ = versions[-1]
        named = None if last is None else named_for(last, history.holdings.points[object_.namespace])
        if not object_.deleted and named != object_.shard:
            yield Violation("lost", f"{object_.name} ends on {object_.shard}, and {named} is named for it")


def _gained(history: History, before: Version, after: Version) -> Iterator[tuple[str, str]]:
    for namespace, point in history.holdings.points.items():
        shard = named_for(after, point)
        if shard is not None and shard != named_for(before, point):
            yield namespace, shard


def _by_hold(history: History) -> Iterator[tuple[Hold, Reconcile]]:
    """Each reconcile with the hold in which it began."""
    for each in history.reconciles:
        for hold in reversed(history.holdings.holds[history.places[each.uid]]):
            if hold.shard == each.shard and history.clock.after(hold.since.at) <= each.begin:
                yield hold, each
                break


def _suspended_before(history: History, reconcile: Reconcile) -> Iterator[float]:
    """When its process was suspended, if this is the first that it began since it went on."""
    begun = [each.begin for each in history.reconciles if each.process == reconcile.process]
    for down in history.downs:
        if down.process != reconcile.process or down.how != "suspended" or down.until is None:
            continue
        until = down.until
        if reconcile.begin == min((begin for begin in begun if begin >= until), default=0.0):
            yield down.since


def _may_hold(history: History, hold: Hold, moment: float) -> bool:
    """Whether a Lease may have said so, as far as that can be told."""
    if history.clock.after(hold.since.at) > moment:
        return False
    return hold.until is None or history.clock.before(hold.until.at) >= moment or _counted_on(history, hold, moment)


def _counted_on(history: History, hold: Hold, moment: float) -> bool:
    if hold.until is None or not hold.torn:
        return False
    return moment <= history.clock.before(hold.until.at) + history.lease_seconds


RULES: Final[tuple[Callable[[History], Iterator[Violation]], ...]] = (
    foreign_writes,
    foreign_reconciles,
    let_go_too_early,
    overlaps,
    early_grants,
    misnamed,
)

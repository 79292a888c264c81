"""What must hold of a history, whatever was done to the processes in it.  Pure: a history in, findings out.

A finding is certain: where times are known within bounds only, the bound counts that excuses.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from tests.chaos import range_rules, writers
from tests.chaos.history import CHILDREN, OWNERS, At, History, Reconcile, Version, Violation
from tests.chaos.unowned import longest_without_owner

#: A replica of the sharder may be so late in learning that a shard has joined or gone.
LATE_SECONDS: Final = 5.0
#: A shard that has not renewed for this share of its lease is silent: new objects go past it, and are given back.
SILENT_SHARE: Final = 1 / 3
#: For so many lease durations a shard that crashed again and again is given nothing of a ring by ranges while others
#: are there; they get what comes up meanwhile, and give it back.
PROBATION_LEASES: Final = 8


@dataclass(frozen=True, slots=True)
class Move:
    """An object's way from one shard to another: the versions that assigned it."""

    before: Version
    after: Version


@dataclass(frozen=True, slots=True)
class Change:
    """A lease came to its shard (`held`) or went from it: not before `after`, and not later than `before`.

    `taken`: it comes back from whoever took it when the shard had crashed.
    """

    held: bool
    before: float
    after: float
    taken: bool = False

    def within(self, since: float, until: float, *, held: bool) -> bool:
        """Whether it may have been between two moments, as far as that can be told."""
        return self.held == held and self.before >= since and self.after <= until


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a history shows."""

    violations: tuple[Violation, ...]
    moves: int
    longest: float
    longest_of: str
    reconciles: int
    writes: int


def judge(history: History) -> Verdict:
    """Hold a history against all rules; moves and times without an owner are those since `history.begin`."""
    asked = (*RULES, *range_rules.RULES) if history.by_ranges else RULES
    found = [violation for rule in asked for violation in rule(history)]
    moves = [each for each in moves_in(history) if history.clock.before(each.after.at) >= history.begin]
    longest, name = longest_without_owner(history)
    reconciles = sum(each.begin >= history.begin for each in history.reconciles)
    writes = len(set(_accepted(history)))
    return Verdict(tuple(found), len(moves), longest, name, reconciles, writes)


def two_at_once(history: History) -> Iterator[Violation]:
    """No reconcile begins while another shard's of the same object runs, unless that shard is kept from its work."""
    for mine in _by_object(history).values():
        for index, earlier in enumerate(mine):
            for later in mine[index + 1 :]:
                if later.begin >= (earlier.end or 0.0):
                    continue
                if later.shard != earlier.shard and not history.down(earlier.process, earlier.begin, later.begin):
                    yield Violation(
                        "two at once",
                        f"{later.process} began {later.uid} at {later.begin:.3f}, {earlier.process} ended at"
                        f" {earlier.end:.3f}",
                    )


def late_writes(history: History) -> Iterator[Violation]:
    """No write of a shard's reconcile is accepted once another shard's reconcile of that object has begun."""
    by_key = {each.key: each for each in history.reconciles}
    by_write = {each.id: each.reconcile for each in history.writes}
    by_object = _by_object(history)
    for write, at in _accepted(history).items():
        reconcile = by_key.get(by_write.get(write, ""))
        if reconcile is None:
            continue
        accepted = history.clock.after(at)
        for other in by_object[reconcile.uid]:
            if other.shard != reconcile.shard and reconcile.begin < other.begin < accepted:
                yield Violation(
                    "late write",
                    f"{write} on {reconcile.uid} was accepted at {accepted:.3f} or later; {other.process} had begun"
                    f" at {other.begin:.3f}",
                )


def split_families(history: History) -> Iterator[Violation]:
    """When an owner is given to another shard, its children are there already."""
    children: dict[str, dict[str, Version]] = defaultdict(dict)
    steps = {each.after.at: each for each in moves_in(history)}
    for version in history.given:
        if version.resource == CHILDREN and version.owner is not None:
            if version.deleted:
                children[version.owner].pop(version.name, None)
            else:
                children[version.owner][version.name] = version
        if version.resource == OWNERS and version.at in steps:
            for child in children[version.uid].values():
                if child.shard != version.shard:
                    yield Violation(
                        "split family",
                        f"{version.name} was given to {version.shard} at {version.at}, its child {child.name} is on"
                        f" {child.shard}",
                    )


def needless_moves(history: History) -> Iterator[Violation]:
    """What moves had to: its shard had lost its lease since, or the shard that it went to had got one."""
    probation = PROBATION_LEASES * history.lease_seconds if history.by_ranges else 0.0
    hands = {name: list(_changes(history, versions)) for name, versions in history.renewals.items()}
    for move in moves_in(history):
        before, after = move.before, move.after
        if before.at[0] != after.at[0] or history.clock.before(after.at) < history.begin:
            continue
        since = history.clock.before(before.at) - LATE_SECONDS
        until = history.clock.before(after.at)
        gone = any(each.within(since, until, held=False) for each in hands.get(before.shard or "", ()))
        came = any(
            each.within(since - (probation if each.taken else 0.0), until, held=True)
            for each in hands.get(after.shard or "", ())
        )
        if not (gone or came or given_back(history, move) or history.edited(since, until)):
            yield Violation("needless move", f"{after.name} went from {before.shard} to {after.shard} at {after.at}")


def lost(history: History) -> Iterator[Violation]:
    """In the end each object is on a shard that lives, with its children, and made to its last wish."""
    children: dict[str, list[Version]] = defaultdict(list)
    for versions in history.of(CHILDREN).values():
        if not versions[-1].deleted and versions[-1].owner is not None:
            children[versions[-1].owner].append(versions[-1])
    for versions in history.of(OWNERS).values():
        last = versions[-1]
        if last.deleted:
            continue
        if last.shard not in history.living or last.drain:
            yield Violation("lost", f"{last.name} ends on {last.shard}{', draining' if last.drain else ''}")
        found = children[last.uid]
        if len(found) != history.children:
            yield Violation("lost", f"{last.name} ends with {len(found)} children of {history.children}")
        for child in found:
            if child.shard != last.shard:
                yield Violation("lost", f"{child.name} ends on {child.shard}, its owner on {last.shard}")
            if child.value != last.value:
                yield Violation("lost", f"{child.name} ends at {child.value!r}, its owner wants {last.value!r}")


def moves_in(history: History) -> list[Move]:
    """Each time an object was given to another shard than it had before, with whatever in between."""
    found = []
    for versions in history.of(OWNERS).values():
        placed: Version | None = None
        for version in versions:
            if version.deleted or not version.shard:
                continue
            if placed is not None and placed.shard != version.shard:
                found.append(Move(placed, version))
            if placed is None or placed.shard != version.shard:
                placed = version
    return sorted(found, key=lambda each: each.after.at)


def _changes(history: History, leases: list[Version]) -> Iterator[Change]:
    """When a lease came to its shard or went from it: few of its versions, which are renewals mostly."""
    before = taken = False
    for version in leases:
        now = not version.deleted and version.holder == version.name
        if now != before:
            yield Change(now, history.clock.before(version.at), history.clock.after(version.at), taken)
        taken = not now and (taken or (not version.deleted and bool(version.holder)))
        before = now


def given_back(history: History, move: Move) -> bool:
    """Whether an object had gone past the shard that gets it now: that missed renewals, had no lease, or was away."""
    placed, shard = history.clock.before(move.before.at), move.after.shard or ""
    renewals = history.renewals.get(shard, [])
    known = [each for each in renewals if each.at < move.before.at]
    if known and (known[-1].deleted or known[-1].holder != shard):
        return True
    for down in history.downs:
        # One that is about to leave says so, and gets nothing more.
        leaves = (
            down.how == "ended" and down.process.rpartition(".")[0] == shard and down.since - LATE_SECONDS <= placed
        )
        if leaves and not any(down.since < history.clock.before(each.at) < placed - LATE_SECONDS for each in renewals):
            return True
    for earlier, later in pairwise(renewals):
        since, until = history.clock.after(earlier.at), history.clock.before(later.at)
        near = since <= placed and until >= placed - LATE_SECONDS
        if near and until - since > SILENT_SHARE * history.lease_seconds:
            return True
    return False


def _by_object(history: History) -> dict[str, list[Reconcile]]:
    found: dict[str, list[Reconcile]] = defaultdict(list)
    for each in sorted(history.reconciles, key=lambda each: each.begin):
        found[each.uid].append(each)
    return found


def _accepted(history: History) -> dict[str, At]:
    """The writes of shards that the store took, each with the version that it made."""
    found: dict[str, At] = {}
    for version in history.versions:
        if version.resource == CHILDREN and version.write and not version.deleted:
            found.setdefault(version.write, version.at)
    return found


RULES: Final[tuple[Callable[[History], Iterator[Violation]], ...]] = (
    two_at_once,
    late_writes,
    split_families,
    needless_moves,
    lost,
    *writers.RULES,
)

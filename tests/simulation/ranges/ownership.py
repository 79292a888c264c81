"""Whose an object is where rings assign by ranges: what the shard's lease says that it holds, asked at each write.

Safety only.  A reconcile begins where its shard's lease says that it holds, and
has its writes accepted only while it says so; what runs there has ended before
it is taken off, and what it wrote can no longer be executed.  The sharder names
nobody for what a lease holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from shardsdk.kube.selectors import equals
from shardsdk.protocol.labels import LEASE_RING_LABEL, RingLabels
from shardsdk.protocol.objects import LEASES
from shardsdk.protocol.ranges import NOWHERE, RING_ASSIGNMENTS
from tests.simulation.checkers import Checkers
from tests.simulation.ranges.holdings import Holdings, read_named, short
from tests.simulation.storage import Commit
from tests.simulation.vocabulary import RINGS, Doing

if TYPE_CHECKING:
    from shardsdk.kube.selectors import Selector
    from shardsdk.protocol.objects import Resource
    from shardsdk.protocol.ranges import HashRanges
    from tests.simulation.network import Link
    from tests.simulation.storage import Version
    from tests.simulation.world import World


#: The list of one ring's leases, which each look of the sharder begins with.
_LOOKS: Final = {equals(LEASE_RING_LABEL, ring): ring for ring in RINGS}


class RangeCheckers(Checkers):
    """What holds for leases and reconciles however a ring assigns; inherited because all of that is the same."""

    def _check_child(self, doing: Doing, child: Version, ring: RingLabels) -> None:
        """A child lies where its owner does: there is no label that could say otherwise."""

    def judge(self, doing: Doing, point: int, held: HashRanges) -> str:
        """What is wrong with a reconcile that begins or writes at `point`, its lease holding `held`; empty: nothing.

        One whose lease a user deleted or emptied counts on it until it would have run out, and so do all others.
        """
        lease = self._held.get(doing.shard)
        if lease is None or lease.holder != doing.shard:
            return f"its lease is another's: {lease}"
        dead = self.world.is_dead(doing.process)  # who goes on with its lease says all that may yet be executed of it
        if doing.process not in (lease.author, lease.torn_from) and not dead:
            return f"its lease is another process's: {lease}"
        if self.world.now > lease.at + lease.duration:
            return f"its lease has run out: {lease}"
        if (lease.author == doing.process or dead) and point not in held:
            return f"its lease holds {short(held)}"
        return ""


class RangeOwnership:
    """The reconciles of one run, and what their shards' leases said meanwhile."""

    def __init__(self, world: World, checkers: RangeCheckers, holdings: Holdings) -> None:
        self._world = world
        self._checkers = checkers
        self._holdings = holdings
        #: What each shard's lease said before the write that is judged.
        self._before: dict[str, HashRanges] = {}
        #: What each process of the sharder was shown of a ring's leases by the first list since its assignment was
        #: written last, and they have said ever since.
        self._shown: dict[str, dict[str, dict[str, HashRanges]]] = {ring: {} for ring in RINGS}
        world.storage.on_set_back.append(self.rebuild)
        world.server.on_list.append(self._on_list)

    def changes(self, uid: str) -> int:
        """Nothing is written to an object that changes hands."""
        return 0

    def changed_at(self, uid: str) -> float:
        """It never did."""
        return 0.0

    def set_back(self, uid: str) -> None:
        """What an object's labels were says nothing."""

    def rebuild(self, commits: Iterable[Commit]) -> None:
        """What leases say is compared with what they said before the store was set back no more."""
        self._before.clear()
        self._forget_lists(*RINGS)

    def something_changed(self) -> None:
        """How often an object moves is not counted: it moves with its range, and `liveness` looks at those."""

    # -- reconciles ------------------------------------------------------------

    def began(self, doing: Doing) -> None:
        """A reconcile begins."""
        checkers, place = self._checkers, self._holdings.place(doing.uid)
        if checkers.unsure or place is None:
            return
        if wrong := checkers.judge(doing, place[1], self._holdings.held(doing.shard)):
            checkers.violate("begins where it holds", f"{doing} begins at {place[1]:016x}; {wrong}")

    # -- writes ------------------------------------------------------------------

    def on_commit(self, commit: Commit) -> None:
        """A write was accepted."""
        if commit.resource == LEASES and commit.latest.label(LEASE_RING_LABEL) is not None:
            self._check_given_away(commit)
        if commit.resource == RING_ASSIGNMENTS:
            self._check_granted(commit)
        if isinstance(commit.author.doing, Doing):
            self._check_write(commit, commit.author.doing)

    def _check_given_away(self, commit: Commit) -> None:
        """A shard takes off its lease what no reconcile of it is in any more."""
        shard, author, checkers = commit.key.name, commit.author.name, self._checkers
        held = self._holdings.held(shard)
        gone, self._before[shard] = self._before.get(shard, held) - held, held
        for shown in self._shown[commit.latest.label(LEASE_RING_LABEL) or ""].values() if gone else ():
            shown[shard] = shown.get(shard, NOWHERE) - gone
        if not gone or not checkers.is_holder(shard, author):
            return
        running = [(each, "runs") for each in checkers.at_work.of(author)]
        unanswered = self._world.server.unanswered_writes(shard)
        for doing, what in [*running, *((each, "may yet have a write executed") for each in unanswered)]:
            place = self._holdings.place(doing.uid)
            if place is not None and place[1] in gone and not checkers.is_excused(doing):
                checkers.violate("gives away when done", f"{author} gives {place[1]:016x} away while {doing} {what}")

    def _check_write(self, commit: Commit, doing: Doing) -> None:
        checkers, place = self._checkers, self._holdings.place(doing.uid)
        if place is None or checkers.is_tainted(doing.uid) or checkers.is_excused(doing, commit.author.sent):
            return
        if wrong := checkers.judge(doing, place[1], self._holdings.held(doing.shard)):
            what = f"{doing} writes {commit.resource.plural} {commit.key} at {place[1]:016x}"
            checkers.violate("writes where it holds", f"{what}; {wrong}")

    # -- what the sharder grants -------------------------------------------------

    def _on_list(self, link: Link, resource: Resource, selector: Selector) -> None:
        """A process was shown what leases say: whatever it writes from now on, it knows of these."""
        ring = _LOOKS.get(selector.labels) if resource == LEASES else None
        if ring is not None:
            self._shown[ring].setdefault(link.name, self._holdings.of_ring(ring))

    def _check_granted(self, commit: Commit) -> None:
        """The sharder names a shard for what no other held as the leases were listed, after the version before.

        Whoever has said since then that it holds more has read of it before, and its look finds out; so has one whom
        somebody's hand has it say.  A process that has listed nothing since then goes by what it cannot know.
        """
        ring, author, after = commit.key.name, commit.author.name, commit.after
        held = self._shown[ring].get(author, self._holdings.of_ring(ring))
        self._forget_lists(ring)
        now = read_named(after) if after is not None else None
        if now is None or author == "user" or self._checkers.unsure:
            return
        was = read_named(commit.before) if commit.before is not None else None
        for shard, ranges in now.shards.items():
            gained = ranges if was is None else ranges - was.of(shard)
            for other, theirs in held.items() if gained else ():
                taken = gained & theirs & self._holdings.held(other)
                if other != shard and taken:
                    what = f"{author} gives {short(taken)} of ring {ring} to {shard}"
                    self._checkers.violate("grants what is free", f"{what}; the lease of {other} holds it")

    def _forget_lists(self, *rings: str) -> None:
        for ring in rings:
            self._shown[ring].clear()

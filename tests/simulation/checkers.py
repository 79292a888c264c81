"""What must never happen, checked at every write and at the beginning of every reconcile.

Safety only; `liveness` looks after what must happen in the end.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from shardsdk.kube.store import Key
from shardsdk.protocol.labels import LEASE_RING_LABEL, SHARDER_HOLDER, RingLabels
from shardsdk.protocol.objects import LEASES
from tests.simulation.acquiring import Acquisitions
from tests.simulation.at_work import AtWork
from tests.simulation.collecting import owner_uid
from tests.simulation.leases import Held
from tests.simulation.renewals import Renewals
from tests.simulation.storage import Commit, Version
from tests.simulation.strays import Strays
from tests.simulation.takeovers import Takeovers
from tests.simulation.vocabulary import PIECES, RATES, RING_OF, Doing, Violation, key_of

if TYPE_CHECKING:
    from tests.simulation.world import World

#: Violations kept; one is enough, some more show a pattern.
MAX_VIOLATIONS: Final = 10
#: After a user tore an object from its shard, its two owners are the user's doing for so long.
TAINT_SECONDS: Final = 60.0
#: A child made without label is labelled by placement within a second or so, once a leader can.
UNLABELLED_SECONDS: Final = 20.0


@dataclass(slots=True)
class Checkers:
    """The safety rules of one run."""

    world: World
    violations: list[Violation] = field(default_factory=list)
    strays: Strays = field(init=False)
    at_work: AtWork = field(init=False)
    _takeovers: Takeovers = field(init=False)
    _last: dict[str, Doing] = field(default_factory=dict)
    _tainted: dict[str, float] = field(default_factory=dict)
    _held: dict[str, Held] = field(default_factory=dict)
    #: What each version of a lease says that says something new, for when the store is set back to it.
    _said: dict[Version, Held] = field(default_factory=dict)
    #: When an object was last taken from a shard that has not got it back, and when a process acquired its lease.
    _taken: dict[tuple[str, str], float] = field(default_factory=dict)
    _acquired: dict[str, float] = field(default_factory=dict)
    #: Whose child an object was as it was made, and how often that owner had changed hands by then.
    _made_for: dict[str, tuple[str | None, int]] = field(default_factory=dict)
    _torn_leases: dict[str, float] = field(default_factory=dict)
    #: Until when a process may go on whose lease a user tore, and which a process of the same name has by now.
    _displaced: dict[str, float] = field(default_factory=dict)
    #: Objects for which a dead process's write was executed after the next one of its shard had begun.
    _late: set[str] = field(default_factory=set)
    #: Up to which version each process had been told of leases when the store was set back.
    _heard: dict[str, int] = field(default_factory=dict)
    #: Until when holds may last that the store has forgotten, since it was set back.
    _unsure_until: float = 0.0
    #: When the store was set back last.
    _set_back_at: float = 0.0

    def __post_init__(self) -> None:
        self.strays = Strays(self.world)
        self.at_work = AtWork(self.world)
        self._takeovers = Takeovers(self.world, self.violate)
        Renewals(self.world, self.violate)
        Acquisitions(self)

    def violate(self, rule: str, message: str) -> None:
        """Note that `rule` is broken."""
        if self.world.over:
            return
        violation = Violation(rule, self.world.now, message)
        self.world.note(f"!!! {violation.rule}: {violation.message}")
        if len(self.violations) < MAX_VIOLATIONS:
            self.violations.append(violation)

    # -- what users may break ----------------------------------------------

    def taint(self, uid: str) -> None:
        """A user tore this object (or its children) from its shard."""
        self._tainted[uid] = self.world.now + TAINT_SECONDS

    def tore_lease(self, shard: str) -> None:
        """A user deleted or emptied the lease of `shard` while the sharder held it."""
        self._torn_leases[shard] = self.world.now + 4 * self.world.timings.lease

    def holder_of(self, shard: str) -> str | None:
        """Who holds the lease of `shard`, as the API server knows it; `None`: there is none."""
        held = self._held.get(shard)
        return held.holder if held is not None else None

    def is_tainted(self, uid: str | None) -> bool:
        if uid is None:
            return False
        return self._tainted.get(uid, 0.0) > self.world.now or self.unsure

    # -- a store that is set back ---------------------------------------------

    @property
    def unsure(self) -> bool:
        """Whether holds may last that the store has forgotten."""
        return self._unsure_until > self.world.now

    def unsure_until(self, moment: float) -> None:
        """Holds of before last until then; nobody can tell whose what is."""
        self._unsure_until, self._set_back_at = moment, self.world.now

    def set_back_lease(self, commit: Commit) -> None:
        """A lease is what this write has made of it, again.

        The sharder's hold counts from now on.  A shard's counts from its last renewal: the one that is there again,
        or a later one that is lost, since nobody's hold becomes longer by a restore.  A leader that has seen that
        renewal, and nothing since, may have waited for it to run out before the restore, too; and one that was told of
        none of those that are lost, of the one that is there again.
        """
        shard, found, lost = commit.key.name, self._said[commit.latest], self._held.get(commit.key.name)
        self.world.note(f"the lease of {shard} is {found.holder or 'nobody'}'s, as {found.author} wrote it")
        self._held[shard] = replace(found, at=self.world.now)
        if found.holder == shard:
            self._held[shard] = found
            if lost is not None and lost.holder == shard and lost.at > found.at:
                self._held[shard] = replace(found, at=lost.at, number=lost.number, again_at=found.at)
                self._heard = dict(self.world.server.heard)

    def forget_lease(self, shard: str) -> None:
        """There is no lease of this shard any more, and nobody has deleted it."""
        self._held.pop(shard, None)

    def set_back(self, before: Version | None, after: Version, ring: RingLabels, since: float) -> None:
        """The labels of an object are again what they were at the moment `since`."""
        uid, shard = after.uid, after.label(ring.shard) or ""
        self._taken.pop((shard, uid), None)
        if before is not None and before.label(ring.shard) not in (None, shard):
            self._taken[before.label(ring.shard) or "", uid] = self.world.now
        if self._tainted.get(uid, 0.0) > since:
            self.taint(uid)  # what a user tore is torn again

    # -- reconciles ----------------------------------------------------------

    def began(self, doing: Doing) -> None:
        """A reconcile begins: its children are here, and from now on nobody else may write."""
        self.at_work.began(doing)
        self.world.waits.began(doing)
        if self.is_excused(doing):
            return
        before = self._last.get(doing.uid)
        if before is not None and before.process != doing.process:
            self.world.stats.handovers += 1
            self.world.note(f"{doing.process} begins {doing.uid} after {before.process}")
        self._last[doing.uid] = doing
        ring = RING_OF[doing.resource]
        self._check_read(doing)
        self.world.ownership.began(doing)
        if doing.uid not in self.world.index.mains:
            return  # whoever has not seen yet that it is gone; its children are placed without it, until they go too
        for child in self.world.index.children(doing.uid).values():
            self._check_child(doing, child, ring)

    def holds(self, doing: Doing) -> bool:
        """Whether the lease of the shard is held by just this process, as the API server knows it."""
        return self.is_holder(doing.shard, doing.process)

    def is_holder(self, shard: str, process: str) -> bool:
        """Whether it is this process that holds the lease of its shard, as the API server knows it."""
        held = self._held.get(shard)
        return held is not None and held.holder == shard and held.author == process

    def relies(self, doing: Doing) -> bool:
        """Whether a process may count on its shard's lease: its own, or one that a user tore from it a while ago."""
        lease = self._held.get(doing.shard)
        if lease is None or lease.holder != doing.shard:
            return False
        torn = lease.torn_from == doing.process and self.world.now < lease.at + lease.duration / RATES[1]
        if lease.at < self._set_back_at and not self.unsure:
            return torn  # whoever has not renewed it since a restore holds nothing any more, by its own clock
        return torn or lease.author == doing.process

    def is_excused(self, doing: Doing, sent: float | None = None) -> bool:
        """A shard that is promised nothing: without fence it was paused or cut off, or it knows less than is so.

        `sent` is when it sent what arrives now; `None`: now.
        """
        if not doing.fenced and self.world.was_troubled(doing.process):
            return True
        return self._is_unaware(doing.process, sent)

    def _is_unaware(self, process: str, sent: float | None) -> bool:
        """Whether a process had yet to learn that its machine stood still, or has that a user gave its lease away."""
        return self.world.machines.is_unaware(process, sent) or self._displaced.get(process, 0.0) > self.world.now

    def ended(self, doing: Doing) -> None:
        """A reconcile has ended."""
        self.at_work.ended(doing)
        self.world.waits.ended(doing)

    def _check_read(self, doing: Doing) -> None:
        """What a shard works on it has read since it acquired its lease."""
        taken, acquired = self._taken.get((doing.shard, doing.uid)), self._acquired.get(doing.process)
        if doing.fenced and taken is not None and acquired is not None and taken < acquired:
            self.violate("reads after the lease", f"{doing} begins; taken away at {taken:.3f}, lease at {acquired:.3f}")

    def _check_child(self, doing: Doing, child: Version, ring: RingLabels) -> None:
        label = child.label(ring.shard)
        if self.strays.excuse(child, doing.uid) or self.world.poison.leaves_halfway(child, ring):
            return
        if label == doing.shard or self.is_tainted(doing.uid) or self.is_tainted(child.uid):
            return
        if label is None and self.world.now - self._to_be_labelled_since(child, doing) < UNLABELLED_SECONDS:
            return
        self.violate("children with their owner", f"{doing} begins while its child {child.key} is on {label}")

    def _to_be_labelled_since(self, child: Version, doing: Doing) -> float:
        """Since when placement could have labelled a child that was made without label.

        A foreign shard has no barrier: it goes on with an owner that it has had all along although it does not
        see this child, and nobody can spare it that while there is no leader.  A shard with the barrier waits for the
        label, and an owner that has changed hands has left no child behind; neither is excused for longer.
        """
        made_at = self.world.made_at.get(child.uid, 0.0)
        kept = self._made_for.get(child.uid) == (doing.uid, self.world.ownership.changes(doing.uid))
        return made_at if doing.fenced or not kept else max(made_at, self.world.hindrances.sharder)

    # -- writes ----------------------------------------------------------------

    def on_commit(self, commit: Commit) -> None:
        """A write was accepted."""
        self.world.stats.commits += 1
        if commit.resource == LEASES:
            self._on_lease(commit)
            return
        ring = RING_OF.get(commit.resource)
        if ring is None:
            return
        if commit.before is None:
            self.world.made_at[commit.latest.uid] = self.world.now
            owner = owner_uid(commit.latest)
            self._made_for[commit.latest.uid] = (owner, self.world.ownership.changes(owner or ""))
            if commit.resource == PIECES:
                self.strays.stored(commit.key.name)
        if isinstance(commit.author.doing, Doing):
            self._check_owner(commit, commit.author.doing)
        if commit.resource == PIECES and commit.before is None:
            self._check_double(commit)
        if commit.before is not None and commit.after is not None:
            self._check_taking(commit, ring, commit.before, commit.after)

    def _check_owner(self, commit: Commit, doing: Doing) -> None:
        if self._is_unaware(doing.process, commit.author.sent):
            self.taint(doing.uid)  # what it has written, its next owner may not have seen
        last = self._last.get(doing.uid)
        if last is None or last.process == doing.process or last.number < doing.number:
            return
        if self.is_tainted(doing.uid) or self.is_excused(doing, commit.author.sent):
            return
        if last.shard == doing.shard and self.world.is_dead(doing.process):
            self._late.add(
                doing.uid
            )  # who goes on with a dead process's lease reckons with it, and lets no other begin
            return
        what = f"{commit.resource.plural} {commit.key}"
        self.violate("two owners", f"{doing} writes {what} after {last} began")

    def _check_double(self, commit: Commit) -> None:
        made = commit.latest
        owner, key = owner_uid(made), key_of(made)
        doing = commit.author.doing
        if owner is None or owner not in self.world.index.mains or self.is_tainted(owner):
            return  # what is made for an owner that is gone goes as that did
        twins = [
            other.key
            for other in self.world.index.children(owner).values()
            if other is not made and key_of(other) == key
        ]
        if not twins:
            return
        if owner in self._late:
            return  # a dead process's own, which came too late for the next to see
        if isinstance(doing, Doing) and not doing.fenced:
            self.taint(owner)  # a foreign shard knows neither barrier nor expectations
            return
        self.violate("no child twice", f"{doing} makes {made.key} although there is {twins[0]}")

    # -- taking objects away -----------------------------------------------------

    def _check_taking(self, commit: Commit, ring: RingLabels, before: Version, after: Version) -> None:
        shard = before.label(ring.shard)
        author = commit.author.name
        if shard != after.label(ring.shard):
            self._taken[shard or "", before.uid] = self.world.now
            self._taken.pop((after.label(ring.shard) or "", before.uid), None)
        if shard is None and after.label(ring.shard) is not None:
            if author == "user":
                self.taint(before.uid)  # its children are still wherever they were
            self.world.note(f"{author} gives {commit.resource.plural} {commit.key} to {after.label(ring.shard)}")
        if shard is None or after.label(ring.shard) == shard:
            return
        what = f"{commit.resource.plural} {commit.key} ({before.uid}) from {shard} to {after.label(ring.shard)}"
        self.world.note(f"{author} moves {what}")
        if author == "user":
            self.taint(before.uid)
            self.at_work.tore(before.uid)
            if commit.resource == PIECES and (owner := owner_uid(before)) is not None:
                self.taint(owner)  # its shard does not see this child any more, and makes it again
            return
        if author.rpartition("_")[0] == shard:
            if self.world.liveness.is_leaving(ring.ring, shard):
                self.world.mark("acknowledged while about to leave")
            if before.label(ring.drain) is None:
                self.violate("acknowledges drains only", f"{author} moves {what}")
            if any(each.uid == before.uid for each in self.at_work.of(author)):
                self.violate("acknowledges when done", f"{author} moves {what} while it reconciles it")
            unanswered = (each for each in self.world.server.unanswered_writes(shard) if each.uid == before.uid)
            for doing in (each for each in unanswered if each.fenced and not self.is_excused(each)):
                self.violate("acknowledges when done", f"{author} moves {what}; {doing} may yet have a write executed")
            return
        if commit.resource == PIECES and self._may_follow(ring, before, shard):
            return
        if self.world.is_held_elsewhere(shard) and self.world.index.is_drained(ring.drain, before):
            return  # a shard that has just come beside that hold lets go of what is drained, and does no more
        self._check_hold(commit, shard, what)

    def _may_follow(self, ring: RingLabels, child: Version, shard: str) -> bool:
        """A child may be taken from a living shard once its owner is not there any more."""
        owner = self.world.index.mains.get(owner_uid(child) or "")
        return owner is None or owner.label(ring.shard) != shard

    def _check_hold(self, commit: Commit, shard: str, what: str) -> None:
        held = self._held.get(shard)
        author = commit.author.name
        if self._torn_leases.get(shard, 0.0) > self.world.now or self.world.machines.is_unaware(
            author, commit.author.sent
        ):
            return
        if self._unsure_until > self.world.now:
            return
        if held is None or held.holder != SHARDER_HOLDER:
            self.violate("moves under the lease", f"{author} moves {what}; the lease says {held}")
        elif held.author != author:
            self.violate("moves under its own hold", f"{author} moves {what}; the lease says {held}")
        elif self.world.now > held.at + held.duration:
            self.violate("moves while it holds", f"{author} moves {what}; the lease says {held}")

    # -- leases ----------------------------------------------------------------

    def is_shards(self, commit: Commit) -> bool:
        """Whether a lease is a shard's, and not one of its name that the sharder made where the shard is not."""
        own = Key(self.world.namespace_of_shard(commit.key.name), commit.key.name)
        if commit.latest.label(LEASE_RING_LABEL) is None:
            return False
        return commit.key == own or not self.world.storage.get(LEASES, own)

    def _on_lease(self, commit: Commit) -> None:
        shard, said = commit.key.name, self._read_lease(commit)
        if not self.is_shards(commit):
            return
        if commit.after is None:
            held = self._held.pop(shard, None)
            if commit.author.name == "user" and held is not None:
                self._tear(shard, held)
            return
        if said is None:
            return
        holder, held = said.holder, self._held.get(shard)
        if commit.author.name == "user" and held is not None:
            self._tear(shard, held)  # also what a backup tool puts back says nothing of who has it
            return
        if holder == SHARDER_HOLDER and held is not None and held.holder != SHARDER_HOLDER:
            self.world.stats.takeovers += 1
            self.world.note(f"{commit.author.name} takes the lease of {shard} over")
            self._takeovers.check(shard, held, self._heard.get(commit.author.name, 0), commit.author.name)
            self.world.spring_traps(shard)
        if held is None or held.holder != holder or commit.author.name not in (held.author, held.torn_from):
            self._acquired[commit.author.name] = self.world.now
        if held is None or held.holder != holder:
            self.world.note(f"{commit.author.name} makes {holder or 'nobody'!r} the holder of {shard}")
        torn_from = held.torn_from if held is not None and commit.before is None else ""
        if holder == shard and held is not None and torn_from not in ("", commit.author.name):
            # Who starts without finding a lease cannot know of a namesake, which works on until it looks again.
            self._displaced[held.torn_from] = held.at + held.duration / RATES[0]  # by the slowest clock
        self._held[shard] = said

    def _read_lease(self, commit: Commit) -> Held | None:
        """What a lease says now, also if it is set back to this one day; `None`: what it said before."""
        before, after = commit.before, commit.after
        if after is None or (before is not None and before.doc.get("spec") == after.doc.get("spec")):
            return None
        said = self._said[after] = Held.read(after, self.world.now, commit.author.name)
        return said

    def _tear(self, shard: str, held: Held) -> None:
        """A user deleted, emptied or overwrote a lease: it counts as held until it would have run out."""
        if held.holder == SHARDER_HOLDER:
            self.tore_lease(shard)
        self._held[shard] = replace(held, author="user", torn_from=held.torn_from or held.author)

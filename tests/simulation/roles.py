"""A ring that is edited to and fro while shards work: pieces are main objects, then controlled ones, and main again.

Its shards reconcile works, and pieces as long as these are to be main.  They take their time, so that
whoever gives a piece away too early has two of them reconcile it.  They are of a program that says nothing of its
main resources and knows by itself when these are to be none; or they say it, and another program replaces them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

from sharder.core.mains import AWAY_SECONDS
from shardsdk.kube.store import Key
from shardsdk.protocol.objects import CLUSTERRINGS
from shardsdk.reconcile.context import Context
from shardsdk.reconcile.spec import Work as Specs
from shardsdk.reconcile.spec import controller_for
from shardsdk.testing.virtual import VirtualClock, run_virtual
from tests.simulation.schedule import draw_plan
from tests.simulation.shards import ShardProcess, run_as_thread
from tests.simulation.storage import Author, Commit, Version
from tests.simulation.vocabulary import FAMILY, NAMESPACE_NAMES, PIECES, WORKS, Piece, Work
from tests.simulation.world import World

USER: Final = Author("user")
MAIN: Final[list[dict[str, Any]]] = [{"group": each.group, "resource": each.plural} for each in (WORKS, PIECES)]
CONTROLLED: Final[list[dict[str, Any]]] = [MAIN[0] | {"controlledResources": [MAIN[1]]}]
#: Works, how many pieces each has, and pieces that have none.
SIZES: Final = (8, 3, 4)
#: So long a shard may reconcile one object, and so long it may take until all is in its place; in durations of a lease.
LONGEST, PATIENCE = 2.0, 60.0
ROUNDS: Final = 3


class Shard(ShardProcess):
    """A shard that reconciles pieces by themselves as well, while its program has them as `main`; else with works."""

    def __init__(self, roles: Roles, name: str, incarnation: int, *, main: bool) -> None:
        super().__init__(roles.world, name, FAMILY, incarnation, f"pod-{name}-{incarnation}")
        self._roles = roles
        self.has_main = main
        if main:
            self._manager.add(controller_for(PIECES, Piece).options(concurrency=9).reconcile(self._reconcile_piece))
        if not roles.said:
            make = self._manager._make_lease
            self._manager._make_lease = lambda world, ring, work: make(world, ring, Specs())  # type: ignore[method-assign]

    async def _reconcile(self, context: Context[Work]) -> None:
        if not self.has_main:
            pieces = self._roles.pieces_of(context.metadata.uid, self.name)
            await asyncio.gather(*(self._roles.work(self, each.uid, each.key.name) for each in pieces))

    async def _look(self, context: Context[Work]) -> None:
        return None

    async def _reconcile_piece(self, context: Context[Piece]) -> None:
        if self._roles.main:
            await self._roles.work(self, context.metadata.uid, context.metadata.name)


@dataclass(slots=True)
class Roles:
    """One run; `main`: whether shards are to reconcile pieces by themselves; `said`: their Leases say what they do."""

    world: World
    rng: Random
    said: bool
    main: bool = True
    wrong: list[str] = field(default_factory=list)
    #: By piece, which process works on it.
    working: dict[str, Shard] = field(default_factory=dict)
    shards: list[Shard] = field(default_factory=list)
    worked: int = 0

    async def work(self, shard: Shard, uid: str, name: str) -> None:
        """A shard reconciles a piece."""
        other = self.working.get(uid)
        if other is not None and other is not shard and other.running:
            self.wrong.append(f"{self.world.now:.3f}: {shard.identity} begins {name}, on which {other.identity} works")
        self.working[uid] = shard
        self.worked += 1
        try:
            await shard.clock.sleep(self.rng.uniform(0.0, LONGEST) * self.world.timings.lease)
        finally:
            if self.working.get(uid) is shard:
                del self.working[uid]

    def look(self, commit: Commit) -> None:
        """A shard that works on a piece keeps it, though it would cease as soon as it sees that it is taken."""
        before, now = commit.before, commit.after
        if commit.resource != PIECES or before is None or now is None:
            return
        worker = self.working.get(before.uid)
        if worker is None or not worker.running:
            return
        if before.label(FAMILY.shard) == worker.name != now.label(FAMILY.shard):
            self.wrong.append(f"{self.world.now:.3f}: {now.key.name} is taken, on which {worker.identity} works")

    def start_shard(self, *, main: bool = True) -> None:
        """Another one joins."""
        self._start(f"fam-{len(self.shards)}", 1, main=main)

    def _start(self, name: str, incarnation: int, *, main: bool) -> Shard:
        self.shards.append(Shard(self, name, incarnation, main=main))
        self.world.shards.append(self.shards[-1])
        return self.shards[-1]

    async def restart(self, shard: Shard) -> Shard:
        """The same program begins anew, a while after it was ended in order or by force."""
        await self.end(shard)
        await self.world.clock.sleep(self.rng.uniform(0.0, 9.0) * self.world.timings.lease)
        return self._start(shard.name, 2, main=True)

    async def end(self, shard: Shard) -> None:
        """Stop one in order, or by force."""
        if self.rng.random() < 0.5:
            await shard.stop()
        else:
            shard.kill()

    def pieces_of(self, work: str, shard: str) -> list[Version]:
        """Those that a work has, by its uid, and a shard sees."""
        return [
            each for each in self.world.storage.objects(PIECES)
            if each.label(FAMILY.shard) == shard
            and any(owner["uid"] == work for owner in each.doc["metadata"].get("ownerReferences") or ())
        ]  # fmt: skip

    @property
    def ring(self) -> Version:
        return self.world.storage.demand(CLUSTERRINGS, Key("", FAMILY.ring))

    def edit(self, resources: list[dict[str, Any]]) -> None:
        """Have the ring list these."""
        found = self.ring
        doc = deepcopy(found.doc)
        doc["spec"]["resources"] = resources
        self.world.storage.replace(CLUSTERRINGS, found, doc, USER)

    def label(self, resource: Any, key: Key) -> str | None:
        return self.world.storage.demand(resource, key).label(FAMILY.shard)

    def settled(self) -> bool:
        """Whether the ring says that all is in its place by its newest spec."""
        doc = self.ring.doc
        return any(
            each["type"] == "Settled" and each["status"] == "True"
            and each["observedGeneration"] == doc["metadata"]["generation"]
            for each in (doc.get("status") or {}).get("conditions", ())
        )  # fmt: skip

    async def until(self, true: Callable[[], bool], what: str, *, more_seconds: float = 0.0) -> None:
        """See that something comes true, within so many seconds more than it takes by itself."""
        lease = self.world.timings.lease
        for _ in range(int((PATIENCE + more_seconds / lease) * 4)):
            if true():
                return
            await self.world.clock.sleep(0.25 * lease)
        self.wrong.append(f"{self.world.now:.3f}: {what} takes too long: {self.ring.doc.get('status')}")

    # -- what happens ----------------------------------------------------------

    def set_up(self) -> None:
        world, storage = self.world, self.world.storage
        for judge in (world.waits, world.liveness, world.ownership, world.checkers):
            storage.on_commit.remove(judge.on_commit)  # it knows pieces as controlled alone
        storage.on_commit.append(self.look)
        world._set_up()
        self.edit(MAIN)
        works, pieces, alone = SIZES
        namespace = NAMESPACE_NAMES[0]
        for number in range(works):
            meta = {"namespace": namespace, "name": f"work-{number}"}
            work = storage.create(WORKS, {**_kind(WORKS), "metadata": meta, "spec": {}}, USER)
            owner = {**_kind(WORKS), "name": work.key.name, "uid": work.uid, "controller": True}
            for piece in range(pieces):
                self._make_piece(f"piece-{number}-{piece}", [owner])
        for number in range(alone):
            self._make_piece(f"alone-{number}", [])

    def _make_piece(self, name: str, owners: list[dict[str, Any]]) -> None:
        meta = {"namespace": NAMESPACE_NAMES[0], "name": name, "ownerReferences": owners}
        self.world.storage.create(PIECES, {**_kind(PIECES), "metadata": meta, "spec": {}}, USER)

    def touch(self) -> None:
        """Users change pieces, so that shards have work."""
        for found in self.world.storage.objects(PIECES):
            if self.rng.random() < 0.5:
                doc = deepcopy(found.doc)
                doc["spec"] = {"key": str(self.rng.getrandbits(16))}
                self.world.storage.replace(PIECES, found, doc, USER)

    def check_places(self) -> None:
        """Each piece is where its work is, and one without is nobody's."""
        for found in self.world.storage.objects(PIECES):
            owners = found.doc["metadata"].get("ownerReferences")
            due = self.label(WORKS, Key(found.key.namespace, owners[0]["name"])) if owners else None
            if found.label(FAMILY.shard) != due:
                self.wrong.append(f"{found.key} is on {found.label(FAMILY.shard)}, and should be on {due}")


def _kind(resource: Any) -> dict[str, Any]:
    return {"apiVersion": resource.api_version, "kind": resource.kind}


async def play(world: World, rng: Random) -> Roles:
    """Edit the ring to and fro, and have leaders and shards crash meanwhile."""
    roles, lease = Roles(world, rng, said=False), world.timings.lease
    roles.set_up()
    for _ in range(3):
        roles.start_shard()
    await roles.until(roles.settled, "settling")
    for _ in range(ROUNDS):
        roles.touch()
        await world.clock.sleep(rng.uniform(0.1, 0.3) * lease)
        roles.edit(CONTROLLED)
        await world.clock.sleep(rng.uniform(0.0, 1.0) * lease)
        if rng.random() < 0.3:
            roles.edit(MAIN)
            await world.clock.sleep(rng.uniform(0.0, 2.0) * lease)
            roles.touch()
            roles.edit(CONTROLLED)
        if rng.random() < 0.5 and (leader := world.leader) is not None:
            leader.kill()
            world.start_replica(leader.name)
        roles.touch()
        running = [shard for shard in roles.shards if shard.running]
        if rng.random() < 0.5 and len(running) > 2:
            rng.choice(running).kill()  # it stays away: its works would be given back as soon as pieces go with them
        await roles.until(roles.settled, "the change to controlled")
        roles.check_places()
        # All others than these are rolled out now, by which works may move.
        roles.main = False
        await roles.until(lambda: not any(each.running for each in roles.working.values()), "the last reconcile")
        roles.start_shard()
        await world.clock.sleep(rng.uniform(0.0, 4.0) * lease)
        await roles.until(roles.settled, "settling with another shard")
        roles.check_places()
        roles.main = True
        roles.edit(MAIN)
        await roles.until(roles.settled, "the change to main")
        if roles.wrong:
            break
    return roles


async def play_rolled_out(world: World, rng: Random) -> Roles:
    """Edit the ring in one step, and replace the program whenever it suits somebody; its last shard is restarted."""
    roles, lease = Roles(world, rng, said=True), world.timings.lease
    roles.set_up()
    for _ in range(3):
        roles.start_shard()
    await roles.until(roles.settled, "settling")
    roles.edit(CONTROLLED)
    await world.clock.sleep(rng.uniform(0.0, 8.0) * lease)
    roles.start_shard(main=rng.random() < 0.5)
    for _ in range(int(rng.uniform(20.0, 60.0))):
        roles.touch()
        if rng.random() < 0.05 and (leader := world.leader) is not None:
            leader.kill()
            world.start_replica(leader.name)
        await world.clock.sleep(0.3 * lease)
    last, *others = [each for each in roles.shards if each.running and each.has_main]
    roles.start_shard(main=False)
    for shard in others:
        await roles.end(shard)
        roles.touch()
        await world.clock.sleep(rng.uniform(0.0, 4.0) * lease)
    last = await roles.restart(last)
    for _ in range(4):
        await world.clock.sleep(rng.uniform(2.0, 4.0) * lease)
        roles.touch()
        await world.clock.sleep(rng.uniform(0.0, 1.0) * lease)
        roles.start_shard(main=False)
    await roles.end(last)
    await world.clock.sleep(lease)
    await roles.until(roles.settled, "the change to controlled", more_seconds=AWAY_SECONDS)
    roles.check_places()
    return roles


def run(seed: int, play: Callable[[World, Random], Awaitable[Roles]] = play) -> Roles:
    """One run, in virtual time."""
    plan = replace(
        draw_plan(seed), actions=(), scenario=None, replicas=2, shards=0, foreign=0, plain_shards=0, works=0, plains=0,
        webhook=True, select_namespaces=False,
    )  # fmt: skip
    clock = VirtualClock()

    async def main(_: VirtualClock) -> Roles:
        asyncio.get_running_loop().run_in_executor = run_as_thread  # type: ignore[method-assign, assignment]
        return await play(World(plan, clock), Random(f"{seed}/roles"))

    return run_virtual(main, clock=clock)

"""Real kopf operators as shards: a real sharder places their objects, under the rights of rbac/shard.yaml."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from shardsdk.process.process import ExitCode
from tests.integration.harness import Stage
from tests.integration.programs import TAKEN, Program, Programs, overlaps, programs_on, read_spans, until
from tests.integration.world import Ring

CONFIGMAPS = "v1/configmaps"
LEASES = "coordination.k8s.io/v1/leases"
FINALIZER = "example.com/kopf"


class Operators:
    """kopf shards of one ring, with their chronicle."""

    def __init__(self, programs: Programs, ring: Ring) -> None:
        self.programs = programs
        self.ring = ring
        self.chronicle = programs.folder / "chronicle"
        self.chronicle.touch()
        self.gate = programs.folder / "gate"

    async def start(self, name: str) -> Program:
        module = ("-m", "tests.integration.kopf_operator")
        return await self.programs.start(name, *module, self.ring.name, name, str(self.chronicle), str(self.gate))

    async def until_worked_on(self, places: dict[str, str | None]) -> None:
        """Wait until each object's handler and timer have run on its shard."""
        for name, shard in places.items():
            await self.ring.until(f"{name}-{shard}", lambda child: True, CONFIGMAPS)
            await until(lambda name=name, shard=shard: self.work_of(name, shard) > 1)  # type: ignore[misc]

    def work_of(self, name: str, shard: str | None) -> int:
        return sum(each.thing == name and each.shard == shard for each in read_spans(self.chronicle))


@asynccontextmanager
async def one_at_work(stage: Stage, folder: Path, thing: str) -> AsyncIterator[tuple[Operators, Program]]:
    """An operator alone in its ring, busy with `thing`, whose handler waits for the gate."""
    ring = await stage.ring()
    async with programs_on(stage, folder) as programs:
        operators = Operators(programs, ring)
        one = await operators.start("one")
        await ring.create(name=thing, labels={ring.labels[0]: "one"})
        await until(lambda: operators.work_of(thing, "one") > 2)
        yield operators, one


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_kopf_operators_share_objects_hand_them_over_without_overlap_and_survive_a_kill(
    stage: Stage, tmp_path: Path
) -> None:
    ring = await stage.ring()
    async with programs_on(stage, tmp_path) as programs:
        operators = Operators(programs, ring)
        one, two = await operators.start("one"), await operators.start("two")
        await stage.sharder()
        await ring.in_place({"one", "two"}, timeout=60)
        # The sharder knows of both: what is made now is nobody else's before.
        await ring.condition("ShardsAvailable", says="2 of 2")
        for name in ring.pick_names(4, {"one", "two", "three"}):
            await ring.create(name=name)
        await ring.in_place({"one", "two"})
        before = await ring.shards_of()
        assert set(before.values()) == {"one", "two"}
        await operators.until_worked_on(before)
        for name in before:
            assert operators.work_of(name, {"one": "two", "two": "one"}[str(before[name])]) == 0

        await operators.start("three")
        await ring.in_place({"one", "two", "three"}, timeout=60)
        after = await ring.shards_of()
        moved = {name: shard for name, shard in after.items() if shard != before[name]}
        assert len(moved) == 4
        assert set(moved.values()) == {"three"}
        await operators.until_worked_on(moved)
        assert overlaps(read_spans(operators.chronicle)) == []

        two.process.kill()
        await ring.in_place({"one", "three"}, timeout=60)
        await operators.until_worked_on(await ring.shards_of())
        assert overlaps(read_spans(operators.chronicle)) == []

        assert await one.stop() == ExitCode.OK
        lease = await stage.admin.get(LEASES, "one", stage.namespace)
        assert lease["spec"].get("holderIdentity") != "one"
        await ring.in_place({"three"}, timeout=60)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_drain_waits_for_the_handler_and_the_daemons_and_keeps_finalizer_and_history(
    stage: Stage, tmp_path: Path
) -> None:
    ring = await stage.ring()
    shard, drain = ring.labels
    async with programs_on(stage, tmp_path) as programs:
        operators = Operators(programs, ring)
        one = await operators.start("one")
        await ring.create(name="busy", labels={shard: "one"})
        await ring.create(name="idle", labels={shard: "one"})
        await until(lambda: operators.work_of("busy", "one") > 1)
        await operators.until_worked_on({"idle": "one"})
        for name in ("busy", "idle"):
            await stage.admin.patch("v1/secrets", name, {"metadata": {"labels": {drain: "true"}}}, stage.namespace)
        given = await ring.until_on("idle", None)
        assert given["metadata"]["finalizers"] == [FINALIZER]
        assert all(each.end is not None for each in read_spans(operators.chronicle) if each.thing == "idle")
        assert ring.where(await stage.admin.get("v1/secrets", "busy", stage.namespace)) == "one*"
        assert await stage.admin.find(CONFIGMAPS, "busy-one", stage.namespace) is None

        operators.gate.touch()
        given = await ring.until_on("busy", None)
        child = await stage.admin.get(CONFIGMAPS, "busy-one", stage.namespace)
        assert int(child["metadata"]["resourceVersion"]) < int(given["metadata"]["resourceVersion"])
        assert child["metadata"]["labels"][shard] == "one"
        await one.until_it_says("sees busy-one: ")  # what it knows of that by another watch
        spans = len(read_spans(operators.chronicle))

        # Another shard takes it up: for kopf that is no new object and no change, but a start.
        two = await operators.start("two")
        await two.until_it_says("Shard is working")
        await stage.admin.patch("v1/secrets", "idle", {"metadata": {"labels": {shard: "two"}}}, stage.namespace)
        await two.until_it_says("handles idle: resume")
        assert "handles idle: update" not in two.log.read_text()
        assert all(each.shard == "two" for each in read_spans(operators.chronicle)[spans:])
        assert overlaps(read_spans(operators.chronicle)) == []


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_drain_waits_for_the_handlers_and_the_daemons_of_what_the_object_controls(
    stage: Stage, tmp_path: Path
) -> None:
    ring = await stage.ring()
    shard, drain = ring.labels
    async with programs_on(stage, tmp_path) as programs:
        operators = Operators(programs, ring)
        await operators.start("one")
        for name in ("held", "idle"):
            await ring.create(name=name, labels={shard: "one"})
        await operators.until_worked_on({"idle": "one"})
        await until(lambda: operators.work_of("held-one", "one") > 0)
        for name in ("held", "idle"):
            await stage.admin.patch("v1/secrets", name, {"metadata": {"labels": {drain: "true"}}}, stage.namespace)
        await ring.until_on("idle", None)
        assert ring.where(await stage.admin.get("v1/secrets", "held", stage.namespace)) == "one*"

        # Its daemon begins when the handler ends; the drain has begun before.
        operators.gate.touch()
        await ring.until_on("held", None)
        assert operators.work_of("held-one", "one") > 1
        assert all(each.end is not None for each in read_spans(operators.chronicle) if each.thing.startswith("held"))

        # As the sharder does: the child first, then its owner.
        two = await operators.start("two")
        await two.until_it_says("Shard is working")
        for resource, name in ((CONFIGMAPS, "held-one"), ("v1/secrets", "held")):
            await stage.admin.patch(resource, name, {"metadata": {"labels": {shard: "two"}}}, stage.namespace)
        await until(lambda: operators.work_of("held-one", "two") > 1)
        assert overlaps(read_spans(operators.chronicle)) == []


@pytest.mark.timeout(600)
async def test_a_lost_lease_ends_the_operator_without_a_further_write(stage: Stage, tmp_path: Path) -> None:
    async with one_at_work(stage, tmp_path, "busy") as (operators, one):
        await stage.admin.patch(LEASES, "one", TAKEN, stage.namespace)
        assert await one.exit_code() == ExitCode.LEASE_LOST
        operators.gate.touch()
        assert await stage.admin.find(CONFIGMAPS, "busy-one", stage.namespace) is None

        # Its next process waits for the lease, and can be stopped while it does.
        again = await operators.start("one")
        await again.until_it_says("held by shardlease-controller")
        assert await again.stop() == ExitCode.OK


@pytest.mark.timeout(600)
async def test_an_operator_that_slept_longer_than_its_lease_writes_nothing_when_it_wakes(
    stage: Stage, tmp_path: Path
) -> None:
    async with one_at_work(stage, tmp_path, "busy") as (operators, one):
        await one.suspend()
        await stage.admin.patch(LEASES, "one", TAKEN, stage.namespace)
        await asyncio.sleep(5.5)  # longer than its lease; what it sent before has its answer by now
        before = await stage.admin.get("v1/secrets", "busy", stage.namespace)
        operators.gate.touch()
        one.send(signal.SIGCONT)
        assert await one.exit_code() == ExitCode.LEASE_LOST
        assert await stage.admin.find(CONFIGMAPS, "busy-one", stage.namespace) is None
        after = await stage.admin.get("v1/secrets", "busy", stage.namespace)
        assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"], "kopf itself wrote"


@pytest.mark.timeout(600)
async def test_a_handler_that_never_returns_does_not_keep_the_process_past_its_lease(
    stage: Stage, tmp_path: Path
) -> None:
    async with one_at_work(stage, tmp_path, "stuck") as (_, one):
        await stage.admin.patch(LEASES, "one", TAKEN, stage.namespace)
        assert await one.exit_code() == ExitCode.LEASE_LOST
        assert "handlers still run" in one.log.read_text()


async def test_a_handler_for_what_the_ring_does_not_share_is_refused_at_the_start(stage: Stage, tmp_path: Path) -> None:
    await stage.ring()
    operator = tmp_path / "for_pods.py"
    operator.write_text(
        "import kopf\n"
        "from shardsdk import Resource\n"
        "from shardsdk.contrib.kopf import KopfShard\n"
        "@kopf.on.create('pods')\n"
        "def handle(**_): pass\n"
        "secrets = Resource('', 'v1', 'secrets', 'Secret')\n"
        "KopfShard('any', main=[secrets], shard='one').run(clusterwide=True)\n"
    )
    async with programs_on(stage, tmp_path) as programs:
        program = await programs.start("one", str(operator))
        assert await program.exit_code() == ExitCode.CONFIGURATION
        said = program.log.read_text()
        assert "neither in `main` nor in `controlled`" in said
        assert "Traceback" not in said

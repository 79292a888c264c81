"""A sharder that comes while ranges change hands: it waits for whoever is ending work there, and sends them on.

A shard that is named for nothing any more, and whose Lease somebody has deleted, may be at work; nothing but the
RingAssignment tells of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pytest

from sharder.core.cutting import Cut
from sharder.core.lasting import LASTING_SECONDS
from shardsdk.errors import Invalid
from shardsdk.protocol.objects import LEASES
from shardsdk.protocol.ranges import EVERYWHERE, RING_ASSIGNMENTS, SPACE, HashRanges, Named
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import RING, SHARDS
from tests.unit.sharder.ranges.rig import sharder
from tests.unit.sharder.ranges.test_homes import ELSEWHERE, Twins, twins

LOW, HIGH = HashRanges.of((0, SPACE // 2)), HashRanges.of((SPACE // 2, SPACE))


def fixed(**want: HashRanges) -> Cut:
    def cut(named: Named, shards: Collection[str], points: Mapping[int, float], /, **options: Collection[str]) -> Named:
        return Named(named.by, dict(want))

    return cut


def said(world: Twins) -> list[tuple[str, ...]]:
    found = world.ring.stage.server.find(RING_ASSIGNMENTS, RING)
    assert found is not None
    parts = ("start", "shard", "namespace", "from", "to")
    return [tuple(each.get(part, "") for part in parts) for each in found["spec"]["ranges"]]


@in_virtual_time
async def test_what_changes_hands_says_whose_it_was_and_whose_it_is_to_be(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with twins(clock, monkeypatch) as world:
        start, middle = "0x0000000000000000", "0x8000000000000000"
        async with sharder(world.ring.stage, fixed(a=LOW, b=HIGH)):
            a, b, c = (world.start(name) for name in "abc")
            await world.until_held(a, b)
        a.ends_in = b.ends_in = 20
        async with sharder(world.ring.stage, fixed(b=LOW, c=HIGH)):
            await world.ring.stage.pass_time(2)
            assert said(world) == [(start, "", SHARDS, "a", "b"), (middle, "", SHARDS, "b", "c")]
            b.ends_in = 0
            await world.until_held(b, c)
            assert said(world) == [(start, "b", SHARDS, "", ""), (middle, "c", SHARDS, "", "")]


@pytest.mark.parametrize("second", ["", "holds its lease", "has given its lease back"])
@in_virtual_time
async def test_whoever_ends_work_is_waited_for_though_it_is_not_named_and_its_lease_is_gone(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, second: str
) -> None:
    async with twins(clock, monkeypatch) as world:
        async with sharder(world.ring.stage, fixed(a=EVERYWHERE)):
            a, b = world.start("a"), world.start("b")
            await world.until_held(a)
        if second:
            namesake = world.start("a", ELSEWHERE)
            await world.ring.stage.pass_time(5)
            if second == "has given its lease back":
                world.give_back(namesake)
        a.ends_in = 60  # its fence is what ends its work
        a.keeper_slowness = 1e6  # it cannot put back what is taken away
        async with sharder(world.ring.stage, fixed(b=EVERYWHERE)):
            await world.ring.stage.until(lambda: bool(a.holder.ending))
        world.ring.stage.server.delete(LEASES, "a", SHARDS)
        async with sharder(world.ring.stage, fixed(b=EVERYWHERE)):
            await world.until_held(b)
        assert not [each for each in caplog.records if each.name.startswith("sharder.") and each.exc_info]


@pytest.mark.parametrize("fits", [True, False])
@in_virtual_time
async def test_a_definition_that_allows_fewer_ranges_is_written_what_it_takes(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fits: bool
) -> None:
    """Ranges change hands without a word of whose they were; whatever is refused all the same is told."""
    async with twins(clock, monkeypatch) as world:
        server, patch = world.ring.stage.server, world.ring.stage.server.patch

        def patch_one(of: Any, name: str, namespace: str | None, body: Any, *args: Any, **said: Any) -> Any:
            if len(body.get("spec", {}).get("ranges", ())) > 1:
                raise Invalid("spec.ranges: Too many: 2: must have at most 1 items", status=422)
            return patch(of, name, namespace, body, *args, **said)

        async with sharder(world.ring.stage, fixed(a=LOW, b=HIGH)):
            a, b, c = (world.start(name) for name in "abc")
            await world.until_held(a, b)
        monkeypatch.setattr(server, "patch", patch_one)
        aim = {"c": EVERYWHERE} if fits else {"a": HIGH, "b": LOW}
        async with sharder(world.ring.stage, fixed(**aim)) as assignment:
            if fits:
                await world.until_held(c)
            else:
                await world.ring.stage.until(lambda: "crds --apply" in (assignment.summarize().trouble or ""))
        [told] = [each for each in caplog.records if each.name == "sharder.ranges.store"]
        assert "crds --apply" in told.message
        assert told.__dict__["fields"] == "from, to"


@in_virtual_time
async def test_whose_ranges_were_is_left_out_only_where_also_that_is_too_many(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with twins(clock, monkeypatch) as world:
        server, patch, most = world.ring.stage.server, world.ring.stage.server.patch, [1]

        def patch_one(of: Any, name: str, namespace: str | None, body: Any, *args: Any, **said: Any) -> Any:
            if len(body.get("spec", {}).get("ranges", ())) > most[0]:
                raise Invalid(f"spec.ranges: Too many: 2: must have at most {most[0]} items", status=422)
            return patch(of, name, namespace, body, *args, **said)

        async with sharder(world.ring.stage, fixed(a=EVERYWHERE)):
            a, b, c = (world.start(name) for name in "abc")
            await world.until_held(a)
        a.ends_in = 60  # its fence is what ends its work
        a.keeper_slowness = 1e6
        monkeypatch.setattr(server, "patch", patch_one)
        async with sharder(world.ring.stage, fixed(b=LOW, c=HIGH)):
            await world.ring.stage.until(lambda: bool(a.holder.ending))
            assert said(world) == [("0x0000000000000000", "", SHARDS, "a", "")]
        server.delete(LEASES, "a", SHARDS)
        most[0] = 2
        async with sharder(world.ring.stage, fixed(b=LOW, c=HIGH)):
            await world.until_held(b, c)


@in_virtual_time
async def test_a_write_that_is_refused_for_another_reason_is_tried_again_as_it_was(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A ValidatingAdmissionPolicy refuses by 422 unless it says otherwise."""
    async with twins(clock, monkeypatch) as world:
        server, patch, refused = world.ring.stage.server, world.ring.stage.server.patch, list[str]()

        def patch_later(of: Any, name: str, namespace: str | None, body: Any, *args: Any, **said: Any) -> Any:
            if of == RING_ASSIGNMENTS and "spec" in body and not refused:
                refused.append("ValidatingAdmissionPolicy 'x' with binding 'y' denied request: no such key: z")
                raise Invalid(refused[0], status=422, reason="Invalid")
            return patch(of, name, namespace, body, *args, **said)

        async with sharder(world.ring.stage, fixed(a=LOW, b=HIGH)):
            a, b, c = (world.start(name) for name in "abc")
            await world.until_held(a, b)
        a.ends_in = b.ends_in = 60
        a.keeper_slowness = 1e6
        monkeypatch.setattr(server, "patch", patch_later)
        async with sharder(world.ring.stage, fixed(c=EVERYWHERE)):
            await world.ring.stage.until(lambda: bool(a.holder.ending))
            assert {each[3:] for each in said(world)} == {("a", "c"), ("b", "c")}
        server.delete(LEASES, "a", SHARDS)
        async with sharder(world.ring.stage, fixed(c=EVERYWHERE)):
            await world.until_held(c)
        [told] = [each for each in caplog.records if each.__dict__.get("error") in refused]
        assert told.message == "ranges not assigned, will retry"


@in_virtual_time
async def test_nobody_is_told_to_bring_a_definition_up_to_date_that_refuses_nothing(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with twins(clock, monkeypatch) as world:

        def deny(*args: Any, **said: Any) -> Any:
            raise Invalid("ValidatingAdmissionPolicy 'x' with binding 'y' denied request", status=422)

        monkeypatch.setattr(world.ring.stage.server, "create", deny)
        async with sharder(world.ring.stage) as assignment:
            await world.ring.stage.until(
                lambda: "denied request" in (assignment.summarize().trouble or ""), seconds=2 * LASTING_SECONDS
            )
            assert "crds" not in str(assignment.summarize().trouble)


@in_virtual_time
async def test_a_leader_that_comes_in_the_middle_sends_ranges_where_the_last_one_has_begun_to(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def to_the_first(
        named: Named, shards: Collection[str], points: Mapping[int, float], /, **options: Collection[str]
    ) -> Named:
        return Named(named.by, named.shards | {min(shards): named.of(min(shards)) | named.nobodys})

    async with twins(clock, monkeypatch) as world:
        async with sharder(world.ring.stage, fixed(a=EVERYWHERE)):
            a, b = world.start("a"), world.start("b")
            await world.until_held(a)
        a.ends_in = 8
        async with sharder(world.ring.stage, fixed(a=LOW, b=HIGH)):
            await world.ring.stage.until(lambda: bool(a.holder.ending))
        async with sharder(world.ring.stage, to_the_first):
            await world.until_held(a, b)
            assert world.ring.named().shards == {"a": LOW, "b": HIGH}

"""What becomes of a driven shard that is killed, and of what it had begun."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from shardsdk import Context, Operator, PartialObject, Permanent, controller_for
from shardsdk.errors import ConfigurationError, ConnectionFailed
from shardsdk.kinds import ConfigMap, Secret
from shardsdk.protocol.objects import LEASES
from shardsdk.testing import Rig, drive
from tests.shard_rig import CONFIGMAPS, SECRETS

Ctx = Context[PartialObject]
PARTS = ("first", "second", "third")


async def make_parts(context: Ctx) -> None:
    """In three writes, of which each is made once though it may be begun anew."""
    where = context.request.namespace
    for name in PARTS:
        if await context.api.find(CONFIGMAPS, f"{context.request.name}-{name}", where, model=dict) is None:
            await context.api.create(CONFIGMAPS, {"metadata": {"name": f"{context.request.name}-{name}"}}, where)


CONTROLLER = controller_for(SECRETS).reconcile(make_parts)
SECRET: dict[str, Any] = {"metadata": {"name": "a"}}


@pytest.mark.parametrize("writes", [1, 2, 3])
def test_another_shard_does_the_rest(writes: int) -> None:
    async def story(rig: Rig) -> None:
        rig.create(SECRETS, SECRET)
        await rig.crash(after_writes=writes)
        assert [each["metadata"]["name"] for each in rig.objects(CONFIGMAPS)] == [
            f"a-{part}" for part in PARTS[:writes]
        ]
        await rig.take_over()

    rig = drive(CONTROLLER, [], story)
    assert rig.writes == [("create", "configmaps", f"a-{part}") for part in PARTS]
    assert len(rig.objects(CONFIGMAPS)) == len(PARTS)
    assert rig.labels(SECRETS, "a") == {rig.labels_of_ring.shard: "shard-2"}


def test_nothing_is_cleaned_up_and_the_lease_stays() -> None:
    ended: list[str] = []

    async def reconcile(context: Ctx) -> None:
        try:
            await context.api.patch(SECRETS, "a", "default", {"metadata": {"labels": {"begun": "yes"}}})
        finally:
            ended.append(context.request.name)
            await context.api.patch(SECRETS, "a", "default", {"metadata": {"labels": {"ended": "yes"}}})

    async def story(rig: Rig) -> None:
        rig.create(SECRETS, SECRET)
        await rig.crash(after_writes=1)
        await rig.clock.sleep(60)
        assert ended == []
        assert rig.get(LEASES, "shard-1")["spec"]["holderIdentity"] == "shard-1"
        assert rig.outcomes == []

    rig = drive(controller_for(SECRETS).reconcile(reconcile), [], story)
    assert "ended" not in rig.labels(SECRETS, "a")
    assert rig.outcomes == []


def test_what_it_does_while_it_is_cleaned_up_never_was() -> None:
    async def reconcile(context: Ctx) -> None:
        patch = partial(context.api.patch, SECRETS, "a", "default")
        with suppress(asyncio.CancelledError):
            await patch({"metadata": {"labels": {"begun": "yes"}}})
        with suppress(ConnectionFailed):
            await patch({"metadata": {"labels": {"ended": "yes"}}})

    async def story(rig: Rig) -> None:
        rig.create(SECRETS, SECRET)
        await rig.crash(after_writes=1)

    rig = drive(controller_for(SECRETS).reconcile(reconcile), [], story)
    assert rig.writes == [("patch", "secrets", "a")]
    assert rig.outcomes == []


def test_no_object_is_taken_before_the_lease_has_run_out() -> None:
    async def story(rig: Rig) -> None:
        before = rig.clock.monotonic()
        await rig.crash()
        rig.create(SECRETS, SECRET)
        await rig.settle()
        assert rig.outcomes == []
        await rig.take_over()
        assert rig.clock.monotonic() - before > 3000
        assert rig.outcomes == [("a", None)]

    drive(CONTROLLER, [], story)


def test_a_fault_outlives_the_process() -> None:
    async def story(rig: Rig) -> None:
        rig.api.error = Permanent("down")
        await rig.crash()
        assert rig.api.error is not None
        rig.api.error = None
        await rig.api.create(CONFIGMAPS, {"metadata": {"name": "b"}}, "default")

    assert drive(CONTROLLER, [], story).writes == [("create", "configmaps", "b")]


def test_an_elected_operator_is_followed_by_another() -> None:
    operator = Operator("copies", sharded=False)

    @operator.reconcile(Secret, owns=[ConfigMap])
    async def copy(ctx: Context[Secret]) -> None:
        for name in PARTS:
            await ctx.apply(ConfigMap(f"{ctx.name}-{name}"))

    async def story(rig: Rig) -> None:
        rig.create(Secret("a"))
        await rig.crash(after_writes=2)
        assert len(rig.objects(ConfigMap)) == 2
        await rig.take_over()

    assert len(drive(operator, [], story).objects(ConfigMap)) == len(PARTS)


def test_it_crashes_twice() -> None:
    async def story(rig: Rig) -> None:
        for name in "ab":
            rig.create(SECRETS, {"metadata": {"name": name}})
            await rig.crash(after_writes=1)
            await rig.take_over()

    rig = drive(CONTROLLER, [], story)
    assert rig.labels(SECRETS, "a") == {rig.labels_of_ring.shard: "shard-3"}
    assert len(rig.objects(CONFIGMAPS)) == 2 * len(PARTS)


def test_what_cannot_crash_says_so() -> None:
    async def too_many(rig: Rig) -> None:
        rig.create(SECRETS, SECRET)
        await rig.crash(after_writes=4)

    async def twice(rig: Rig) -> None:
        await rig.crash()
        await rig.crash()

    async def never(rig: Rig) -> None:
        await rig.take_over()

    for story, said in ((too_many, "after 3 writes"), (twice, "has crashed before"), (never, "has not crashed")):
        with pytest.raises(AssertionError, match=said):
            drive(CONTROLLER, [], story)

    def plain(context: Ctx) -> None: ...

    async def crash(rig: Rig) -> None:
        await rig.crash()

    with pytest.raises(ConfigurationError, match="write them async"):
        drive(controller_for(SECRETS).reconcile(plain), [], crash)

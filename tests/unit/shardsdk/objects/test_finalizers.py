"""Finalizers: there before work begins, gone only after the clean-up, and nobody else's is touched."""

from __future__ import annotations

import asyncio

import pytest

from shardsdk.errors import ConfigurationError, Conflict, NotServed
from shardsdk.objects.finalizers import add_finalizer, finalizing, remove_finalizer
from shardsdk.protocol.objects import PartialObject
from shardsdk.reconcile.context import Context
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import SECRETS, Rig

MINE = "example.com/bucket"
NO_FINALIZERS = (
    "Example.com/bucket",
    "example.com/my bucket",
    "example.com/",
    "/bucket",
    "example.com/a/b",
    f"example.com/{'a' * 64}",
    f"{'a' * 254}/b",
)


def finalizers(rig: Rig, name: str = "a") -> list[str]:
    found: list[str] = rig.server.get(SECRETS, name, "default")["metadata"].get("finalizers") or []
    return found


@in_virtual_time
async def test_the_finalizer_is_there_before_work_begins_and_goes_after_the_clean_up(clock: VirtualClock) -> None:
    rig = Rig(clock)
    story: list[str] = []

    async def clean_up() -> None:
        story.append(f"cleaned up under {finalizers(rig)}")

    async def reconcile(context: Context[PartialObject]) -> None:
        if not await finalizing(context, MINE, clean_up):
            story.append(f"worked under {finalizers(rig)}")

    rig.secret("a")
    async with rig.shard(reconcile):
        await asyncio.sleep(1)
        rig.server.delete(SECRETS, "a", "default")
        await asyncio.sleep(1)
    assert set(story[:-1]) == {f"worked under ['{MINE}']"}
    assert story[-1] == f"cleaned up under ['{MINE}']"
    assert rig.server.find(SECRETS, "a", "default") is None


@in_virtual_time
async def test_a_clean_up_that_fails_keeps_the_object_and_runs_again(clock: VirtualClock) -> None:
    rig = Rig(clock)
    attempts: list[bool] = []

    async def clean_up() -> None:
        attempts.append(rig.server.find(SECRETS, "a", "default") is not None)
        if len(attempts) < 3:
            raise OSError("the bucket is not empty")

    async def reconcile(context: Context[PartialObject]) -> None:
        await finalizing(context, MINE, clean_up)

    rig.secret("a", finalizers=[MINE, "example.com/other"])
    async with rig.shard(reconcile):
        await asyncio.sleep(1)
        rig.server.delete(SECRETS, "a", "default")
        await asyncio.sleep(60)
    assert attempts == [True, True, True]
    assert finalizers(rig) == ["example.com/other"]


@in_virtual_time
async def test_what_is_there_is_not_written_again(clock: VirtualClock) -> None:
    rig = Rig(clock)
    told: list[bool] = []

    async def reconcile(context: Context[PartialObject]) -> None:
        told.append(await add_finalizer(context, MINE))
        told.append(await add_finalizer(context, MINE))
        told.append(await remove_finalizer(context, "example.com/none"))

    rig.secret("a", finalizers=["example.com/other"])
    async with rig.shard(reconcile):
        await asyncio.sleep(1)
    assert told[:3] == [True, False, False]
    assert True not in told[3:]
    assert finalizers(rig) == ["example.com/other", MINE]
    assert [write for write in rig.api.writes if write[0] == "patch"] == [("patch", "secrets", "a")]


@in_virtual_time
async def test_a_finalizer_that_someone_else_adds_meanwhile_stays(clock: VirtualClock) -> None:
    rig = Rig(clock)
    errors: list[type[Exception]] = []

    async def reconcile(context: Context[PartialObject]) -> None:
        if not errors:
            rig.server.patch(SECRETS, "a", "default", {"metadata": {"finalizers": ["example.com/other"]}})
        try:
            await add_finalizer(context, MINE)
        except Conflict as error:
            errors.append(type(error))
            raise

    rig.secret("a")
    async with rig.shard(reconcile):
        await asyncio.sleep(10)
    assert errors == [Conflict]
    assert finalizers(rig) == ["example.com/other", MINE]


@in_virtual_time
async def test_it_builds_on_what_this_reconcile_has_written_itself(clock: VirtualClock) -> None:
    rig = Rig(clock)

    async def reconcile(context: Context[PartialObject]) -> None:
        if not context.metadata.finalizers:
            body = {"metadata": {"finalizers": ["example.com/by-hand"]}}
            await context.api.patch(SECRETS, "a", "default", body)
            await add_finalizer(context, MINE)

    rig.secret("a")
    async with rig.shard(reconcile):
        await asyncio.sleep(1)
    assert finalizers(rig) == ["example.com/by-hand", MINE]


@in_virtual_time
async def test_a_type_that_is_not_served_for_a_while_leaves_no_object_behind(clock: VirtualClock) -> None:
    """When it is served again, the object is there in the version that is known: no news bring the reconcile back."""
    rig = Rig(clock)

    def refuse(verb: str, resource: object, old: object, new: dict[str, object]) -> dict[str, object]:
        raise NotServed("404 page not found", status=404)

    async def clean_up() -> None:
        pass

    async def reconcile(context: Context[PartialObject]) -> None:
        await finalizing(context, MINE, clean_up)

    rig.secret("a", finalizers=[MINE])
    async with rig.shard(reconcile):
        await asyncio.sleep(1)
        rig.server.delete(SECRETS, "a", "default")
        rig.server.admit = refuse
        await asyncio.sleep(30)
        rig.server.admit = lambda verb, resource, old, new: new
        await asyncio.sleep(120)
        assert rig.server.find(SECRETS, "a", "default") is None


@in_virtual_time
async def test_nothing_is_added_to_an_object_that_is_being_deleted(clock: VirtualClock) -> None:
    rig = Rig(clock)
    told: list[bool] = []

    async def reconcile(context: Context[PartialObject]) -> None:
        told.append(await add_finalizer(context, MINE))
        told.append(await finalizing(context, MINE, asyncio.Event().wait))

    rig.secret("a", finalizers=["example.com/other"])
    rig.server.delete(SECRETS, "a", "default")
    async with rig.shard(reconcile):
        await asyncio.sleep(1)
    assert told == [False, True]
    assert finalizers(rig) == ["example.com/other"]


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("bucket", "write a domain of yours in front, as in example.com/bucket"),
        *((name, "write a domain in lower case, `/`, and up to 63 letters,") for name in NO_FINALIZERS),
    ],
)
@in_virtual_time
async def test_a_name_that_no_api_server_takes_is_refused_with_a_remedy(
    clock: VirtualClock, name: str, remedy: str
) -> None:
    rig = Rig(clock)
    messages: list[str] = []

    async def reconcile(context: Context[PartialObject]) -> None:
        with pytest.raises(ConfigurationError) as caught:
            await add_finalizer(context, name)
        messages.append(str(caught.value))

    rig.secret("a")
    async with rig.shard(reconcile):
        await asyncio.sleep(1)
    (message,) = messages
    assert message.startswith(f"{name!r} is no finalizer: {remedy}")

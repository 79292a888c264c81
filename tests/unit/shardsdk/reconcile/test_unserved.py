"""Answers that say nothing of an object: its type is not served for a while, another one is not there, all is busy."""

from __future__ import annotations

import logging

import pytest

from shardsdk.errors import ApiError, NotServed, ServerError, TooManyRequests
from shardsdk.kube import absence
from shardsdk.kube.answers import Status, StatusDetails, Target, explain_status
from shardsdk.protocol.objects import GroupResource
from shardsdk.reconcile.drains import RETRY, TELL_SECONDS, UNSERVED_SECONDS, Unserved
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import RING, Rig


@in_virtual_time
async def test_what_is_not_served_for_a_while_is_given_away_when_it_is_again(clock: VirtualClock) -> None:
    """Then a list shows the object in the version that is known, so no news of it bring it back."""
    rig = Rig(clock)
    rig.secret("mine")

    def refuse(verb: str, resource: object, old: object, new: dict[str, object]) -> dict[str, object]:
        raise NotServed("404 page not found", status=404)

    async with rig.shard(owns=False):
        await clock.sleep(5)
        rig.drain("mine")
        rig.server.admit = refuse
        await clock.sleep(3)
        assert RING.drain in rig.labels("mine")
        rig.server.admit = lambda verb, resource, old, new: new
        await clock.sleep(4)
        assert rig.labels("mine") == {}


@in_virtual_time
async def test_the_next_try_is_as_far_off_as_it_has_not_been_served(clock: VirtualClock) -> None:
    unserved = Unserved(clock)
    await clock.sleep(1000)
    for served_again in (unserved.over, lambda: clock.sleep(2 * UNSERVED_SECONDS + 1)):
        waited = [unserved.again_in()]
        for _ in range(3):
            await clock.sleep(10)
            waited.append(unserved.again_in())
        assert waited == [RETRY.base_seconds, 10, 20, UNSERVED_SECONDS]
        await clock.sleep(20)
        assert unserved.again_in() == UNSERVED_SECONDS
        if (passing := served_again()) is not None:
            await passing
    assert unserved.again_in() == RETRY.base_seconds


@in_virtual_time
async def test_what_is_not_served_any_more_is_tried_and_told_now_and_then(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing tells of the end of its objects, if the watch was away when it came."""
    caplog.set_level(logging.WARNING)
    tried = 0

    def refuse(verb: str, resource: object, old: object, new: dict[str, object]) -> dict[str, object]:
        nonlocal tried
        tried += 1
        raise NotServed("404 page not found", status=404)

    rig = Rig(clock)
    names = [f"m{number}" for number in range(30)]
    for name in names:
        rig.secret(name)
    async with rig.shard(owns=False):
        await clock.sleep(5)
        for name in names:
            rig.drain(name)
        rig.server.admit = refuse
        await clock.sleep(120)
        tried = 0
        await clock.sleep(600)
        assert tried <= len(names) * (600 / UNSERVED_SECONDS + 1)
        rig.server.admit = lambda verb, resource, old, new: new
        await clock.sleep(UNSERVED_SECONDS + 1)
        assert [rig.labels(name) for name in names] == [{}] * len(names)
    assert {record.msg for record in caplog.records} == {"Could not acknowledge a drain: %s"}
    assert len(caplog.records) <= 720 / TELL_SECONDS + 1


ROLE_GONE = Status(404, "NotFound", 'rolebindings "reader" not found', StatusDetails("reader", "rolebindings"))


@pytest.mark.parametrize("name", ["mine", "reader"])
def test_what_cannot_be_written_without_another_object_is_given_away_once_that_is_there(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A RoleBinding whose Role is gone, to whoever may not bind any: it is there, also if both are called the same."""
    monkeypatch.setattr(absence, "_BINDINGS", (GroupResource("", "secrets"),))
    target = Target("patch", "rbac.authorization.k8s.io", "rolebindings", "default", name)

    def refuse(verb: str, resource: object, old: object, new: dict[str, object]) -> dict[str, object]:
        raise explain_status(target, ROLE_GONE)

    @in_virtual_time
    async def drained(clock: VirtualClock) -> None:
        rig = Rig(clock)
        rig.secret(name)
        async with rig.shard(owns=False):
            await clock.sleep(5)
            rig.drain(name)
            rig.server.admit = refuse
            await clock.sleep(30)
            assert RING.drain in rig.labels(name)
            rig.server.admit = lambda verb, resource, old, new: new
            await clock.sleep(15)
            assert rig.labels(name) == {}

    drained()


@in_virtual_time
@pytest.mark.parametrize("error", [ServerError, TooManyRequests])
async def test_an_acknowledgement_comes_back_soon_whatever_an_answer_asks(
    clock: VirtualClock, error: type[ApiError]
) -> None:
    """Nobody works on its object meanwhile."""
    rig = Rig(clock)
    rig.secret("mine")
    async with rig.shard():
        await clock.sleep(5)
        rig.api.error = error("no", retry_after_seconds=60)
        rig.drain("mine")
        await clock.sleep(1)
        rig.api.error = None
        await clock.sleep(10)
        assert rig.labels("mine") == {}

"""Single children that are about to follow their owners when the families of those begin to move."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sharder.core.ringspec import Role
from sharder.placement.followers import Followers
from sharder.placement.slots import WRITE_SECONDS
from shardsdk.errors import Conflict, ConnectionFailed, FenceClosed, Forbidden, TooManyRequests, Unauthorized
from shardsdk.kube.clock import Clock, SystemClock
from shardsdk.testing.memory import Change
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.refusing import changes_of
from tests.unit.sharder.placement.stage import (
    CHILDREN,
    LABELS,
    OWNERS,
    SETTINGS,
    SlowApi,
    Stage,
    leading,
    make_stage,
    names_on,
    ring,
    thing,
)


class SlowToAnswer(SlowApi):
    """Some patches have no answer, but are executed; what one read found is told when the test says so."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.silent: set[str] = set()
        self.told_late = ""
        self.asked, self.tell = asyncio.Event(), asyncio.Event()

    async def patch(self, resource: Any, name: str, namespace: str | None, body: Any, **more: Any) -> Any:
        if name not in self.silent:
            return await super().patch(resource, name, namespace, body, **more)
        self.silent.discard(name)
        # It was sent, and its connection breaks: it may be executed as long as it could have been answered.
        write = asyncio.ensure_future(super().patch(resource, name, namespace, body, **more))
        write.add_done_callback(lambda done: done.exception())
        await asyncio.sleep(0)
        raise ConnectionFailed(f"patch {name}: connection reset")

    async def find(self, resource: Any, name: str, namespace: str | None = None, **more: Any) -> Any:
        found = await super().find(resource, name, namespace, **more)
        if name == self.told_late:
            self.told_late = ""
            self.asked.set()
            await self.tell.wait()
        return found


def astray(clock: VirtualClock) -> tuple[Stage, SlowToAnswer, str]:
    """An owner on shard a, beside shard b where its child will be, somehow (restored, adopted)."""
    stage = make_stage(clock, api=SlowToAnswer)
    assert isinstance(stage.api, SlowToAnswer)
    stage.set_up(ring(), "a", "b")
    [owner] = names_on("a", "a", "b")
    return stage, stage.api, owner


async def until_child_is_sent_after(stage: Stage, owner: str) -> None:
    """Have a child of `owner` on shard b; return when it is on its way to shard a."""
    await stage.until(lambda: stage.condition("Settled") == "True")
    stage.create(CHILDREN, thing("child", shard="b", owner=stage.server.get(OWNERS, owner, "default")))
    before = stage.patches(CHILDREN)
    await stage.until(lambda: stage.patches(CHILDREN) > before, seconds=SETTINGS.sync_period_seconds + 60)


def order_of(stage: Stage, *names: str) -> list[tuple[str, str | None]]:
    """Which of these objects came to which shard, one after the other; filled as it happens."""
    found: list[tuple[str, str | None]] = []

    def look(change: Change) -> None:
        if change.old is None or change.new is None or (name := change.new["metadata"]["name"]) not in names:
            return
        before, after = ((each["metadata"].get("labels") or {}).get(LABELS.shard) for each in (change.old, change.new))
        if before != after:
            found.append((name, after))

    stage.server.listeners.append(look)
    return found


@pytest.mark.parametrize("answered", [True, False])
def test_an_owner_does_not_come_to_a_shard_that_its_child_is_being_taken_from(answered: bool) -> None:
    """What was decided by where the owner was before is executed before the owner is there, or never."""

    @in_virtual_time
    async def scenario(clock: VirtualClock) -> None:
        stage, api, name = astray(clock)
        stage.create(OWNERS, thing(name, shard="a"))
        async with leading(stage):
            api.slow = {CHILDREN.plural: 3.0}
            api.silent = set() if answered else {"child"}
            await until_child_is_sent_after(stage, name)
            order = order_of(stage, name, "child")
            stage.release("a")
            await stage.until(lambda: stage.label(OWNERS, name) == "b")
            await stage.pass_time(10)
            assert order == [("child", "a"), ("child", "b"), (name, "b")]

    scenario()


@in_virtual_time
async def test_where_an_owner_was_says_nothing_once_its_family_has_begun(clock: VirtualClock) -> None:
    """Told late, it is not where the owner is any more, and the family has left the child where it was."""
    stage, api, name = astray(clock)
    owner = stage.create(OWNERS, thing(name, shard="a"))
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        api.told_late = name
        stage.create(CHILDREN, thing("child", shard="b", owner=owner))
        await api.asked.wait()
        changes = changes_of(stage, "child")
        stage.release("a")
        await stage.until(lambda: stage.label(OWNERS, name) == "b")
        stage.start("a")
        await stage.until(lambda: stage.draining(OWNERS, name))  # a is there again, and it belongs there
        api.tell.set()
        await stage.pass_time(10)
        assert stage.label(OWNERS, name) == "b"
        assert changes == []


class Settling:
    """Stands for an Api; its writes settle when they are told to."""

    def __init__(self) -> None:
        self.asked, self.settle = asyncio.Event(), asyncio.Event()

    async def writes_settled(self) -> None:
        self.asked.set()
        await self.settle.wait()


def followers(clock: Clock | None = None) -> tuple[Followers, Settling]:
    api: Any = Settling()
    return Followers(api, clock or SystemClock()), api


def send(each: Followers, error: BaseException) -> None:
    """Have the write of a child end so."""
    with each.follow("owner") as child:
        child.send()
        raise error


async def test_a_child_whose_owners_family_begins_is_not_sent_any_more() -> None:
    each, _ = followers()
    with each.follow("owner") as child, each.follow("other") as stranger:
        each.begin("owner")
        each.end("owner")
        stranger.send()
        with pytest.raises(Conflict):
            child.send()
        await each.settled("owner")


async def test_a_child_that_is_looked_at_while_the_family_moves_is_overtaken_from_the_start() -> None:
    each, _ = followers()
    each.begin("owner")
    with each.follow("owner") as child:
        assert child.overtaken
    each.end("owner")
    with each.follow("owner") as child:
        assert not child.overtaken


async def test_a_family_waits_for_the_children_that_were_sent() -> None:
    each, _ = followers()
    with each.follow("owner") as first, each.follow("owner") as second:
        first.send()
        second.send()
        each.begin("owner")
        waiting = asyncio.ensure_future(each.settled("owner"))
        await asyncio.sleep(0)
        assert not waiting.done()
    await waiting


async def test_the_end_of_another_owners_child_ends_no_such_wait() -> None:
    each, _ = followers()
    with each.follow("owner") as child:
        child.send()
        each.begin("owner")
        waiting = asyncio.ensure_future(each.settled("owner"))
        await asyncio.sleep(0)
        with each.follow("other") as stranger:
            stranger.send()
        for _ in range(5):  # turns of the loop, for whoever waits to look again
            await asyncio.sleep(0)
        assert not waiting.done()
    await waiting


@pytest.mark.parametrize("error", [ConnectionFailed("no answer"), asyncio.CancelledError()])
async def test_what_had_no_answer_is_waited_for_until_it_cannot_be_executed(error: BaseException) -> None:
    each, api = followers()
    with pytest.raises(type(error)):
        send(each, error)
    await each.settled("other")
    waiting = asyncio.ensure_future(each.settled("owner"))
    await api.asked.wait()
    assert not waiting.done()
    api.settle.set()
    await waiting
    api.asked.clear()
    await each.settled("owner")
    assert not api.asked.is_set()


@in_virtual_time
async def test_writes_of_others_that_hang_are_not_waited_for(clock: VirtualClock) -> None:
    each, api = followers(clock)
    with pytest.raises(ConnectionFailed):
        send(each, ConnectionFailed("no answer"))
    sent = clock.monotonic()
    await clock.sleep(1)
    await each.settled("owner")
    assert not api.settle.is_set()
    assert clock.monotonic() - sent == pytest.approx(WRITE_SECONDS[Role.CONTROLLED])


@pytest.mark.parametrize(
    "error",
    [
        Conflict("somebody was faster"),
        FenceClosed("the hold has run out"),
        Forbidden("no rule", status=403),
        TooManyRequests("later", status=429),
        Unauthorized("who is that", status=401),
    ],
)
async def test_what_was_refused_is_not_waited_for(error: Exception) -> None:
    each, api = followers()
    with pytest.raises(type(error)):
        send(each, error)
    await each.settled("owner")
    assert not api.asked.is_set()

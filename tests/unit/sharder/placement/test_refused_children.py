"""An owner of which a child cannot go along stays with the shard that works on it, and people are told of the child."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import quote, unquote

import msgspec
import pytest

from sharder.core.lasting import LASTING_SECONDS
from sharder.placement import families, label_writer, rejections
from sharder.placement.slots import Slots
from sharder.placement.transit import FIRST_PLACES
from sharder.rings.status import REFUSED
from shardsdk.errors import BadRequest, Forbidden, NotFound, ServerError, ShardingError
from shardsdk.kube.api import RawRequest
from shardsdk.kube.reflector import Reflector
from shardsdk.protocol.objects import CLUSTERRINGS, RBAC_GROUP, GroupResource, Resource
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.families import split_families
from tests.unit.sharder.placement.refusing import Changes, changes_of
from tests.unit.sharder.placement.stage import (
    CHILDREN,
    LABELS,
    OWNERS,
    SETTINGS,
    Stage,
    leading,
    make_stage,
    names_on,
    ring,
    thing,
)
from tests.unit.sharder.placement.test_transit import Transits, acknowledging, at_once

ROLES: Final = Resource(RBAC_GROUP, "v1", "roles", "Role")
BINDINGS: Final = Resource(RBAC_GROUP, "v1", "rolebindings", "RoleBinding")
ESCALATES: Final = Forbidden("it is attempting to grant RBAC permissions not currently held", status=403)


class Guarded(MemoryApi):
    """Whoever changes a child of some names is answered by an error, be it a dry run; those are counted."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.served += [ROLES, BINDINGS]
        self.answers: dict[str, ShardingError] = {}
        self.dry_runs: list[str] = []
        #: How long a dry run takes.
        self.seconds = 0.0

    async def exchange(self, request: RawRequest) -> bytes:
        assert (request.method, request.query) == ("PATCH", [("dryRun", "All")])
        assert [*msgspec.json.decode(request.body or b"")["metadata"]["labels"]] == [LABELS.shard]
        name = unquote(request.path.rpartition("/")[2])
        self.dry_runs.append(request.path)
        await asyncio.sleep(self.seconds)
        if name in self.answers:
            raise self.answers[name]
        return b"{}"

    async def patch(self, resource: Any, name: str, namespace: str | None, body: Any, **more: Any) -> Any:
        if name in self.answers and resource != OWNERS:
            raise self.answers[name]
        return await super().patch(resource, name, namespace, body, **more)


def staged(
    clock: VirtualClock, child: Resource, *others: Resource, owned: int = 1, more: tuple[str, ...] = ()
) -> tuple[Stage, Guarded, list[str]]:
    """Owners on shard one that belong to two once that is there, each with a child of its name.

    And with others called `more` after that.
    """
    stage = make_stage(clock, api=Guarded)
    assert isinstance(stage.api, Guarded)
    controls = [{"group": each.group, "resource": each.plural} for each in (child, *others)]
    stage.create(
        CLUSTERRINGS, ring({"group": OWNERS.group, "resource": OWNERS.plural, "controlledResources": controls})
    )
    stage.start("one")
    names = names_on("two", "one", "two", count=owned)
    for name in names:
        owner = stage.create(OWNERS, thing(name, shard="one"))
        for ending in ("", *more):
            stage.create(child, thing(name + ending, shard="one", owner=owner))
    return stage, stage.api, names


async def scale_out(stage: Stage, name: str) -> Changes:
    """Have a second shard join; returns where the owner `name` goes then."""
    await stage.until(lambda: stage.condition("Settled") == "True")
    changes = changes_of(stage, name)
    stage.start("two")
    return changes


async def assert_it_stays(stage: Stage, name: str) -> None:
    """Have a second shard join, to which the owner `name` may not go."""
    await scale_out(stage, name)
    await stage.until(lambda: bool(stage.events.of(REFUSED)))
    await stage.pass_time(20)
    assert not stage.draining(OWNERS, name)


def moves(stage: Stage, name: str) -> Callable[[], bool]:
    """Whether an owner is on shard two; its shard lets it go as soon as it is asked to."""

    def look() -> bool:
        if stage.draining(OWNERS, name) and stage.label(OWNERS, name) == "one":
            stage.acknowledge(name)
        return stage.label(OWNERS, name) == "two"

    return look


@in_virtual_time
async def test_an_owner_stays_with_its_shard_until_its_child_may_go_along(clock: VirtualClock) -> None:
    stage, api, (stuck, free) = staged(clock, ROLES, owned=2)
    api.answers[stuck] = ESCALATES
    split = split_families(stage)
    async with leading(stage):
        changes = await scale_out(stage, stuck)
        await stage.until(lambda: bool(stage.events.of(REFUSED)))
        await stage.until(moves(stage, free))
        await stage.pass_time(300)
        assert (stage.label(OWNERS, stuck), stage.draining(OWNERS, stuck), changes) == ("one", False, [])
        assert stage.events.of(REFUSED)[0].startswith(
            f"roles.{RBAC_GROUP} default/{stuck} cannot be given to shard two: "
        )
        assert "PlacementRefused" in stage.message("Settled")
        api.answers.clear()
        await stage.until(moves(stage, stuck), seconds=70)
        await stage.until(lambda: stage.condition("Settled") == "True")
        assert not split


@in_virtual_time
async def test_what_stays_holds_up_no_other(clock: VirtualClock) -> None:
    """Nor is it asked about all the time."""
    stage, api, names = staged(clock, ROLES, owned=40)
    *stuck, free = names
    api.answers |= dict.fromkeys(stuck, ESCALATES)
    async with leading(stage):
        await scale_out(stage, free)
        await stage.until(moves(stage, free), seconds=10)
        await stage.pass_time(300)
        api.dry_runs.clear()
        await stage.pass_time(300)
        assert len(api.dry_runs) <= 6 * len(stuck)
        assert {stage.label(OWNERS, name) for name in stuck} == {"one"}


@pytest.mark.parametrize(
    "answer",
    [
        BadRequest('admission webhook "w" does not support dry run', status=400),
        NotFound("it is gone", status=404),
    ],
)
@in_virtual_time
async def test_an_owner_moves_where_a_dry_run_tells_nothing(clock: VirtualClock, answer: ShardingError) -> None:
    stage, api, [name] = staged(clock, ROLES)
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        api.answers[name] = answer
        stage.start("two")
        await stage.until(lambda: stage.draining(OWNERS, name))
        assert len(api.dry_runs) == 1


@in_virtual_time
async def test_an_owner_waits_with_its_shard_while_nobody_answers(clock: VirtualClock) -> None:
    stage, api, [name] = staged(clock, ROLES)
    api.answers[name] = ServerError("not now", status=500)
    async with leading(stage):
        await scale_out(stage, name)
        await stage.pass_time(20)
        assert not stage.draining(OWNERS, name)
        assert not stage.events.of(REFUSED)
        api.answers.clear()
        await stage.until(moves(stage, name), seconds=70)


@in_virtual_time
async def test_a_binding_whose_role_is_not_there_keeps_its_owner(clock: VirtualClock) -> None:
    """The API server says that the binding is not there."""
    stage, api, [name] = staged(clock, BINDINGS)
    api.answers[name] = NotFound(f'roles "{name}" not found', status=404)
    async with leading(stage):
        await scale_out(stage, name)
        await stage.until(lambda: bool(stage.events.of(REFUSED)))
        assert "create that, or grant bind on roles" in stage.events.of(REFUSED)[0]
        assert not stage.draining(OWNERS, name)


@pytest.mark.parametrize("ending", ["", "-1", "-2?#"])
@in_virtual_time
async def test_one_of_its_children_keeps_an_owner_whichever_it_is(clock: VirtualClock, ending: str) -> None:
    """Names of roles may have any character but slashes and percent signs."""
    stage, api, [name] = staged(clock, ROLES, more=("-1", "-2?#"))
    api.answers[name + ending] = ESCALATES
    async with leading(stage):
        await assert_it_stays(stage, name)
        assert f"/{name}{ending} cannot be given to shard two" in stage.events.of(REFUSED)[0]
        assert api.dry_runs[-1].endswith("/" + quote(name + ending))


@in_virtual_time
async def test_a_kind_that_cannot_be_watched_hides_no_child_of_another(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, api, [name] = staged(clock, ROLES, CHILDREN)
    api.answers[name] = ESCALATES
    run = Reflector.run

    async def hang(reflector: Reflector[Any]) -> None:
        if reflector.name.endswith(f"{CHILDREN.plural}/families"):
            await asyncio.Event().wait()
        await run(reflector)

    monkeypatch.setattr(Reflector, "run", hang)
    async with leading(stage):
        await assert_it_stays(stage, name)


@in_virtual_time
async def test_too_many_children_of_one_kind_hide_no_child_of_another(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(families, "MAX_CHILDREN", 1)
    stage, api, [name] = staged(clock, ROLES, CHILDREN)
    owner = stage.server.find(OWNERS, name, "default")
    for number in range(3):
        stage.create(CHILDREN, thing(f"child-{number}", shard="one", owner=owner))
    api.answers[name] = ESCALATES
    async with leading(stage):
        await assert_it_stays(stage, name)


@in_virtual_time
async def test_an_owner_is_not_asked_back_for_a_shard_that_goes_before_all_is_known(clock: VirtualClock) -> None:
    stage, api, [name] = staged(clock, ROLES)
    api.seconds = 4.0
    async with leading(stage):
        await scale_out(stage, name)
        await stage.until(lambda: bool(api.dry_runs))
        stage.release("two")
        for _ in range(300):
            await stage.pass_time(0.1)
            assert not stage.draining(OWNERS, name)


@in_virtual_time
async def test_however_long_that_takes_no_more_owners_drain_than_may(clock: VirtualClock) -> None:
    stage, api, names = staged(clock, ROLES, owned=30, more=("-1", "-2", "-3"))
    api.seconds = 4.0
    async with leading(stage):
        await scale_out(stage, names[0])
        most = 0
        for _ in range(200):
            await stage.pass_time(1)
            most = max(most, sum(stage.draining(OWNERS, name) for name in names))
        assert most == SETTINGS.concurrent_moves // 2 - 1  # the share of one shard of two, less what is left to others
        await stage.until(lambda: not [name for name in names if not moves(stage, name)()], seconds=300)


class Counted(Slots):
    """Counts the requests that have a place."""

    placed = 0

    @asynccontextmanager
    async def of(self, resource: GroupResource) -> AsyncIterator[None]:
        async with super().of(resource):
            Counted.placed += 1
            yield


@in_virtual_time
async def test_a_dry_run_has_a_place_among_the_writes(clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resource that does not answer takes no more of them for dry runs than for writes."""
    monkeypatch.setattr(label_writer, "Slots", Counted)
    stage, api, [name] = staged(clock, ROLES)
    api.answers[name] = ESCALATES
    async with leading(stage):
        await scale_out(stage, name)
        before = Counted.placed
        await stage.until(lambda: bool(api.dry_runs))
        assert Counted.placed == before + 1


@in_virtual_time
async def test_of_other_kinds_nothing_is_asked(clock: VirtualClock) -> None:
    stage, api, [name] = staged(clock, CHILDREN)
    async with leading(stage):
        await scale_out(stage, name)
        await stage.until(moves(stage, name))
        assert not api.dry_runs


@in_virtual_time
async def test_once_one_of_a_kind_was_refused_no_more_owners_lose_their_shard_for_it(clock: VirtualClock) -> None:
    """Those whose children may go along move meanwhile, and all do when nothing is refused any more."""
    stage, api, names = staged(clock, CHILDREN, owned=6 * FIRST_PLACES)
    free, stuck = names[::6], [name for number, name in enumerate(names) if number % 6]
    transits, split = Transits(stage), split_families(stage)
    async with leading(stage, dataclasses.replace(SETTINGS, concurrent_moves=len(names))):
        await stage.until(lambda: stage.condition("Settled") == "True")
        acknowledging(stage, at_once)
        api.answers |= dict.fromkeys(stuck, Forbidden("a policy says no", status=403))
        stage.start("two")
        await stage.until(lambda: all(stage.label(OWNERS, name) == "two" for name in free), seconds=60)
        await stage.pass_time(300)
        assert 0 < len(transits.now) <= FIRST_PLACES
        assert all(stage.label(OWNERS, name) == "one" for name in set(stuck) - transits.now)
        assert "PlacementRefused" in stage.message("Settled")
        api.answers.clear()
        await stage.until(lambda: all(stage.label(OWNERS, name) == "two" for name in names), seconds=120)
        assert not split


@in_virtual_time
async def test_a_kind_of_which_something_has_failed_for_long_is_asked_about_as_well(clock: VirtualClock) -> None:
    stage, api, [name] = staged(clock, CHILDREN)
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        api.answers["new"] = ServerError("a webhook is away", status=500)
        stage.create(CHILDREN, thing("new", owner=stage.create(OWNERS, thing("new"))))
        await stage.pass_time(2 * LASTING_SECONDS)
        assert not api.dry_runs
        stage.start("two")
        await stage.until(moves(stage, name))
        assert [path.rpartition("/")[2] for path in api.dry_runs] == [name]


@in_virtual_time
async def test_what_was_refused_long_ago_is_asked_about_no_more(clock: VirtualClock) -> None:
    stage, api, names = staged(clock, CHILDREN, owned=2)
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        acknowledging(stage, at_once)
        api.answers[names[0]] = Forbidden("a policy says no", status=403)
        stage.start("two")
        await stage.pass_time(20)
        api.answers.clear()
        await stage.until_settled()
        await stage.pass_time(rejections.LATELY_SECONDS)
        asked = len(api.dry_runs)
        stage.release("two")
        await stage.until(lambda: all(stage.label(OWNERS, name) == "one" for name in names))
        stage.start("two")
        await stage.until(lambda: all(stage.label(OWNERS, name) == "two" for name in names))
        assert len(api.dry_runs) == asked

"""An API server that refuses some writes, or lets something happen just before them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardsdk.errors import Invalid
from shardsdk.protocol.objects import CLUSTERRINGS
from shardsdk.testing.memory import Change
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock
from tests.unit.sharder.placement.families import create_family
from tests.unit.sharder.placement.stage import CHILDREN, LABELS, Stage, make_stage, names_on, ring

Changes = list[tuple[str | None, str | None]]


class Interrupted(MemoryApi):
    """Just before the first patch of an object is sent something else happens; some objects cannot be written."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.before: dict[str, Callable[[], None]] = {}
        self.refused: set[str] = set()

    async def patch(self, resource: Any, name: str, namespace: str | None, body: Any, **more: Any) -> Any:
        self.before.pop(name, lambda: None)()
        if name in self.refused:
            raise Invalid(f"patch {name}: an admission policy refuses it", status=422)
        return await super().patch(resource, name, namespace, body, **more)


def staged(clock: VirtualClock, *shards: str) -> tuple[Stage, Interrupted]:
    """A ring of owners with children, and `shards`."""
    stage = make_stage(clock, api=Interrupted)
    assert isinstance(stage.api, Interrupted)
    stage.create(CLUSTERRINGS, ring(), None)
    for shard in shards:
        stage.start(shard)
    return stage, stage.api


def changes_of(stage: Stage, name: str) -> Changes:
    """The shards that an object, owner or child, was on and is on; filled as they change."""
    found: Changes = []

    def look(change: Change) -> None:
        if change.old is None or change.new is None or change.new["metadata"]["name"] != name:
            return
        before, after = ((each["metadata"].get("labels") or {}).get(LABELS.shard) for each in (change.old, change.new))
        if before != after:
            found.append((before, after))

    stage.server.listeners.append(look)
    return found


def name_that_a_third_shard_gets() -> str:
    """Of an owner that belongs to shard one, and to shard three once that is there beside one and two."""
    with_three = set(names_on("three", "one", "two", "three", count=100))
    return next(each for each in names_on("one", "one", "two", count=100) if each in with_three)


async def begin_to_move(stage: Stage, api: Interrupted, name: str) -> tuple[Changes, Changes]:
    """Have a family that nobody has stop half way to shard one, where its second child is refused.

    Returns the changes of its first child, which is there, and of the owner.
    """
    await stage.until(lambda: stage.condition("Settled") == "True")
    api.refused.add(f"{name}-1")
    child, owner = changes_of(stage, f"{name}-0"), changes_of(stage, name)
    create_family(stage, name, shard=None, children=(None, None))
    await stage.until(lambda: stage.label(CHILDREN, f"{name}-0") == "one")
    return child, owner

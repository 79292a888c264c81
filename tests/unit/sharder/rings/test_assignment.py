"""A ring's controller runs whatever assigns the ring's objects, and knows nothing else of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from sharder import replica
from sharder.backlog.scope import Wanted
from sharder.cache.namespaces import Namespaces
from sharder.core.ringspec import LetGo
from sharder.core.summary import Pending, Refused, Summary
from sharder.takeover.controller import TakeoverController
from sharder.takeover.leadership import Leadership
from shardsdk.protocol.objects import CLUSTERRINGS, SlimMeta
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import OWNERS, RING, Stage, leading, make_stage, ring, thing


class NotByLabels:
    """Another way to assign objects: it writes nothing, and says what it was asked for."""

    made: list[NotByLabels]
    stage: Stage

    def __init__(
        self, name: str, leadership: Leadership, namespaces: Namespaces, takeover: TakeoverController, **_: object
    ) -> None:
        self.when_changed: list[Callable[[], None]] = []
        self.wanted: Wanted | None = None
        self.recorded: object = None
        self.memberships = 0
        self.waiting = 3
        takeover.when_ready.append(self.membership_changed)
        type(self).made.append(self)

    def place(self, wanted: Wanted | None) -> None:
        if self.recorded is None:
            self.recorded = self.stage.server.get(CLUSTERRINGS, RING, None)["status"].get("placedResources")
        self.wanted = wanted

    def membership_changed(self) -> None:
        self.memberships += 1

    def namespace_changed(self, name: str, before: SlimMeta | None, after: SlimMeta | None) -> None:
        return

    def restart_watches(self) -> None:
        return

    def summarize(self) -> Summary:
        counts = {(Pending.UNASSIGNED, OWNERS.group_resource): self.waiting}
        return Summary(not self.waiting, counts if self.waiting else {}, at_rest=not self.waiting)

    @property
    def removed_clean(self) -> frozenset[LetGo]:
        return frozenset()

    def take_refused(self) -> Refused | None:
        return None

    async def run(self) -> None:
        await asyncio.Event().wait()


@in_virtual_time
async def test_another_way_to_assign_needs_nothing_of_the_rings(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = make_stage(clock)
    monkeypatch.setattr(NotByLabels, "made", [], raising=False)
    monkeypatch.setattr(NotByLabels, "stage", stage, raising=False)
    monkeypatch.setattr(replica, "LabelAssignment", NotByLabels)
    stage.create(CLUSTERRINGS, ring(), None)
    stage.create(OWNERS, thing("it"))
    async with leading(stage):
        await stage.until(lambda: len(NotByLabels.made) == 1 and NotByLabels.made[0].wanted is not None)
        [made] = NotByLabels.made
        assert made.recorded, "what is assigned is written down before"
        await stage.until(lambda: stage.condition("Settled") == "False")
        assert stage.server.get(CLUSTERRINGS, RING, None)["status"]["unassigned"] == 3
        stage.start("one")
        await stage.until(lambda: made.memberships > 0)
        made.waiting = 0
        for tell in made.when_changed:
            tell()
        await stage.until(lambda: stage.condition("Settled") == "True")
        assert stage.label(OWNERS, "it") is None, "nobody else gives labels"

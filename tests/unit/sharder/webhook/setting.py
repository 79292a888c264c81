"""The webhook's application with everything around it, and what its log says."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from sharder.core.views import RingView
from sharder.webhook.app import AdmissionApp, Limits, build_app
from shardsdk.kube.api import Api
from shardsdk.protocol.objects import GroupResource, PartialObject, Resource
from tests.unit.sharder.webhook.reviews import Reply, call, view
from tests.unit.shardsdk.serving.manual_clock import ManualClock


@dataclass
class Owners:
    """An API server that can be asked for owners."""

    answer: PartialObject | Exception | None = None
    hold: asyncio.Event | None = None
    asked: list[tuple[Resource, str, str | None]] = field(default_factory=list)
    running: int = 0
    most: int = 0

    async def find(self, resource: Resource, name: str, namespace: str | None = None) -> PartialObject | None:
        self.asked.append((resource, name, namespace))
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            if self.hold is not None:
                await self.hold.wait()
            else:
                await asyncio.sleep(0)
        finally:
            self.running -= 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@dataclass
class Setting:
    """The application with everything around it."""

    rings: dict[str, RingView] = field(default_factory=lambda: {"checksum": view()})
    owners: Owners = field(default_factory=Owners)
    limits: Limits = field(default_factory=Limits)
    outcomes: list[tuple[str, str]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    assigned: list[tuple[str, GroupResource]] = field(default_factory=list)
    not_served: list[str] = field(default_factory=list)
    clock: ManualClock = field(default_factory=ManualClock)
    account: str = ""

    def build(self) -> AdmissionApp:
        return build_app(
            self.rings.get,
            cast(Api, self.owners),
            clock=self.clock,
            on_outcome=self.note,
            on_assigned=lambda ring, resource: self.assigned.append((ring, resource)),
            on_not_served=self.not_served.append,
            account=lambda: self.account,
            limits=self.limits,
        )

    def note(self, ring: str, outcome: str, seconds: float) -> None:
        self.outcomes.append((ring, outcome))
        self.seconds.append(seconds)

    async def call(self, body: Any, **more: Any) -> Reply:
        return await call(self.build(), body, **more)


def told_of(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, str]]:
    """Ring, outcome and reason of each request that the log says passed without a label."""
    told = [vars(each) for each in caplog.records if each.message == "admission passed an object unlabelled"]
    return [(each["ring"], each["outcome"], each["reason"]) for each in told]

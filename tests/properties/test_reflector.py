"""Whatever happens on the way, the store ends equal to the server, and the deltas tell the same story."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest

from shardsdk.errors import ConnectionFailed, Gone, Invalid, ServerError, StreamInterrupted
from shardsdk.kube.api import Api, WatchEvent, WatchKind
from shardsdk.kube.initialevents import InitialEvents
from shardsdk.kube.reflector import Delta, EventKind, Reflector
from shardsdk.kube.selectors import Selector
from shardsdk.protocol.objects import PartialObject, Resource
from tests.kube_fakes import CONFIGMAPS, InstantClock, bookmark, thing

#: Names in play; few, so that the same object is changed, deleted and made again.
NAMES = [f"o{number}" for number in range(12)]
STEPS = 400


class FaultyServer:
    """Objects with a history, served over connections that fail in every way known.

    The label `in` says whether an object is in the selection; leaving it is a
    DELETED, as on a real API server.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.version = 1
        self.compacted = 0
        self.objects: dict[str, PartialObject] = {}
        self.history: list[WatchEvent] = []
        self.news = asyncio.Event()
        self.calm = False
        self.serves_initial_events = rng.random() < 0.7
        self.initial_events: defaultdict[Resource, InitialEvents] = defaultdict(InitialEvents)
        self.bookmarked: set[Resource] = set()

    def selected(self) -> list[PartialObject]:
        return [each for each in self.objects.values() if each.metadata.label("in")]

    def step(self) -> None:
        """One write by somebody."""
        name = self.rng.choice(NAMES)
        old = self.objects.get(name)
        self.version += 1
        labels = {"in": "yes"} if self.rng.random() < 0.7 else None
        match self.rng.random():
            case chance if chance < 0.05:
                self.compacted = self.version
            case chance if chance < 0.35 and old is not None:
                del self.objects[name]
                self._tell(old, None)
            case _:
                uid = old.metadata.uid if old is not None else f"uid-{self.version}"
                self.objects[name] = thing(name, self.version, uid=uid, labels=labels)
                self._tell(old, self.objects[name])
        self.news.set()
        self.news = asyncio.Event()

    def _tell(self, old: PartialObject | None, new: PartialObject | None) -> None:
        was = old is not None and old.metadata.label("in") is not None
        now = new is not None and new.metadata.label("in") is not None
        if not was and not now:
            return
        kind = WatchKind.MODIFIED if was and now else WatchKind.ADDED if now else WatchKind.DELETED
        shown = new if now else old
        assert shown is not None
        meta = shown.metadata
        told = thing(meta.name, self.version, uid=meta.uid, labels=meta.labels)
        self.history.append(WatchEvent(kind, told, str(self.version)))

    async def watch(
        self, resource: Resource, namespace: str | None = None, *, resource_version: str | None = None, **_: Any
    ) -> AsyncIterator[WatchEvent]:
        await asyncio.sleep(0)
        self._maybe_fail(ConnectionFailed("refused"), ServerError("unwell", status=503))
        if resource_version is None:
            if not self.serves_initial_events:
                raise Invalid("sendInitialEvents is forbidden")
            position = self.version
            for each in self.selected():
                self._maybe_fail(StreamInterrupted("broke off"))
                if self._chance(0.02):
                    return
                yield WatchEvent(WatchKind.ADDED, each, each.metadata.resource_version)
                if self._chance(0.1):
                    await asyncio.sleep(0)
            # What happens while the list is sent comes before its end.
            for event in self._since(position):
                yield event
                position = int(event.resource_version)
            yield bookmark(position, initial_end=True)
        else:
            position = int(resource_version)
            if position < self.compacted:
                raise Gone("too old")
        while True:
            for event in self._since(position):
                self._maybe_fail(StreamInterrupted("broke"), Gone("too old"), ServerError("odd", status=500))
                yield event
                position = int(event.resource_version)
            if self._chance(0.1):
                yield bookmark(self.version)
                position = self.version
            if self._chance(0.05):
                return
            await self.news.wait()

    async def pages(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        selector: Selector,
        on_version: Callable[[str], None],
        **_: Any,
    ) -> AsyncIterator[list[PartialObject]]:
        await asyncio.sleep(0)
        self._maybe_fail(ConnectionFailed("refused"))
        on_version(str(self.version))
        snapshot = self.selected()
        for start in range(0, len(snapshot), 3):
            self._maybe_fail(StreamInterrupted("410 in mid-list"))
            yield snapshot[start : start + 3]
            await asyncio.sleep(0)

    def _since(self, position: int) -> list[WatchEvent]:
        return [event for event in self.history if int(event.resource_version) > position]

    def _chance(self, chance: float) -> bool:
        return not self.calm and self.rng.random() < chance

    def _maybe_fail(self, *errors: Exception) -> None:
        if self._chance(0.08):
            raise self.rng.choice(errors)


class Ledger:
    """Replays the deltas and notes where the story makes no sense (a reflector contains what its handler raises)."""

    def __init__(self) -> None:
        self.known: dict[str, PartialObject] = {}
        self.nonsense: list[Delta[PartialObject]] = []

    def __call__(self, delta: Delta[PartialObject]) -> None:
        try:
            self._replay(delta)
        except AssertionError:
            self.nonsense.append(delta)
            raise

    def _replay(self, delta: Delta[PartialObject]) -> None:
        name = delta.object.metadata.name
        assert delta.old is self.known.get(name)
        match delta.kind:
            case EventKind.ADDED:
                assert delta.old is None
                self.known[name] = delta.object
            case EventKind.MODIFIED:
                assert delta.old is not None
                assert delta.old.metadata.uid == delta.object.metadata.uid
                assert int(delta.old.metadata.resource_version) < int(delta.object.metadata.resource_version)
                self.known[name] = delta.object
            case EventKind.DELETED:
                assert delta.old is not None
                assert delta.old.metadata.uid == delta.object.metadata.uid
                del self.known[name]
            case EventKind.GENERIC:
                raise AssertionError("nothing has happened")


@pytest.mark.parametrize("seed", range(60))
async def test_the_store_converges_and_the_deltas_tell_how(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(100)
    rng = random.Random(seed)
    server = FaultyServer(rng)
    ledger = Ledger()
    reflector = Reflector(
        cast("Api", server), CONFIGMAPS, clock=InstantClock(), rng=rng, handler=ledger, name=f"seed {seed}"
    )
    running = asyncio.ensure_future(reflector.run())
    for _ in range(STEPS):
        server.step()
        for _ in range(rng.randrange(4)):
            await asyncio.sleep(0)
        if rng.random() < 0.02:
            reflector.restart()
    server.calm = True
    await reflector.listed(reflector.restart())
    server.step()
    for _ in range(50):
        await asyncio.sleep(0)
    expected = {each.metadata.name: each for each in server.selected()}
    assert {each.metadata.name: each for each in reflector.store} == expected
    assert ledger.known == expected
    assert not ledger.nonsense
    running.cancel()

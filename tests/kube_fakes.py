"""Stand-ins for what shardsdk.kube talks to: clocks, fences, a scripted watch."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from shardsdk.errors import ApiError, ShardingError
from shardsdk.kube.answers import Cause, Status, StatusDetails, Target, explain_status
from shardsdk.kube.api import Api, WatchEvent, WatchKind
from shardsdk.kube.initialevents import InitialEvents
from shardsdk.kube.reflector import Delta, Reflector
from shardsdk.kube.selectors import Selector
from shardsdk.protocol.objects import ObjectMeta, PartialObject, Resource

CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")


def ending(namespace: str) -> ApiError:
    """What is said to whoever would create something in `namespace`, which is being deleted."""
    said = f"unable to create new content in namespace {namespace} because it is being terminated"
    details = StatusDetails("a", "configmaps", causes=[Cause("NamespaceTerminating")])
    target = Target("create", resource="configmaps", namespace=namespace)
    return explain_status(target, Status(403, "Forbidden", f'configmaps "a" is forbidden: {said}', details))


class InstantClock:
    """Sleeping takes no time but moves this clock; `pauses` are the sleeps asked for."""

    def __init__(self, at: float = 1_000.0) -> None:
        self.at = at
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        return self.at

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.at)

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.at += max(seconds, 0.0)
        await asyncio.sleep(0)


class ManualClock(InstantClock):
    """Time passes when the test says so."""

    def __init__(self, at: float = 1_000.0) -> None:
        super().__init__(at)
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.at + seconds, waiter))
        await waiter

    def advance(self, seconds: float) -> None:
        self.at += seconds
        for until, waiter in self._sleepers:
            if until <= self.at and not waiter.done():
                waiter.set_result(None)


@dataclass
class FakeFence:
    """A fence that says what it is told to; `asked` counts."""

    left: float = 10.0
    name: str = "lease"
    asked: int = 0
    answers: list[float] = field(default_factory=list)

    def remaining(self) -> float:
        self.asked += 1
        return self.answers.pop(0) if self.answers else self.left


def thing(
    name: str,
    version: int | str,
    *,
    uid: str = "",
    labels: dict[str, str] | None = None,
    namespace: str = "default",
) -> PartialObject:
    """An object's metadata; its uid is made from its name unless given."""
    meta = ObjectMeta(
        name=name, namespace=namespace, uid=uid or f"uid-{name}", resource_version=str(version), labels=labels
    )
    return PartialObject(meta)


def added(name: str, version: int, **more: Any) -> WatchEvent:
    return WatchEvent(WatchKind.ADDED, thing(name, version, **more), str(version))


def modified(name: str, version: int, **more: Any) -> WatchEvent:
    return WatchEvent(WatchKind.MODIFIED, thing(name, version, **more), str(version))


def deleted(name: str, version: int, **more: Any) -> WatchEvent:
    return WatchEvent(WatchKind.DELETED, thing(name, version, **more), str(version))


def bookmark(version: int, *, initial_end: bool = False) -> WatchEvent:
    return WatchEvent(WatchKind.BOOKMARK, None, str(version), initial_end)


def listed(version: int) -> WatchEvent:
    """The end of the initial events."""
    return bookmark(version, initial_end=True)


@dataclass(frozen=True)
class Hold:
    """Silence until it is released; time may pass on the clock meanwhile."""

    gate: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True)
class Passing:
    """Time passes on the clock before the next step."""

    seconds: float


Step = WatchEvent | ShardingError | Hold | Passing


@dataclass
class Asked:
    """One watch or list that was asked for."""

    verb: str
    version: str | None = None
    selector: Selector = field(default_factory=Selector)
    closed: bool = False


class ScriptedApi:
    """Each watch or list plays the next script; when there is none left it stays silent."""

    def __init__(self, clock: InstantClock, *scripts: Sequence[Step]) -> None:
        self.clock = clock
        self.scripts = [list(script) for script in scripts]
        self.asked: list[Asked] = []
        self.initial_events: defaultdict[Resource, InitialEvents] = defaultdict(InitialEvents)
        self.bookmarked: set[Resource] = set()
        #: Watches that were asked for while another one was still open.
        self.overlaps = 0
        self.page_size = 2
        self.idle = asyncio.Event()

    @property
    def api(self) -> Api:
        return cast("Api", self)

    async def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        selector: Selector,
        resource_version: str | None = None,
        **_: Any,
    ) -> AsyncIterator[WatchEvent]:
        self.overlaps += any(not each.closed for each in self.asked)
        asked = Asked("watch", resource_version, selector)
        self.asked.append(asked)
        try:
            async for event in self._play():
                yield event
        finally:
            asked.closed = True

    async def pages(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        selector: Selector,
        on_version: Callable[[str], None],
        **_: Any,
    ) -> AsyncIterator[list[PartialObject]]:
        self.asked.append(Asked("list", None, selector, closed=True))
        page: list[PartialObject] = []
        try:
            async for event in self._play():
                if event.initial_end:
                    on_version(event.resource_version)
                elif event.object is not None:
                    page.append(event.object)
                if len(page) == self.page_size:
                    yield page
                    page = []
        except ShardingError:
            if page:
                yield page
            raise
        if page:
            yield page

    async def _play(self) -> AsyncIterator[WatchEvent]:
        script: list[Step] = self.scripts.pop(0) if self.scripts else [Hold()]
        for step in script:
            match step:
                case WatchEvent():
                    yield step
                case Passing(seconds=seconds):
                    self.clock.at += seconds
                case Hold(gate=gate):
                    self.idle.set()
                    await gate.wait()
                case _:
                    raise step


class Recorder:
    """A reflector's handler that keeps what it is told, in short."""

    def __init__(self) -> None:
        self.deltas: list[Delta[PartialObject]] = []

    def __call__(self, delta: Delta[PartialObject]) -> None:
        self.deltas.append(delta)

    @property
    def story(self) -> list[str]:
        """`added a@1`, with a star for what came from a list."""
        return [
            f"{delta.kind.value} {delta.object.metadata.name}@{delta.object.metadata.resource_version}"
            + ("*" if delta.initial else "")
            for delta in self.deltas
        ]


def reflect(api: ScriptedApi, **options: Any) -> tuple[Reflector[PartialObject], Recorder]:
    """A reflector of config maps, and what it told."""
    recorder = Recorder()
    options.setdefault("handler", recorder)
    reflector = Reflector(api.api, CONFIGMAPS, clock=api.clock, rng=random.Random(1), **options)
    return reflector, recorder


Playing = tuple[ScriptedApi, Reflector[PartialObject], Recorder]


@asynccontextmanager
async def playing(*scripts: list[Step], **options: Any) -> AsyncIterator[Playing]:
    """Run a reflector through `scripts` until the API server has nothing more to say."""
    api = ScriptedApi(InstantClock(), *scripts)
    reflector, recorder = reflect(api, **options)
    running = asyncio.ensure_future(reflector.run())
    await api.idle.wait()
    yield api, reflector, recorder
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


@asynccontextmanager
async def refusing_proxy() -> AsyncIterator[tuple[str, list[str]]]:
    """An HTTP proxy that wants another user: where it listens, and the head of each request that it was sent."""
    heard: list[str] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as proxy:
        yield f"127.0.0.1:{proxy.sockets[0].getsockname()[1]}", heard

"""`kubectl sharding status --watch`: in virtual time."""

from __future__ import annotations

import asyncio
import io
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from sharder.kubectl.session import Session
from sharder.kubectl.status.watch import fitting, watch_status
from sharder.kubectl.text import Painter
from shardsdk.errors import ConfigurationError, ConnectionFailed
from shardsdk.protocol.leases import render_micro_time
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES, Resource
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.kubectl.rings import SECRETS, RestrictedApi, lease, manifest, raw_ring, said

#: Long enough for whatever follows from a change to be shown.
A_WHILE = 30.0


class Stage:
    """A ring `checksum` with one shard, and somebody who watches it."""

    def __init__(self, clock: VirtualClock, api: type[RestrictedApi] = RestrictedApi, **options: Any) -> None:
        self.clock = clock
        self.server = MemoryServer()
        self.denied: set[tuple[str, str]] = options.pop("denied", set())
        self.server.arrange(CLUSTERRINGS, raw_ring(), None)
        self.server.create(LEASES, self.lease("one"), "default")
        self.api = api(self.server, clock, self.denied)
        self.err = io.StringIO()
        self.session = Session(
            self.api, clock, io.StringIO(), Painter(False), host="https://here", err=self.err, **options
        )

    def lease(self, name: str) -> dict[str, Any]:
        built: dict[str, Any] = msgspec.to_builtins(lease(name))
        built["spec"]["renewTime"] = render_micro_time(self.clock.now())
        built["metadata"] = {key: value for key, value in built["metadata"].items() if value is not None}
        return built

    def put(self, name: str) -> None:
        self.server.create(SECRETS, manifest(name, "one"), "default")

    def renew(self) -> None:
        moment = render_micro_time(self.clock.now())
        self.server.patch(LEASES, "one", "default", {"spec": {"renewTime": moment}})

    async def keep_renewing(self) -> None:
        while True:
            self.renew()
            await self.clock.sleep(5)

    @property
    def frames(self) -> int:
        return said(self.session).count("Ring checksum")

    @asynccontextmanager
    async def watched(self, ring: str | None = "checksum", interval: float = 2.0) -> AsyncIterator[None]:
        task = asyncio.create_task(watch_status(self.session, ring, interval))
        renewing = asyncio.create_task(self.keep_renewing())
        await self.clock.sleep(A_WHILE)
        try:
            yield
        finally:
            renewing.cancel()
            if not task.done():
                task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task


@in_virtual_time
async def test_a_frame_is_appended_when_something_has_changed_and_not_otherwise(clock: VirtualClock) -> None:
    stage = Stage(clock)
    async with stage.watched():
        assert stage.frames == 1
        await clock.sleep(600)
        assert stage.frames == 1
        stage.put("a")
        await clock.sleep(A_WHILE)
        assert stage.frames == 2
        assert said(stage.session).splitlines()[-1].split()[5:7] == ["1", "0"]
    assert stage.err.getvalue() == ""
    assert "\x1b" not in said(stage.session)


@in_virtual_time
async def test_data_comes_one_document_per_line(clock: VirtualClock) -> None:
    stage = Stage(clock, output="json")
    async with stage.watched():
        stage.put("a")
        await clock.sleep(A_WHILE)
    documents = [json.loads(line)["rings"][0] for line in said(stage.session).splitlines()]
    assert [each["shards"][0]["objects"]["secrets"] for each in documents] == [0, 1]


class Slow(RestrictedApi):
    """Takes long to answer, and says when it was asked."""

    asked: list[float]

    async def discover(self, group: str, plural: str) -> Resource | None:
        self.asked = [*getattr(self, "asked", []), self.clock.monotonic()]
        await self.clock.sleep(3)
        return await super().discover(group, plural)


@in_virtual_time
async def test_a_large_cluster_in_which_much_changes_is_read_for_a_tenth_of_the_time(clock: VirtualClock) -> None:
    stage = Stage(clock, Slow)
    async with stage.watched():
        for number in range(1200):
            stage.put(f"s{number}")
            await clock.sleep(0.5)
    assert isinstance(stage.api, Slow)
    reading = 3 * len(stage.api.asked)
    assert 0.05 * clock.monotonic() < reading <= 0.1 * clock.monotonic() + 12


class Flaky(RestrictedApi):
    """Cannot be reached while `down`."""

    down = False

    async def get(self, resource: Any, *args: Any, **kwargs: Any) -> Any:
        if self.down:
            raise ConnectionFailed("get clusterrings checksum: refused")
        return await super().get(resource, *args, **kwargs)


@in_virtual_time
async def test_an_outage_is_shown_and_what_happened_meanwhile_afterwards(clock: VirtualClock) -> None:
    stage = Stage(clock, Flaky)
    assert isinstance(stage.api, Flaky)
    async with stage.watched():
        stage.api.down = True
        stage.put("a")
        await clock.sleep(A_WHILE)
        assert said(stage.session).count("not refreshed: get clusterrings checksum: refused") == 1
        stage.put("b")
        stage.api.down = False
        await clock.sleep(60)
        assert said(stage.session).splitlines()[-1].split()[5:7] == ["2", "0"]


class Hanging(RestrictedApi):
    """Does not answer while `down`."""

    down = False

    async def get(self, resource: Any, *args: Any, **kwargs: Any) -> Any:
        if self.down:
            await self.clock.sleep(30)
            raise ConnectionFailed("get clusterrings checksum: no answer within 30 s")
        return await super().get(resource, *args, **kwargs)


@in_virtual_time
async def test_after_one_that_had_no_answer_it_soon_looks_again(clock: VirtualClock) -> None:
    stage = Stage(clock, Hanging)
    assert isinstance(stage.api, Hanging)
    async with stage.watched():
        stage.api.down = True
        await clock.sleep(35)
        assert "not refreshed" in said(stage.session)
        stage.api.down = False
        stage.put("a")
        await clock.sleep(30)
        assert said(stage.session).splitlines()[-1].split()[5:7] == ["1", "0"]


@in_virtual_time
async def test_who_may_only_get_the_ring_sees_its_changes(clock: VirtualClock) -> None:
    stage = Stage(clock, denied={("list", "clusterrings")})
    async with stage.watched():
        stage.server.patch(CLUSTERRINGS, "checksum", None, {"status": {"conditions": []}}, subresource="status")
        await clock.sleep(A_WHILE)
        assert "not seen by a sharder" in said(stage.session).split("\n\nRing")[-1]


@in_virtual_time
async def test_what_may_not_be_listed_either_stops_nothing(clock: VirtualClock) -> None:
    stage = Stage(clock, denied={("list", "secrets")})
    async with stage.watched():
        assert "? not read: secrets: you may not read it" in said(stage.session)
        stage.server.patch(LEASES, "one", "default", {"spec": {"holderIdentity": "sharder"}})
        await clock.sleep(A_WHILE)
        assert stage.frames == 2
        stage.denied.clear()
        stage.put("a")
        await clock.sleep(60)
        assert "not read" not in said(stage.session).split("\n\nRing")[-1]


@in_virtual_time
async def test_a_terminal_is_drawn_over_and_its_ages_go_on(clock: VirtualClock) -> None:
    stage = Stage(clock)
    stage.session.out.isatty = lambda: True  # type: ignore[method-assign]
    async with stage.watched():
        before = stage.frames
        await clock.sleep(A_WHILE)
        assert stage.frames >= before + 10
    text = said(stage.session)
    assert text.count("\x1b[2J") == 1
    assert text.count("\x1b[H") == stage.frames
    assert "every 2 s, Ctrl-C ends" in text
    assert text.endswith("\x1b[J")


@in_virtual_time
async def test_a_ring_that_is_deleted_ends_it_with_the_reason(clock: VirtualClock) -> None:
    stage = Stage(clock)
    task = asyncio.create_task(watch_status(stage.session, "checksum", 2.0))
    await clock.sleep(A_WHILE)
    stage.server.delete(CLUSTERRINGS, "checksum", None)
    with pytest.raises(ConfigurationError, match="there is no ClusterRing 'checksum'"):
        await task


@pytest.mark.parametrize(
    ("columns", "lines", "shown"),
    [
        (80, 10, ["a" * 100, "b", "c"]),
        (80, 6, ["a" * 100, "b", "… 1 more line"]),
        (40, 6, ["a" * 100, "… 2 more lines"]),
        (100, 6, ["a" * 100, "b", "c"]),
        (10, 4, ["… 3 more lines"]),
    ],
)
def test_a_frame_fits_on_the_screen_with_what_wraps(columns: int, lines: int, shown: list[str]) -> None:
    frame = ["a" * 100, "b", "c"]

    assert fitting(frame, os.terminal_size((columns, lines))) == shown
    assert fitting([f"\x1b[31m{line}\x1b[0m" for line in frame[:1]], os.terminal_size((100, 4)))[0].endswith("\x1b[0m")


@in_virtual_time
async def test_data_stays_data_while_the_api_server_is_away(clock: VirtualClock) -> None:
    stage = Stage(clock, Flaky, output="json")
    assert isinstance(stage.api, Flaky)
    async with stage.watched():
        stage.api.down = True
        await clock.sleep(A_WHILE)
        stage.api.down = False
        await clock.sleep(2 * A_WHILE)
    assert [len(json.loads(line)["rings"]) for line in said(stage.session).splitlines()] == [1, 1]
    assert stage.err.getvalue().startswith("kubectl-sharding: not refreshed: ")
    assert stage.err.getvalue().count("\n") == 1

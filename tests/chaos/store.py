"""Etcd's own log of what was written, in order and complete, however the API servers in front of it fare.

The API servers of a run store JSON (`STORE_FLAGS`), and nobody compacts, so a watch that breaks off goes on where it
was.  It shares no code with what it watches.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import aiohttp

from localcluster import AdminClient, AdminError
from shardsdk.protocol.labels import RingLabels, parse_ring_name
from tests.chaos.history import ASSIGNMENTS, RINGS, At, Known, Version
from tests.chaos.holdings import Holdings
from tests.integration.ranged_shard import HELD

#: What an API server needs so that its store can be read here, from the beginning.
STORE_FLAGS: Final = ("--storage-media-type=application/json", "--etcd-compaction-interval=0")
RESOURCES: Final = ("configmaps", "leases", "secrets")
_OURS: Final = "/registry/sharding.timebertt.dev/{}/{}"
#: From the first key of the first of them to the end of the last one's.
_RANGE: Final = ("/registry/configmaps/", "/registry/sharding.timebertt.dev0")
_RETRY_SECONDS: Final = 0.1
#: How much longer than a look the pause after it is.
_LOOK_PAUSES: Final = 4
_MAX_LINE_BYTES: Final = 64 << 20
#: How often the store is written to, so that the time of every other write is known as well as that.
TICK_SECONDS: Final = 0.1
TICK: Final = ("v1/configmaps", "tick", "kube-system")


class Store:
    """Everything that was stored in these namespaces, the ring and its assignment.

    `current` is what is there now, by resource and name, with the shard that has it.  `by_ranges`: its Lease says so.
    """

    def __init__(self, url: str, namespaces: Iterable[str], ring: str, *, by_ranges: bool = False) -> None:
        self._url = url
        self._namespaces = frozenset(namespaces)
        self._ring = ring
        self._labels = None if by_ranges else parse_ring_name(ring)
        self._holdings = Holdings(self._namespaces) if by_ranges else None
        self._next = 1
        self._news = asyncio.Event()
        self._there = asyncio.Event()
        self._there.set()
        self._stream: aiohttp.ClientResponse | None = None
        self.epoch = 0
        #: When it became another store, in Unix seconds, and up to where that was filled from a backup.
        self.set_backs: list[float] = []
        self.restores: list[At] = []
        self.versions: list[Version] = []
        self.ticks: list[Known] = []
        self.current: dict[tuple[str, str], Version] = {}

    async def run(self) -> None:
        """Follow the store until cancelled."""
        while True:
            await self._there.wait()
            try:
                async with aiohttp.ClientSession(self._url, read_bufsize=_MAX_LINE_BYTES) as session:
                    await self._follow(session)
            except (aiohttp.ClientError, OSError, ValueError, TimeoutError):
                await asyncio.sleep(_RETRY_SECONDS)

    async def tick(self, admin: AdminClient) -> None:
        """Write to the store all the time, past everything that is hindered, until cancelled."""
        resource, name, namespace = TICK
        await admin.create(resource, {"metadata": {"name": name}}, namespace)
        number = 0
        while True:
            number += 1
            sent, epoch = time.monotonic(), self.epoch
            try:
                made = await admin.patch(resource, name, {"data": {"number": str(number)}}, namespace)
                at = (epoch, int(made["metadata"]["resourceVersion"]))
                if epoch == self.epoch:
                    self.ticks.append(Known(at, sent, time.monotonic()))
            except (AdminError, aiohttp.ClientError, OSError, TimeoutError):
                pass
            await asyncio.sleep(TICK_SECONDS)

    async def until(self, condition: Callable[[], bool], timeout_seconds: float) -> None:
        """Wait until `condition` holds; it is asked after every change, but not all the time.  Raises: TimeoutError."""
        async with asyncio.timeout(timeout_seconds):
            while True:
                self._news.clear()
                began = time.monotonic()
                if condition():
                    return
                # With many objects a look takes its time, and those who bring the news are in this process.
                await asyncio.sleep((time.monotonic() - began) * _LOOK_PAUSES)
                await self._news.wait()

    async def caught_up(self) -> None:
        """Return once all that is stored now has been seen."""
        async with aiohttp.ClientSession(self._url) as session:
            revision = await self._revision(session)
        await self.until(lambda: self._next > revision, 60.0)

    def gone(self) -> None:
        """The store is another one from here on; nothing runs on it yet."""
        self._there.clear()
        self.epoch += 1
        self.set_backs.append(time.time())
        if self._stream is not None:
            self._stream.close()

    async def set_back(self) -> None:
        """It runs again: what it holds now is what is there."""
        async with aiohttp.ClientSession(self._url, read_bufsize=_MAX_LINE_BYTES) as session:
            found = await self._range(session)
        before, now = dict(self.current), time.monotonic()
        self._next = int(found["header"]["revision"]) + 1
        self.restores.append((self.epoch, self._next - 1))
        for each in found.get("kvs", ()):
            self._take("PUT", each, now)
        there = {self._place(_decode(each["key"])) for each in found.get("kvs", ())}
        for key in before.keys() - there:
            self._add(_ended(before[key], (self.epoch, self._next - 1), now))
        self._there.set()

    async def _revision(self, session: aiohttp.ClientSession) -> int:
        async with session.post("/v3/kv/range", json={"key": _encode("0")}) as answer:
            return int((await answer.json())["header"]["revision"])

    async def _range(self, session: aiohttp.ClientSession) -> Any:
        first, last = map(_encode, _RANGE)
        async with session.post("/v3/kv/range", json={"key": first, "range_end": last}) as answer:
            return await answer.json()

    async def _follow(self, session: aiohttp.ClientSession) -> None:
        first, last = map(_encode, _RANGE)
        request = {"key": first, "range_end": last, "start_revision": str(self._next)}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5.0)
        epoch = self.epoch
        async with session.post("/v3/watch", json={"create_request": request}, timeout=timeout) as answer:
            self._stream = answer
            async for line in answer.content:
                if epoch != self.epoch:
                    return
                self._read(json.loads(line))

    def _read(self, said: dict[str, Any]) -> None:
        result = said.get("result", {"canceled": True})
        if result.get("canceled"):
            raise ValueError(f"etcd ended the watch: {said}")
        now = time.monotonic()
        for event in result.get("events", ()):
            self._take(event.get("type", "PUT"), event["kv"], now)
        if not result.get("created"):
            self._next = max(self._next, int(result["header"]["revision"]) + 1)
        self._news.set()

    def _take(self, kind: str, stored: dict[str, Any], now: float) -> None:
        place = self._place(_decode(stored["key"]))
        if place is None:
            return
        at = (self.epoch, int(stored["mod_revision"]))
        if kind == "DELETE":
            if place in self.current:
                self._add(_ended(self.current[place], at, now))
            return
        self._add(_version(place, json.loads(base64.b64decode(stored["value"])), at, now, self._labels))

    def _place(self, key: str) -> tuple[str, str] | None:
        for resource in (ASSIGNMENTS, RINGS):
            if key == _OURS.format(resource, self._ring):
                return resource, self._ring
        parts = key.split("/")
        if len(parts) != 5 or parts[2] not in RESOURCES or parts[3] not in self._namespaces:
            return None
        return parts[2], parts[4]

    def _add(self, version: Version) -> None:
        self.versions.append(version)
        for each in (version,) if self._holdings is None else self._holdings.follow(version):
            place = each.resource, each.name
            if each.deleted:
                self.current.pop(place, None)
            else:
                self.current[place] = each
        self._news.set()


def _version(place: tuple[str, str], body: dict[str, Any], at: At, now: float, labels: RingLabels | None) -> Version:
    metadata, (resource, name) = body["metadata"], place
    carried = metadata.get("labels") or {}
    owner = next((each["uid"] for each in metadata.get("ownerReferences") or () if each.get("controller")), None)
    data, spec = body.get("data") or {}, body.get("spec") or {}
    value = data.get("value", "")
    return Version(
        at,
        resource,
        name,
        now,
        uid=metadata["uid"],
        shard=None if labels is None else carried.get(labels.shard),
        drain=labels is not None and labels.drain in carried,
        owner=owner,
        value=_decode(value) if resource == "secrets" else value,
        write=data.get("write", ""),
        holder=spec.get("holderIdentity") or "",
        content=_digest(body, labels),
        namespace=metadata.get("namespace", ""),
        held=(metadata.get("annotations") or {}).get(HELD, ""),
        named=tuple((int(each["start"], 16), each.get("shard")) for each in spec.get("ranges") or ()),
    )


def _digest(body: dict[str, Any], labels: RingLabels | None) -> str:
    """Of all that stands in an object but the ring's labels, if it has any, and who has written which field."""
    metadata = {name: value for name, value in body["metadata"].items() if name != "managedFields"}
    carried = metadata.pop("labels", None) or {}
    ours = () if labels is None else (labels.shard, labels.drain)
    others = {name: value for name, value in carried.items() if name not in ours}
    told = json.dumps({**body, "metadata": {**metadata, "labels": others}}, sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def _ended(before: Version, at: At, now: float) -> Version:
    return Version(
        at, before.resource, before.name, now, uid=before.uid, owner=before.owner, shard=before.shard, deleted=True,
        namespace=before.namespace,
    )  # fmt: skip


def _encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _decode(text: str) -> str:
    return base64.b64decode(text).decode()

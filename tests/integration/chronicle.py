"""Every version that objects went through, in the order in which they were written.

etcd numbers all writes in one row, so resourceVersions of one control plane tell
what came first, across resources.  Tests ask it whether a lease was acquired
before anything moved.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from localcluster import AdminClient
from shardsdk.protocol.labels import LEASE_STATE_LABEL, SHARDER_HOLDER, RingLabels

LEASES = "coordination.k8s.io/v1/leases"


@dataclass(frozen=True, slots=True)
class Version:
    """One version of one object; of a deleted one the last."""

    at: int
    resource: str
    deleted: bool
    body: dict[str, Any]
    labels: RingLabels

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])

    @property
    def shard(self) -> str | None:
        return self._label(self.labels.shard)

    @property
    def draining(self) -> bool:
        return self._label(self.labels.drain) is not None

    @property
    def state(self) -> str | None:
        return self._label(LEASE_STATE_LABEL)

    @property
    def holder(self) -> str:
        return self.body["spec"].get("holderIdentity") or ""

    @property
    def ours(self) -> bool:
        """Whether this is a lease in the sharder's name."""
        return not self.deleted and self.holder == SHARDER_HOLDER

    def _label(self, key: str) -> str | None:
        value: str | None = (self.body["metadata"].get("labels") or {}).get(key)
        return value


class Chronicle:
    """Watches `resources` in `namespace`; an async context manager."""

    def __init__(self, admin: AdminClient, labels: RingLabels, namespace: str, *resources: str) -> None:
        self._admin = admin
        self._labels = labels
        self._namespace = namespace
        self._resources = (*resources, LEASES)
        self._seen: dict[str, list[Version]] = {resource: [] for resource in self._resources}
        self._news = asyncio.Condition()
        self._exits = AsyncExitStack()

    async def __aenter__(self) -> Self:
        tasks = [asyncio.create_task(self._follow(resource)) for resource in self._resources]
        self._exits.push_async_callback(_end, tasks)
        await self.caught_up()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._exits.aclose()

    @property
    def versions(self) -> list[Version]:
        """All that has been seen so far, first things first."""
        return sorted((each for seen in self._seen.values() for each in seen), key=lambda version: version.at)

    def of(self, resource: str, name: str | None = None) -> list[Version]:
        """The versions of one resource, or of one object, first things first."""
        return [each for each in self._seen[resource] if name in (None, each.name)]

    def lease(self, shard: str) -> list[Version]:
        """The versions of a shard's lease."""
        return self.of(LEASES, shard)

    def moves(self, resources: Iterable[str] | None = None) -> list[tuple[Version, Version]]:
        """Each time an object's shard label changed, except to and from nothing: before and after."""
        return [
            (before, after)
            for before, after in self.steps(resources)
            if before.shard and after.shard and before.shard != after.shard
        ]

    def steps(self, resources: Iterable[str] | None = None) -> list[tuple[Version, Version]]:
        """Each version with the one that it replaced, of everything but leases unless told otherwise."""
        wanted = set(resources) if resources is not None else set(self._resources) - {LEASES}
        last: dict[tuple[str, str], Version] = {}
        found = []
        for version in self.versions:
            if version.resource in wanted:
                before = last.get((version.resource, version.name))
                if before is not None:
                    found.append((before, version))
                last[version.resource, version.name] = version
        return found

    async def caught_up(self) -> None:
        """Return once everything that is in the API server now has been seen."""
        for resource in self._resources:
            current = {
                item["metadata"]["name"]: int(item["metadata"]["resourceVersion"])
                for item in await self._admin.list(resource, self._namespace)
            }
            await self.until(lambda resource=resource, current=current: self._reached(resource, current), 240.0)  # type: ignore[misc]

    async def until(self, condition: Callable[[], bool], timeout_seconds: float = 60.0) -> None:
        """Wait until `condition` holds; it is asked after every change.  Raises: TimeoutError."""
        async with asyncio.timeout(timeout_seconds), self._news:
            await self._news.wait_for(condition)

    def _reached(self, resource: str, current: dict[str, int]) -> bool:
        """Whether that or something newer was seen of each: what is written before following begins may be replaced."""
        newest: dict[str, int] = {}
        for version in self._seen[resource]:
            newest[version.name] = max(version.at, newest.get(version.name, 0))
        return all(newest.get(name, 0) >= at for name, at in current.items())

    async def _follow(self, resource: str) -> None:
        async with aclosing(self._admin.changes(resource, self._namespace)) as changes:
            async for event, body in changes:
                at = int(body["metadata"]["resourceVersion"])
                self._seen[resource].append(Version(at, resource, event == "DELETED", body, self._labels))
                async with self._news:
                    self._news.notify_all()


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

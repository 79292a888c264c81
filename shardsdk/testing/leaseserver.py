"""An API server that knows nothing but Leases, in memory.

`LeaseStore` is its state: versions, merge patches, conflicts.  `LeaseApi` is
one client's connection to it in virtual time, with delays, and faults that a
test switches on: requests lost on their way, answers lost on their way back,
everything hanging.

Does: what a keeper asks of an `Api` (get, create, patch).  Refuses: everything
else, by not having it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from enum import Enum
from typing import Any, TypeVar

import msgspec

from shardsdk.errors import AlreadyExists, Conflict, ConnectionFailed, NotFound
from shardsdk.kube.api import PARTIAL, Fence, PatchKind
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.objects import Resource
from shardsdk.testing.patching import merge
from shardsdk.testing.processes import outside

T = TypeVar("T")
Key = tuple[str, str]


class LeaseStore:
    """Leases by namespace and name, each write giving a new resourceVersion."""

    def __init__(self) -> None:
        self.version: int = 0
        self.objects: dict[Key, dict[str, Any]] = {}
        #: Every accepted write: the lease after it, or `None` for a deletion.
        self.history: list[Lease | None] = []

    def get(self, namespace: str, name: str) -> dict[str, Any]:
        """Raises: NotFound."""
        found = self.objects.get((namespace, name))
        if found is None:
            raise NotFound(f"lease {namespace}/{name} not found", status=404, reason="NotFound")
        return deepcopy(found)

    def find(self, namespace: str, name: str) -> Lease | None:
        """The lease as peers decode it; `None`: there is none."""
        found = self.objects.get((namespace, name))
        return None if found is None else msgspec.convert(found, Lease)

    def create(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Raises: AlreadyExists."""
        made = deepcopy(dict(body))
        key = (made["metadata"]["namespace"], made["metadata"]["name"])
        if key in self.objects:
            raise AlreadyExists(f"lease {key[0]}/{key[1]} exists", status=409, reason="AlreadyExists")
        made["metadata"]["uid"] = f"uid-{self.version + 1}"
        return self._store(key, made)

    def patch(self, namespace: str, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Apply a merge patch; one that changes nothing gives no new version.  Raises: NotFound, Conflict."""
        current = self.get(namespace, name)
        expected = body.get("metadata", {}).get("resourceVersion")
        if expected not in (None, current["metadata"]["resourceVersion"]):
            raise Conflict(f"lease {namespace}/{name} has changed", status=409, reason="Conflict")
        merged = merge(current, body)
        return current if merged == current else self._store((namespace, name), merged)

    def delete(self, namespace: str, name: str) -> None:
        """Raises: NotFound."""
        self.get(namespace, name)
        del self.objects[namespace, name]
        self.version += 1
        self.history.append(None)

    def _store(self, key: Key, made: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        made["metadata"]["resourceVersion"] = str(self.version)
        self.objects[key] = made
        self.history.append(msgspec.convert(made, Lease))
        return deepcopy(made)


class Fault(Enum):
    """What goes wrong with a client's requests."""

    NONE = "nothing"
    REFUSED = "the server can't be reached"
    LOST = "requests never arrive, and hang"
    UNANSWERED = "requests are executed, but their answers never arrive, and hang"


class LeaseApi:
    """One client of a `LeaseStore`; use it where an `Api` is asked for.

    `delay` gives the seconds that a request takes on its way, and its answer on
    the way back.
    """

    def __init__(self, store: LeaseStore, *, delay: Callable[[], float] = lambda: 0.001) -> None:
        self.store = store
        self.delay = delay
        self.fault = Fault.NONE
        #: Raised instead of executing anything.
        self.error: Exception | None = None
        self.requests: list[str] = []
        self.inflight_writes = 0

    async def get(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        model: type[T] = PARTIAL,
        metadata_only: bool = False,
    ) -> T:
        """As `Api.get`."""
        return await self._call("get", lambda: self.store.get(namespace or "", name), model)

    async def create(
        self,
        resource: Resource,
        body: Mapping[str, Any],
        namespace: str | None = None,
        *,
        model: type[T] = PARTIAL,
        fences: Sequence[Fence] = (),
        field_manager: str | None = None,
    ) -> T:
        """As `Api.create`."""
        return await self._call("create", lambda: self.store.create(body), model)

    async def patch(
        self,
        resource: Resource,
        name: str,
        namespace: str | None,
        body: Any,
        *,
        kind: PatchKind = PatchKind.MERGE,
        subresource: str = "",
        model: type[T] = PARTIAL,
        metadata_only: bool = True,
        fences: Sequence[Fence] = (),
        field_manager: str | None = None,
        force: bool = False,
        timeout_seconds: float | None = None,
    ) -> T:
        """As `Api.patch`, for merge patches."""
        return await self._call("patch", lambda: self.store.patch(namespace or "", name, body), model)

    async def writes_settled(self) -> None:
        """As `Api.writes_settled`."""

    async def _call(self, verb: str, execute: Callable[[], dict[str, Any]], model: type[T]) -> T:
        self.requests.append(verb)
        if self.fault is Fault.REFUSED:
            raise ConnectionFailed("connection refused")
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        outside(self._serve(execute, answer))
        return msgspec.convert(await answer, model)

    async def _serve(self, execute: Callable[[], dict[str, Any]], answer: asyncio.Future[dict[str, Any]]) -> None:
        """The request's way through network and server, whatever becomes of the client."""
        if self.fault is Fault.LOST:
            return
        await asyncio.sleep(self.delay())
        try:
            if self.error is not None:
                raise self.error
            result = execute()
        except Exception as error:
            await asyncio.sleep(self.delay())
            if not answer.done():
                answer.set_exception(error)
            return
        if self.fault is Fault.UNANSWERED:
            return
        await asyncio.sleep(self.delay())
        if not answer.done():
            answer.set_result(result)

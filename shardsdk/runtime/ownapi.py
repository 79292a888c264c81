"""The client that one reconcile of a shard is handed.

It is the shard's fenced client, and on top of that:

- *Children are labelled.*  What it writes with the reconciled object as its
  controller (creates, applies, updates, adopts by a merge patch) carries this
  shard's label from that write on, so that it never needs the webhook, never
  belongs to another shard than its owner, and shows in this shard's cache.
- *The main object is written only as it was read.*  Writes on it carry the
  resourceVersion that the reconcile began with (or that its own last write
  gave), so that whatever happened meanwhile answers 409.
- *Writes are expected.*  The object is not reconciled again before the caches
  show what was written; after a creation without an answer, not before a fresh
  list of the children.

Refuses: to touch anything else; other objects are written as the caller says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from shardsdk.errors import ApiError, FenceClosed, NotFound, ServerError, TooManyWrites
from shardsdk.kube.api import PARTIAL, Api, Body, Fence, PatchKind, T
from shardsdk.kube.decoding import identify
from shardsdk.protocol.objects import GroupResource, ObjectMeta, Resource
from shardsdk.runtime.identity import Identity
from shardsdk.runtime.objects import Request


class Notes(Protocol):
    """What is to be remembered of a reconcile's writes."""

    def wrote(self, resource: GroupResource, request: Request, version: str) -> None:
        """The object is now at `version`."""

    def deletes(self, resource: GroupResource, request: Request) -> Callable[[], None]:
        """The object as it is known is about to be deleted; call what is returned once it is."""

    def doubts(self) -> None:
        """A child may have been created without our knowing."""


class OwnApi:
    """An `Api` for the reconcile of one object; see the module."""

    def __init__(
        self,
        api: Api,
        identity: Identity,
        main: Resource,
        owner: ObjectMeta,
        controlled: frozenset[GroupResource],
        notes: Notes,
        max_writes: int | None = None,
    ) -> None:
        self._api = api
        self._identity = identity
        self._main = main
        self._owner = owner
        self._version = owner.resource_version
        self._controlled = controlled
        self._notes = notes
        self._max_writes = max_writes
        self._writes = 0
        # Reading, and what is about the client as a whole, goes through untouched.
        self.get: Final = api.get
        self.find: Final = api.find
        self.pages: Final = api.pages
        self.stream: Final = api.stream
        self.watch: Final = api.watch
        self.discover: Final = api.discover
        self.allowed: Final = api.allowed
        self.raw: Final = api.raw
        self.writes_settled: Final = api.writes_settled

    @property
    def version(self) -> str:
        """The reconciled object's resourceVersion: as it was read, or as the last write of this reconcile gave it."""
        return self._version

    @property
    def inflight_writes(self) -> int:
        """How many writes of the whole client were sent whose outcome is still open."""
        return self._api.inflight_writes

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
        """Create an object; one that the reconciled object controls gets this shard's label."""
        self._count_write()
        child = self._is_child(resource, body)
        labelled = self._label(body) if child else body
        with _Doubt(self._notes.doubts if child else None):
            made = await self._api.create(
                resource, labelled, namespace, model=model, fences=fences, field_manager=field_manager
            )
        self._note(resource, made)
        return made

    async def patch(
        self,
        resource: Resource,
        name: str,
        namespace: str | None,
        body: Body,
        *,
        kind: PatchKind = PatchKind.MERGE,
        subresource: str = "",
        model: type[T] = PARTIAL,
        metadata_only: bool | None = None,
        fences: Sequence[Fence] = (),
        field_manager: str | None = None,
        force: bool = False,
        timeout_seconds: float | None = None,
    ) -> T:
        """Change an object; server-side apply creates one that does not exist."""
        self._count_write()
        child = isinstance(body, Mapping) and self._is_child(resource, body)
        if self._is_owner(resource, Request(namespace or "", name)):
            body = self._at_version(body) if isinstance(body, Mapping) else self._test_version(body)
        elif child and isinstance(body, Mapping):
            body = self._label(body)
        with _Doubt(self._notes.doubts if child else None):
            made = await self._api.patch(
                resource, name, namespace, body, kind=kind, subresource=subresource, model=model,
                metadata_only=metadata_only, fences=fences, field_manager=field_manager, force=force,
                timeout_seconds=timeout_seconds,
            )  # fmt: skip
        self._note(resource, made)
        return made

    async def update(
        self,
        resource: Resource,
        body: Mapping[str, Any],
        *,
        subresource: str = "",
        model: type[T] = PARTIAL,
        fences: Sequence[Fence] = (),
    ) -> T:
        """Replace an object; the labels of sharding stay on the reconciled object and its children."""
        self._count_write()
        metadata = body.get("metadata") or {}
        if self._is_owner(resource, Request(metadata.get("namespace") or "", metadata.get("name") or "")):
            body = self._at_version(self._label(body))
        elif self._is_child(resource, body):
            body = self._label(body)
        made = await self._api.update(resource, body, subresource=subresource, model=model, fences=fences)
        self._note(resource, made)
        return made

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        resource_version: str | None = None,
        uid: str | None = None,
        propagation: str | None = None,
        fences: Sequence[Fence] = (),
    ) -> None:
        """Delete an object; the reconciled one only as it was read."""
        self._count_write()
        if self._is_owner(resource, Request(namespace or "", name)):
            resource_version, uid = resource_version or self._version, uid or self._owner.uid
        deleted = self._notes.deletes(resource.group_resource, Request(namespace or "", name))
        try:
            await self._api.delete(
                resource, name, namespace, resource_version=resource_version, uid=uid, propagation=propagation,
                fences=fences,
            )  # fmt: skip
        except NotFound:
            deleted()  # the cache does not know yet
            raise
        deleted()

    @property
    def writes_left(self) -> int | None:
        """How many writes this reconcile may still send; `None`: any number."""
        return None if self._max_writes is None else self._max_writes - self._writes

    # -- inside ------------------------------------------------------------

    def _count_write(self) -> None:
        if self.writes_left == 0:
            raise TooManyWrites(
                f"the reconcile of {self._owner.name!r} has sent {self._writes} writes, which is all that max_writes"
                " allows: return Requeue() to go on in another reconcile, or raise .options(max_writes=…)"
            )
        self._writes += 1

    def _is_owner(self, resource: Resource, request: Request) -> bool:
        return resource.group_resource == self._main.group_resource and request == (
            self._owner.namespace,
            self._owner.name,
        )

    def _is_child(self, resource: Resource, body: Mapping[str, Any]) -> bool:
        if resource.group_resource not in self._controlled:
            return False
        references = (body.get("metadata") or {}).get("ownerReferences") or ()
        return any(reference.get("controller") and reference.get("uid") == self._owner.uid for reference in references)

    def _label(self, body: Mapping[str, Any]) -> dict[str, Any]:
        metadata = body.get("metadata") or {}
        if not self._identity.labels:
            return {**body}
        labels = {**(metadata.get("labels") or {}), **self._identity.labels}
        return {**body, "metadata": {**metadata, "labels": labels}}

    def _at_version(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The same write, refused with 409 unless the object is the one that was read."""
        metadata = body.get("metadata") or {}
        return {**body, "metadata": {**metadata, "resourceVersion": metadata.get("resourceVersion") or self._version}}

    def _test_version(self, operations: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """The same for a JSON patch.  Not by `test`: the API server answers that with 422 instead of 409."""
        return [{"op": "add", "path": "/metadata/resourceVersion", "value": self._version}, *operations]

    def _note(self, resource: Resource, made: object) -> None:
        found = identify(made)
        request = Request(found.namespace, found.name)
        if not found.resource_version:
            if resource.group_resource in self._controlled:
                self._notes.doubts()  # decoded to something that does not show its version
            return
        if self._is_owner(resource, request):
            self._version = found.resource_version
        self._notes.wrote(resource.group_resource, request, found.resource_version)


class _Doubt:
    """Calls `doubts` when what happens inside may have been executed without an answer."""

    def __init__(self, doubts: Callable[[], None] | None) -> None:
        self._doubts = doubts

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if self._doubts is None or error is None:
            return
        answered = isinstance(error, ApiError) and not isinstance(error, ServerError)
        if not answered and not isinstance(error, FenceClosed):
            self._doubts()

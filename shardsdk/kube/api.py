"""The verbs of an API server, written once, over a transport that carries them out.

    Api         get, find, pages, stream, watch, create, patch, update, delete, discover, allowed, raw
      │         turns arguments into an `Operation`, a `Selection` and its options
    Transport   send, read_pages, read_stream, read_events, exchange, discover, writes_settled
      ├─ Client       HTTP (shardsdk.kube.client)
      ├─ MemoryApi    an API server in memory (shardsdk.testing.memoryapi)
      └─ OwnApi       another transport, with labels, versions and expectations (shardsdk.reconcile.ownapi)

Whoever types against `Api` runs on all of them.  A new verb is one method here,
as long as it is an operation on an object; a fence, a fault or a limit is a
`send` of its own and knows no verb's signature.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from types import NoneType
from typing import Any, Final, Generic, Literal, Protocol

import msgspec
from typing_extensions import TypeVar

from shardsdk.kube.identity import identify
from shardsdk.kube.initialevents import InitialEvents
from shardsdk.kube.selectors import Selector, equals
from shardsdk.protocol.objects import GroupResource, ObjectMeta, PartialObject, Resource

T = TypeVar("T", default=PartialObject)

#: Default for `model`: the metadata that sharding reads.  As the default of a `type[T]`
#: it has type checkers take T for PartialObject where no model is given; that it is no
#: default for any other T is ignored where it stands (overloads would say it too, twice
#: for each verb).
PARTIAL: Final[type[PartialObject]] = PartialObject

#: Default silence limit of a watch.  The API server sends a bookmark about once
#: a minute, so a watch that says nothing for longer is taken for dead.
#: Source: k8s.io/apiserver storage/cacher, bookmarkFrequency = 1 minute.
SILENCE_SECONDS: Final = 90.0

#: A page of a list has so many objects at most, unless the caller says otherwise.
PAGE_OBJECTS: Final = 500

Body = Mapping[str, Any] | Sequence[Mapping[str, Any]]

#: Questions about our own permissions: created, but never stored.
ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)

_EVERYTHING: Final = Selector()


class Fence(Protocol):
    """Whether writes are still allowed; asked at the last moment before each one is sent."""

    @property
    def name(self) -> str:
        """What is fenced, for messages (a lease's name)."""
        ...

    def remaining(self) -> float:
        """Seconds for which writes are allowed; zero or less: the fence is closed."""
        ...


class PatchKind(Enum):
    """How a patch's body is meant; the value is its content type."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    APPLY = "application/apply-patch+yaml"


class WatchKind(Enum):
    """What a watch event says."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


@dataclass(frozen=True, slots=True)
class Unfit:
    """An object that does not fit what it is to be: `error` says why.  Its metadata is known all the same.

    `gone`: that is how it was deleted, or left the selection.
    """

    metadata: ObjectMeta
    error: str
    gone: bool = False


class WatchEvent(msgspec.Struct, Generic[T], frozen=True):
    """One line of a watch.

    `object` is `None` for a bookmark only.  `resource_version` is where a later
    watch may go on.  `initial_end` marks the bookmark after the last initial
    event: everything that matched when the watch began has been sent.  An
    object that has changed and does not fit the model comes as a bookmark with
    what is known of it in `unfit`: what was known before is out of date.
    """

    kind: WatchKind
    object: T | None
    resource_version: str
    initial_end: bool = False
    unfit: Unfit | None = None

    @property
    def subject(self) -> T | PartialObject | None:
        """What it is about, fit or unfit; `None`: no object."""
        return self.object if self.unfit is None else PartialObject(self.unfit.metadata)


@dataclass(frozen=True, slots=True)
class Operation(Generic[T]):
    """One verb on one object.

    `fences` is `None` for what writes nothing.  `name` is empty when a creation
    leaves it to the API server.  A deletion's `body` is its DeleteOptions, and its
    `model` `NoneType`: nobody reads the answer.
    """

    verb: Literal["get", "create", "patch", "update", "delete"]
    resource: Resource
    name: str
    namespace: str | None
    body: Body | None = None
    fences: tuple[Fence, ...] | None = None
    model: type[T] = PARTIAL  # type: ignore[assignment]
    metadata_only: bool = True
    kind: PatchKind = PatchKind.MERGE
    subresource: str = ""
    field_manager: str | None = None
    force: bool = False
    timeout_seconds: float | None = None

    @property
    def writes(self) -> bool:
        """Whether it may change something."""
        return self.fences is not None

    def fenced(self, fences: tuple[Fence, ...]) -> Operation[T]:
        """The same, guarded by `fences` as well if it writes."""
        return self if self.fences is None or not fences else replace(self, fences=(*fences, *self.fences))


@dataclass(frozen=True, slots=True)
class Selection(Generic[T]):
    """The objects that are read, and as what."""

    resource: Resource
    namespace: str | None = None
    selector: Selector = _EVERYTHING
    model: type[T] = PARTIAL  # type: ignore[assignment]
    metadata_only: bool = True


@dataclass(frozen=True, slots=True)
class ListOptions:
    """How large a page is (`None`: as the API server likes), and who is told of what no page has.

    `on_version` is told the snapshot's resourceVersion before the first page,
    `on_unfit` of each object that does not fit the model.
    """

    limit: int | None
    on_version: Callable[[str], None] | None = None
    on_unfit: Callable[[Unfit], None] | None = None


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """Where a watch begins (`None`: with everything that exists) and when it ends."""

    resource_version: str | None
    silence_seconds: float = SILENCE_SECONDS
    timeout_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class RawRequest:
    """A request that is no verb on a resource; all but GET and HEAD write."""

    method: str
    path: str
    query: Sequence[tuple[str, str]] = ()
    body: bytes | None = None
    headers: Mapping[str, str] | None = None
    timeout_seconds: float | None = None


class Transport(Protocol):
    """What carries operations to an API server; `Api` says what each guarantees and raises."""

    async def send(self, operation: Operation[T]) -> T:
        """Carry out one operation."""
        ...

    def read_pages(self, selection: Selection[T], options: ListOptions) -> AsyncIterator[list[T]]:
        """One consistent snapshot, in pages."""
        ...

    def read_stream(self, selection: Selection[T], batch: int) -> AsyncIterator[list[T]]:
        """The same at the least cost."""
        ...

    def read_events(self, selection: Selection[T], options: WatchOptions) -> AsyncIterator[WatchEvent[T]]:
        """A watch over one connection."""
        ...

    async def exchange(self, request: RawRequest) -> bytes:
        """The body of the answer to any other request."""
        ...

    async def discover(self, group: str, plural: str) -> Resource | None:
        """The resource in its preferred version; `None`: not served."""
        ...

    @property
    def inflight_writes(self) -> int:
        """How many writes were sent whose outcome is still open."""
        ...

    async def writes_settled(self) -> None:
        """Return once those are answered, or can no longer be executed."""
        ...


class _Review(msgspec.Struct, frozen=True):
    allowed: bool = False


class _ReviewAnswer(msgspec.Struct, frozen=True):
    status: _Review = _Review()


class Api:
    """An API server, reached through `transport`.

    An object that is there is named by resource, name and namespace; one that is
    given whole names itself, unless `namespace` says where it is to be.

    Every call may raise the `ApiError` leaves, `ConnectionFailed` (no answer; a
    write may have happened) and, when it writes, `FenceClosed` (nothing was
    sent).  429 with Retry-After is retried inside a bounded number of times; all
    else is the caller's, by `error.retry`.  A request has `timeout_seconds` in all,
    or a default: an answer may take so long, pauses that 429 asks for included, and the
    API server is told to give a write up by then.

    `model` is what objects are decoded to: any type that msgspec decodes
    (`PartialObject`, `Lease`, a struct of your own, `dict`), or a class with
    `from_dict`.  With `metadata_only` the API server sends metadata alone
    (`None`: exactly when the model is `PartialObject`); `apiVersion` and `kind`
    then say `meta.k8s.io/v1 PartialObjectMetadata`.
    """

    def __init__(self, transport: Transport) -> None:
        self.transport: Transport = transport
        #: Whether to ask for them, by resource, as far as anybody has found out.
        self.initial_events: defaultdict[Resource, InitialEvents] = defaultdict(InitialEvents)
        #: Resources of whose watches bookmarks have come, other than that at the end of initial events.
        self.bookmarked: set[Resource] = set()

    async def send(self, operation: Operation[T]) -> T:
        """Carry out an operation: every verb that is about one object comes by here."""
        return await self.transport.send(operation)

    async def get(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        model: type[T] = PARTIAL,  # type: ignore[assignment]
        metadata_only: bool | None = None,
        timeout_seconds: float | None = None,
    ) -> T:
        """One object, consistently.  Raises: NotFound."""
        return await self.send(
            Operation(
                "get",
                resource,
                name,
                namespace,
                model=model,
                metadata_only=_wants_metadata(model, metadata_only),
                timeout_seconds=timeout_seconds,
            )
        )

    async def find(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        model: type[T] = PARTIAL,  # type: ignore[assignment]
        metadata_only: bool | None = None,
    ) -> T | None:
        """One object, consistently, with nothing but the `list` permission; `None`: there is none."""
        named = Selector(fields=equals("metadata.name", name))
        found: T | None = None
        selection = Selection(resource, namespace, named, model, _wants_metadata(model, metadata_only))
        async for page in self.transport.read_pages(selection, ListOptions(limit=None)):
            # An aggregated API server may not know field selectors, and send everything.
            found = next((each for each in page if identify(each).name in ("", name)), found)
        return found

    def pages(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        selector: Selector = _EVERYTHING,
        limit: int = PAGE_OBJECTS,
        model: type[T] = PARTIAL,  # type: ignore[assignment]
        metadata_only: bool | None = None,
        on_version: Callable[[str], None] | None = None,
        on_unfit: Callable[[Unfit], None] | None = None,
    ) -> AsyncIterator[list[T]]:
        """Everything selected, as one consistent snapshot in pages.

        `on_version` is told the snapshot's resourceVersion before the first page,
        `on_unfit` of each object that does not fit the model, which no page has.
        Raises: StreamInterrupted when the snapshot ran out before its last page.
        """
        selection = Selection(resource, namespace, selector, model, _wants_metadata(model, metadata_only))
        return self.transport.read_pages(selection, ListOptions(limit, on_version, on_unfit))

    def stream(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        selector: Selector = _EVERYTHING,
        model: type[T] = PARTIAL,  # type: ignore[assignment]
        metadata_only: bool | None = None,
        batch: int = PAGE_OBJECTS,
    ) -> AsyncIterator[list[T]]:
        """Everything selected, consistently, at the least cost; other tasks run between batches.

        Raises: StreamInterrupted when it ends before it is proven complete; forget
        what it gave and begin again.
        """
        selection = Selection(resource, namespace, selector, model, _wants_metadata(model, metadata_only))
        return self.transport.read_stream(selection, batch)

    def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        selector: Selector = _EVERYTHING,
        resource_version: str | None = None,
        initial_events: bool = False,
        model: type[T] = PARTIAL,  # type: ignore[assignment]
        metadata_only: bool | None = None,
        silence_seconds: float = SILENCE_SECONDS,
        timeout_seconds: int | None = None,
    ) -> AsyncIterator[WatchEvent[T]]:
        """Changes over one connection, until the API server ends it.

        `resource_version` says where to go on; once the API server has accepted
        that, a bookmark of that version comes first.  With `initial_events` it is left
        unset and everything that exists comes first, consistently, ended by an
        event with `initial_end`.  `timeout_seconds` asks the API server to end
        the watch after that time.

        Raises: Gone (410 in any of its forms: list again), StreamInterrupted
        (silent for `silence_seconds`, or broken: go on from the last version;
        of initial events whose end has not come, silent for 30 s at most, or,
        as `NoEnd`, without it though they have: begin anew, or list in pages),
        Invalid (initial events are not served here).
        """
        selection = Selection(resource, namespace, selector, model, _wants_metadata(model, metadata_only))
        since = None if initial_events else resource_version or ""
        return self.transport.read_events(selection, WatchOptions(since, silence_seconds, timeout_seconds))

    async def create(
        self,
        resource: Resource,
        body: Mapping[str, Any],
        namespace: str | None = None,
        *,
        model: type[T] = PARTIAL,  # type: ignore[assignment]
        fences: Sequence[Fence] = (),
        field_manager: str | None = None,
        timeout_seconds: float | None = None,
    ) -> T:
        """Create an object; `apiVersion` and `kind` are the resource's unless the body has them.

        Raises: AlreadyExists, Invalid.
        """
        metadata = body.get("metadata") or {}
        return await self.send(
            Operation(
                "create",
                resource,
                metadata.get("name") or metadata.get("generateName") or "",
                _namespace_of(resource, metadata, namespace),
                _typed(resource, body),
                tuple(fences),
                model,
                _wants_metadata(model, None),
                field_manager=field_manager,
                timeout_seconds=timeout_seconds,
            )
        )

    async def patch(
        self,
        resource: Resource,
        name: str,
        namespace: str | None,
        body: Body,
        *,
        kind: PatchKind = PatchKind.MERGE,
        subresource: str = "",
        model: type[T] = PARTIAL,  # type: ignore[assignment]
        metadata_only: bool | None = None,
        fences: Sequence[Fence] = (),
        field_manager: str | None = None,
        force: bool = False,
        timeout_seconds: float | None = None,
    ) -> T:
        """Change an object; `force` takes fields from other managers (server-side apply only).

        Raises: NotFound, Conflict (a `resourceVersion` in the body was stale), Invalid.
        """
        return await self.send(
            Operation(
                "patch",
                resource,
                name,
                namespace,
                body,
                tuple(fences),
                model,
                _wants_metadata(model, metadata_only),
                kind,
                subresource,
                field_manager,
                force,
                timeout_seconds,
            )
        )

    async def update(
        self,
        resource: Resource,
        body: Mapping[str, Any],
        namespace: str | None = None,
        *,
        subresource: str = "",
        model: type[T] = PARTIAL,  # type: ignore[assignment]
        fences: Sequence[Fence] = (),
    ) -> T:
        """Replace the object that `body` names; `apiVersion` and `kind` are the resource's unless the body has them.

        Raises: NotFound, Conflict, Invalid.
        """
        metadata = body.get("metadata") or {}
        return await self.send(
            Operation(
                "update",
                resource,
                metadata.get("name") or "",
                _namespace_of(resource, metadata, namespace),
                _typed(resource, body),
                tuple(fences),
                model,
                _wants_metadata(model, None),
                subresource=subresource,
            )
        )

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
        """Delete an object, if it is still the given version.  Raises: NotFound, Conflict.

        `propagation` is Kubernetes' `Background`, `Foreground` or `Orphan`.
        """
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        conditions = {"resourceVersion": resource_version, "uid": uid}
        if given := {key: value for key, value in conditions.items() if value}:
            options["preconditions"] = given
        if propagation:
            options["propagationPolicy"] = propagation
        await self.send(Operation("delete", resource, name, namespace, options, tuple(fences), NoneType))

    async def discover(self, group: str, plural: str) -> Resource | None:
        """The resource in the version that the API server prefers; `None`: not served.  Cached for seconds."""
        return await self.transport.discover(group, plural)

    async def allowed(
        self,
        verb: str,
        resource: GroupResource,
        *,
        namespace: str | None = None,
        name: str | None = None,
        subresource: str = "",
    ) -> bool:
        """Whether this identity may do it (`namespace` None: in all of them); asking writes nothing."""
        attributes = {
            "verb": verb,
            "group": resource.group,
            "resource": resource.resource,
            "subresource": subresource,
            "namespace": namespace or "",
            "name": name or "",
        }
        body = _typed(ACCESS_REVIEWS, {"spec": {"resourceAttributes": attributes}})
        review = Operation("create", ACCESS_REVIEWS, "", None, body, model=_ReviewAnswer, metadata_only=False)
        return (await self.send(review)).status.allowed

    async def raw(
        self,
        method: str,
        path: str,
        *,
        query: Sequence[tuple[str, str]] = (),
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
    ) -> bytes:
        """Any other request; the answer's body as it came.

        All but GET and HEAD are writes, and fenced.  A `timeout` in the query of a write
        gives way to what `timeout_seconds` and the fences leave.
        """
        return await self.transport.exchange(RawRequest(method.upper(), path, query, body, headers, timeout_seconds))

    @property
    def inflight_writes(self) -> int:
        """How many writes were sent whose outcome is still open."""
        return self.transport.inflight_writes

    async def writes_settled(self) -> None:
        """Return once every write sent so far is answered, or can no longer be executed."""
        await self.transport.writes_settled()


def _wants_metadata(model: Any, metadata_only: bool | None) -> bool:
    """Whether metadata alone is asked for."""
    return model is PartialObject if metadata_only is None else metadata_only


def _namespace_of(resource: Resource, metadata: Mapping[str, Any], given: str | None) -> str | None:
    """Where to put an object that is given whole."""
    return given or (metadata.get("namespace") if resource.namespaced else None) or None


def _typed(resource: Resource, body: Mapping[str, Any]) -> Mapping[str, Any]:
    """`body` with the resource's apiVersion and kind, without which an API server takes no custom resource."""
    return {"apiVersion": resource.api_version, **({"kind": resource.kind} if resource.kind else {}), **body}

"""What the rest of the project asks of an API server, as one protocol.

`Client` speaks to a real one; tests and simulations bring their own.  Whoever
types against `Api` runs on both.

Does: name the calls, their guarantees and their errors.  Refuses: to hold code.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Generic, Protocol

import msgspec
from typing_extensions import TypeVar

from shardsdk.kube.selectors import Selector
from shardsdk.protocol.objects import GroupResource, ObjectMeta, PartialObject, Resource

T = TypeVar("T", default=PartialObject)

#: Default for `model`: the metadata that sharding reads.  `Any`, because a type
#: variable cannot have a typed default value.
PARTIAL: Final[Any] = PartialObject

#: Default silence limit of a watch.  The API server sends a bookmark about once
#: a minute, so a watch that says nothing for longer is taken for dead.
#: Source: k8s.io/apiserver storage/cacher, bookmarkFrequency = 1 minute.
SILENCE_SECONDS: Final = 90.0

Body = Mapping[str, Any] | Sequence[Mapping[str, Any]]


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


class Api(Protocol):
    """An API server.

    Every call may raise the `ApiError` leaves, `ConnectionFailed` (no answer; a
    write may have happened) and, when it writes, `FenceClosed` (nothing was
    sent).  429 with Retry-After is retried inside a bounded number of times; all
    else is the caller's, by `error.retry`.

    `model` is what objects are decoded to: any type that msgspec decodes
    (`PartialObject`, `Lease`, a struct of your own, `dict`), or a class with
    `from_dict`.  With `metadata_only` the API server sends metadata alone
    (`None`: exactly when the model is `PartialObject`); `apiVersion` and `kind`
    then say `meta.k8s.io/v1 PartialObjectMetadata`.
    """

    async def get(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        model: type[T] = PARTIAL,
        metadata_only: bool | None = None,
    ) -> T:
        """One object, consistently.  Raises: NotFound."""
        ...

    async def find(self, resource: Resource, name: str, namespace: str | None = None) -> PartialObject | None:
        """Metadata of one object, consistently, with nothing but the `list` permission; `None`: there is none."""
        ...

    def pages(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        selector: Selector = ...,
        limit: int = 500,
        model: type[T] = PARTIAL,
        metadata_only: bool | None = None,
        on_version: Callable[[str], None] | None = None,
        on_unfit: Callable[[Unfit], None] | None = None,
    ) -> AsyncIterator[list[T]]:
        """Everything selected, as one consistent snapshot in pages.

        `on_version` is told the snapshot's resourceVersion before the first page,
        `on_unfit` of each object that does not fit the model, which no page has.
        Raises: StreamInterrupted when the snapshot ran out before its last page.
        """
        ...

    def stream(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        selector: Selector = ...,
        model: type[T] = PARTIAL,
        metadata_only: bool | None = None,
        batch: int = 500,
    ) -> AsyncIterator[list[T]]:
        """Everything selected, consistently, at the least cost; other tasks run between batches.

        Raises: StreamInterrupted when it ends before it is proven complete; forget
        what it gave and begin again.
        """
        ...

    def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        selector: Selector = ...,
        resource_version: str | None = None,
        initial_events: bool = False,
        model: type[T] = PARTIAL,
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
        (silent for `silence_seconds`, or broken: go on from the last version),
        Invalid (initial events are not served here).
        """
        ...

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
        """Create an object.  Raises: AlreadyExists, Invalid."""
        ...

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
        """Change an object.  Raises: NotFound, Conflict (a `resourceVersion` in the body was stale), Invalid."""
        ...

    async def update(
        self,
        resource: Resource,
        body: Mapping[str, Any],
        *,
        subresource: str = "",
        model: type[T] = PARTIAL,
        fences: Sequence[Fence] = (),
    ) -> T:
        """Replace the object that `body` names.  Raises: NotFound, Conflict, Invalid."""
        ...

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
        ...

    async def discover(self, group: str, plural: str) -> Resource | None:
        """The resource in the version that the API server prefers; `None`: not served.  Cached for seconds."""
        ...

    async def allowed(
        self,
        verb: str,
        resource: GroupResource,
        *,
        namespace: str | None = None,
        name: str | None = None,
        subresource: str = "",
    ) -> bool:
        """Whether this identity may do it (`namespace` None: in all of them)."""
        ...

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
        """Any other request; the answer's body as it came."""
        ...

    @property
    def inflight_writes(self) -> int:
        """How many writes were sent whose outcome is still open."""
        ...

    async def writes_settled(self) -> None:
        """Return once every write sent so far is answered, or can no longer be executed."""
        ...

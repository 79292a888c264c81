"""The client: `Api` against a real API server.

Does: bind requests, transport, decoding, watching and discovery together.
Refuses: to retry what may have been executed, to read at resourceVersion 0 (such
a list may miss writes and ignores `limit`), and to call half a list a list.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final, Self

import msgspec

from shardsdk.kube import requests
from shardsdk.kube.access import Access
from shardsdk.kube.answers import Target
from shardsdk.kube.api import PARTIAL, SILENCE_SECONDS, Body, Fence, PatchKind, T, Unfit, WatchEvent
from shardsdk.kube.clock import Clock, SystemClock
from shardsdk.kube.decoding import codec_of, identify
from shardsdk.kube.discovery import Discovery
from shardsdk.kube.pace import Pace
from shardsdk.kube.reading import Reader, Since, What
from shardsdk.kube.requests import wants_metadata
from shardsdk.kube.selectors import Selector, equals
from shardsdk.kube.transport import Observer, Transport
from shardsdk.protocol.objects import GroupResource, PartialObject, Resource
from shardsdk.version import VERSION

_EVERYTHING: Final = Selector()


class _Review(msgspec.Struct, frozen=True):
    allowed: bool = False


class _ReviewAnswer(msgspec.Struct, frozen=True):
    status: _Review = _Review()


class Client:
    """Speaks to one API server on one event loop: `async with Client(access) as client`.

    `fence` applies to every write, in addition to those that a call names.
    `on_call` is told verb, HTTP status (0: no answer) and seconds of each request.
    """

    def __init__(
        self,
        access: Access,
        *,
        fence: Fence | None = None,
        user_agent: str = "",
        clock: Clock | None = None,
        qps: float | None = None,
        burst: int = 1,
        on_call: Callable[[str, int, float], None] | None = None,
    ) -> None:
        self.access = access
        self._fences: tuple[Fence, ...] = (fence,) if fence is not None else ()
        clock = clock or SystemClock()
        self._transport = Transport(
            access,
            user_agent=user_agent or f"controller-sharding/{VERSION}",
            clock=clock,
            observer=Observer(on_call),
            pace=Pace(clock, qps=qps, burst=burst),
        )
        self._discovery = Discovery(lambda path: self.raw("GET", path), clock)
        self._reader = Reader(self._transport)

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._transport.__aexit__()

    async def get(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        model: type[T] = PARTIAL,
        metadata_only: bool | None = None,
    ) -> T:
        """One object, consistently."""
        alone = wants_metadata(model, metadata_only)
        call = requests.one_call("get", "GET", resource, name, namespace, metadata_only=alone)
        return self._decode(model, call.target, await self._transport.fetch(call))

    async def find(self, resource: Resource, name: str, namespace: str | None = None) -> PartialObject | None:
        """Metadata of one object with the `list` permission alone; `None`: there is none."""
        pages = self._reader.pages(
            What(resource, namespace, Selector(fields=equals("metadata.name", name)), PartialObject, True), limit=None
        )
        found: PartialObject | None = None
        async for page in pages:
            found = page[0]
        return found

    def pages(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        selector: Selector = _EVERYTHING,
        limit: int = 500,
        model: type[T] = PARTIAL,
        metadata_only: bool | None = None,
        on_version: Callable[[str], None] | None = None,
        on_unfit: Callable[[Unfit], None] | None = None,
    ) -> AsyncIterator[list[T]]:
        """Everything selected, as one consistent snapshot."""
        what = What(resource, namespace, selector, model, wants_metadata(model, metadata_only))
        return self._reader.pages(what, limit=limit, on_version=on_version, on_unfit=on_unfit)

    def stream(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        selector: Selector = _EVERYTHING,
        model: type[T] = PARTIAL,
        metadata_only: bool | None = None,
        batch: int = 500,
    ) -> AsyncIterator[list[T]]:
        """Everything selected, by initial events where they are served, else in pages."""
        what = What(resource, namespace, selector, model, wants_metadata(model, metadata_only))
        return self._reader.stream(what, batch)

    def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        selector: Selector = _EVERYTHING,
        resource_version: str | None = None,
        initial_events: bool = False,
        model: type[T] = PARTIAL,
        metadata_only: bool | None = None,
        silence_seconds: float = SILENCE_SECONDS,
        timeout_seconds: int | None = None,
    ) -> AsyncIterator[WatchEvent[T]]:
        """Changes over one connection, until the API server ends it."""
        what = What(resource, namespace, selector, model, wants_metadata(model, metadata_only))
        since = Since(None if initial_events else resource_version or "", silence_seconds, timeout_seconds)
        return self._reader.watch(what, since)

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
        """Create an object."""
        call = requests.create_call(
            resource,
            body,
            namespace,
            metadata_only=wants_metadata(model, None),
            fences=(*self._fences, *fences),
            field_manager=field_manager,
        )
        return self._decode(model, call.target, await self._transport.fetch(call))

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
        """Change an object; `force` takes fields from other managers (server-side apply only)."""
        call = requests.one_call(
            "patch",
            "PATCH",
            resource,
            name,
            namespace,
            subresource=subresource,
            query=requests.managed_by(field_manager) + ([("force", "true")] if force else []),
            body=requests.encode(body),
            content_type=kind.value,
            metadata_only=wants_metadata(model, metadata_only),
            fences=(*self._fences, *fences),
            timeout_seconds=timeout_seconds,
        )
        return self._decode(model, call.target, await self._transport.fetch(call))

    async def update(
        self,
        resource: Resource,
        body: Mapping[str, Any],
        *,
        subresource: str = "",
        model: type[T] = PARTIAL,
        fences: Sequence[Fence] = (),
    ) -> T:
        """Replace the object that `body` names."""
        who = identify(body)
        call = requests.one_call(
            "update",
            "PUT",
            resource,
            who.name,
            who.namespace or None,
            subresource=subresource,
            body=requests.encode(body),
            metadata_only=wants_metadata(model, None),
            fences=(*self._fences, *fences),
        )
        return self._decode(model, call.target, await self._transport.fetch(call))

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
        """Delete an object, if it is still the given version."""
        call = requests.one_call(
            "delete",
            "DELETE",
            resource,
            name,
            namespace,
            body=requests.delete_options(resource_version, uid, propagation),
            fences=(*self._fences, *fences),
        )
        await self._transport.fetch(call)

    async def discover(self, group: str, plural: str) -> Resource | None:
        """The resource in the preferred version that serves it; `None`: not served."""
        return await self._discovery.find(group, plural)

    async def allowed(
        self,
        verb: str,
        resource: GroupResource,
        *,
        namespace: str | None = None,
        name: str | None = None,
        subresource: str = "",
    ) -> bool:
        """Whether this identity may do it, by SelfSubjectAccessReview."""
        call = requests.access_review(verb, resource, namespace=namespace, name=name, subresource=subresource)
        answer: _ReviewAnswer = self._decode(_ReviewAnswer, call.target, await self._transport.fetch(call))
        return answer.status.allowed

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
        """Any other request; all but GET and HEAD are writes, and fenced."""
        call = requests.raw_call(method.upper(), path, query, body, headers, self._fences, timeout_seconds)
        return await self._transport.fetch(call)

    @property
    def inflight_writes(self) -> int:
        """How many writes were sent whose outcome is still open."""
        return len(self._transport.ledger)

    async def writes_settled(self) -> None:
        """Return once every write sent so far is answered, or can no longer be executed."""
        await self._transport.ledger.settled()

    def _decode(self, model: type[T], target: Target, body: bytes) -> T:
        return codec_of(model).decode(target, body)

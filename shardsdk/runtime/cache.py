"""A shard's copy of the objects of one resource, kept current by a reflector.

Guarantees, each named by a test in tests/unit/test_cache.py: what it hands out
is a private copy, so that no reconciler can corrupt what others read; an
object's children are found by the uid in their controller reference; listeners
are told of a change after the cache shows it, in the order it came.

Does not guarantee to be up to date: it is as old as its watch.  Whoever must
not miss something asks the API server (`stream_metadata`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from random import Random
from typing import Final, Generic, TypeVar

from shardsdk.errors import ShardingError
from shardsdk.kube.api import PARTIAL, SILENCE_SECONDS, Api
from shardsdk.kube.clock import Clock
from shardsdk.kube.reflector import Delta, EventKind, Reflector
from shardsdk.kube.selectors import Selector
from shardsdk.protocol.objects import PartialObject, Resource
from shardsdk.runtime.objects import Request, drop_managed_fields, is_at_least, metadata_of, private_copy, request_of

T = TypeVar("T")

EVERYTHING: Final = Selector()
_BY_CONTROLLER: Final = "controller"
#: So many deletions are remembered by their version.  Who asks whether a
#: version was seen asks within moments; a forgotten one only costs a wait.
MAX_REMEMBERED_DELETIONS: Final = 10_000


class Cache(Generic[T]):
    """Objects of `resource` that `selector` selects, in `namespace` (`None`: all of them).

    `model` is what they are decoded to, and `metadata_only` whether the API
    server sends metadata alone (`None`: just when `model` holds nothing else);
    `transform` may drop what nobody needs.
    """

    def __init__(
        self,
        api: Api,
        resource: Resource,
        *,
        clock: Clock,
        rng: Random,
        namespace: str | None = None,
        selector: Selector = EVERYTHING,
        model: type[T] = PARTIAL,
        metadata_only: bool | None = None,
        transform: Callable[[T], T] = drop_managed_fields,
        silence_seconds: float = SILENCE_SECONDS,
    ) -> None:
        self.resource = resource
        self.namespace = namespace
        self.selector = selector
        self.model = model
        self._api = api
        self._listeners: list[Callable[[Delta[T]], None]] = []
        self._deletions: OrderedDict[Request, str] = OrderedDict()
        self._reflector: Reflector[T] = Reflector(
            api,
            resource,
            namespace=namespace,
            selector=selector,
            model=model,
            metadata_only=metadata_only,
            handler=self._on_delta,
            name=f"cache/{resource.group_resource}",
            clock=clock,
            rng=rng,
            silence_seconds=silence_seconds,
            transform=transform,
            indexes={_BY_CONTROLLER: _controller_uid},
        )

    def listen(self, listener: Callable[[Delta[T]], None]) -> None:
        """Tell `listener` of every change; it must neither wait nor keep or change the objects."""
        self._listeners.append(listener)

    async def run(self) -> None:
        """Fill the cache and keep it current until cancelled."""
        await self._reflector.run()

    async def wait_synced(self) -> None:
        """Wait for the first complete, consistent list."""
        await self._reflector.synced.wait()

    @property
    def synced(self) -> bool:
        """Whether the first complete, consistent list is in."""
        return self._reflector.synced.is_set()

    @property
    def failure(self) -> ShardingError | None:
        """Why the cache is not current; `None` when it is."""
        return self._reflector.failure

    # -- reading ----------------------------------------------------------

    def get(self, request: Request) -> T | None:
        """A copy of one object; `None`: not in the cache."""
        thing = self.peek(request)
        return None if thing is None else private_copy(thing)

    def controlled_by(self, uid: str) -> list[T]:
        """Copies of the objects whose controller reference has this uid, by name."""
        found = self._reflector.store.by_index(_BY_CONTROLLER, uid)
        return [private_copy(thing) for thing in sorted(found, key=request_of)]

    def peek(self, request: Request) -> T | None:
        """One object itself, for code that promises not to change it."""
        return self._reflector.store.get(request.namespace, request.name)

    def has_seen(self, request: Request, version: str) -> bool:
        """Whether the cache shows an object at `version` or later, or has seen it end at such a version."""
        thing = self.peek(request)
        known = self._deletions.get(request) if thing is None else metadata_of(thing).resource_version
        return known is not None and is_at_least(known, version)

    def requests(self) -> list[Request]:
        """The names of all objects."""
        return list(self._reflector.store.view)

    def __len__(self) -> int:
        return len(self._reflector.store)

    def stream_metadata(self) -> AsyncIterator[list[PartialObject]]:
        """Metadata of the same selection from the API server, consistently.

        Raises: StreamInterrupted and whatever else a list may raise.
        """
        return self._api.stream(self.resource, self.namespace, selector=self.selector)

    # -- inside -----------------------------------------------------------

    def _on_delta(self, delta: Delta[T]) -> None:
        request = request_of(delta.object)
        self._deletions.pop(request, None)
        if delta.kind is EventKind.DELETED:
            self._deletions[request] = metadata_of(delta.object).resource_version
            if len(self._deletions) > MAX_REMEMBERED_DELETIONS:
                self._deletions.popitem(last=False)
        for listener in self._listeners:
            listener(delta)


def _controller_uid(thing: object) -> tuple[str, ...]:
    controller = metadata_of(thing).controller
    return () if controller is None else (controller.uid,)

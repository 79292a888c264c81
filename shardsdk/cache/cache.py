"""A process's copy of the objects of one resource, kept current by watches.

    cache = Cache(api, PODS, selector=Selector(fields="spec.nodeName=one"), indexes={"claim": claims_of}, ...)
    for pod in cache.by_index("claim", "data"): ...

Guarantees, each named by a test in tests/unit/shardsdk/cache/test_cache.py: what it hands out
is a private copy, so that no reconciler can corrupt what others read; an
object's children are found by the uid in their controller reference; listeners
are told of a change after the cache shows it, in the order it came.  What does
not fit its model, or makes a transform or an index raise, is no object of the
cache; it counts as seen all the same, and its metadata is known.

Does not guarantee to be up to date: it is as old as its watch.  Whoever must
not miss something asks the API server (`stream`).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from shardsdk.cache.objects import Request, drop_managed_fields, is_at_least, metadata_of, private_copy, request_of
from shardsdk.errors import ConfigurationError, NotServed, ShardingError
from shardsdk.kube.api import PARTIAL, Api, T, Unfit
from shardsdk.kube.clock import Clock
from shardsdk.kube.mirror import OnUnfit, contain
from shardsdk.kube.models import check_model
from shardsdk.kube.reflector import Delta, EventKind, Reflector
from shardsdk.kube.selectors import Selector
from shardsdk.kube.store import Index
from shardsdk.protocol.objects import ObjectMeta, Resource
from shardsdk.protocol.ranges import NOWHERE, HashBy, HashRanges

if TYPE_CHECKING:
    from shardsdk.kube.slices import Slice

M = TypeVar("M")

EVERYTHING: Final = Selector()
_BY_CONTROLLER: Final = "controller"
#: So many deletions are remembered by their version.  Who asks whether a
#: version was seen asks within moments; a forgotten one only costs a wait.
MAX_REMEMBERED_DELETIONS: Final = 10_000


class Cache(Generic[T]):
    """Objects of `resource` that `selector` selects by labels and fields, in `namespaces` (none: in all of them).

    `model` is what they are decoded to, and `metadata_only` whether the API
    server sends metadata alone (`None`: just when `model` holds nothing else);
    `transform` may drop what nobody needs, before it is stored.  `indexes` give
    the values under which `by_index` finds an object.  There is one watch for
    each namespace.  With `hash_by` it holds the objects in ranges of hashes
    alone, at first in none: those that `show` was told last.
    """

    def __init__(
        self,
        api: Api,
        resource: Resource,
        *,
        clock: Clock,
        rng: Random,
        namespace: str | None = None,
        namespaces: Sequence[str] = (),
        selector: Selector = EVERYTHING,
        model: type[T] = PARTIAL,  # type: ignore[assignment]
        metadata_only: bool | None = None,
        transform: Callable[[T], T] = drop_managed_fields,
        indexes: Mapping[str, Index[T]] | None = None,
        hash_by: HashBy | None = None,
    ) -> None:
        check_model(model, resource)
        if _BY_CONTROLLER in (indexes or {}):
            raise ConfigurationError(f"an index of {resource.plural} is called {_BY_CONTROLLER!r}, which is taken")
        self.resource = resource
        self.selector = selector
        self.model = model
        self._api = api
        self._clock = clock
        self._listeners: list[Callable[[Delta[T]], None]] = []
        self._unfit_listeners: list[OnUnfit] = []
        self._at_end: list[Callable[[], None]] = []
        self._hash_by = hash_by
        self._shown = NOWHERE
        self._dropping = False
        #: How often its type was found not to be served; owners that came meanwhile have left their children behind.
        self.absences: int = 0
        self._deletions: OrderedDict[Request, str] = OrderedDict()
        #: What cannot be shown, by the uid of its controller.
        self._unfit_children: dict[str, dict[Request, Unfit]] = {}

        def reflect(where: str | None) -> Reflector[T]:
            return Reflector(
                api,
                resource,
                namespace=where,
                selector=selector,
                model=model,
                metadata_only=metadata_only,
                handler=self._on_delta,
                on_unfit=self._on_unfit,
                on_failing=partial(self._on_failing, where),
                name=f"cache/{resource.group_resource}" + (f" in {where}" if len(namespaces) > 1 else ""),
                clock=clock,
                rng=rng,
                transform=transform,
                part=None if hash_by is None else _slice(hash_by),
                indexes={**(indexes or {}), _BY_CONTROLLER: _controller_uid},
            )

        # The empty name means all of them, as for Go programs and their WATCH_NAMESPACE.
        wanted = {where or None: None for where in (namespaces or (namespace,))}
        if None in wanted and len(wanted) > 1:
            raise ConfigurationError(
                f"{resource.plural} are to be cached of all namespaces ('') and of some: leave the others out"
            )
        #: By namespace; `None`: one for all.
        self._reflectors: dict[str | None, Reflector[T]] = {where: reflect(where) for where in wanted}

    def listen(self, listener: Callable[[Delta[T]], None]) -> Callable[[], None]:
        """Tell `listener` of every change; it must neither wait nor keep or change the objects.

        Call what is returned to tell it no more.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def listen_unfit(self, listener: OnUnfit) -> Callable[[], None]:
        """Tell `listener` of every object that cannot be shown, and when that is over.

        One that was in the cache leaves it, as if it were deleted, before.
        Call what is returned to tell it no more.
        """
        self._unfit_listeners.append(listener)
        return lambda: self._unfit_listeners.remove(listener)

    def tell_again(self, request: Request) -> None:
        """Tell every listener of an object as it is: what it is to this shard has changed, and the object has not."""
        thing = self.peek(request)
        if thing is not None:
            self._on_delta(Delta(EventKind.MODIFIED, thing, thing, initial=False))

    def show(self, ranges: HashRanges) -> None:
        """Hold the objects in these ranges alone, of a cache by ranges.

        Others leave it at once, as if they were deleted; what is new comes with a consistent list, begun from now on.
        """
        self._shown = ranges
        self._dropping = True
        try:
            for reflector in self._reflectors.values():
                reflector.show(ranges)
        finally:
            self._dropping = False

    @property
    def filtered(self) -> bool | None:
        """Whether the API server sends no more than these ranges, as far as it has shown; `None`: not known."""
        known = [each.filtered for each in self._reflectors.values() if each.filtered is not None]
        return all(known) if known else None

    async def run(self) -> None:
        """Fill the cache and keep it current until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for reflector in self._reflectors.values():
                    group.create_task(reflector.run(), name=reflector.name)
        finally:
            while self._at_end:
                self._at_end.pop()()

    def at_end(self, forget: Callable[[], None]) -> None:
        """Call `forget` once `run` has ended: what it holds is not kept current any more."""
        self._at_end.append(forget)

    async def wait_synced(self) -> None:
        """Wait for the first complete, consistent list."""
        for reflector in self._reflectors.values():
            await reflector.synced.wait()

    @property
    def synced(self) -> bool:
        """Whether the first complete, consistent list is in."""
        return all(reflector.synced.is_set() for reflector in self._reflectors.values())

    @property
    def failure(self) -> ShardingError | None:
        """Why the cache is not current; `None` when it is."""
        return next((each.failure for each in self._reflectors.values() if each.failure is not None), None)

    @property
    def unread(self) -> tuple[float, str | None, ShardingError | None] | None:
        """What the API server has refused for longest to have listed and watched; `None`: it refuses nothing of it.

        For how many seconds, in which namespace (`None`: in all), and why the latest attempt has failed there.
        """
        now = self._clock.monotonic()
        refused = [
            (max(now - each.pauses.refused_since, 0.0), where, each.failure)
            for where, each in self._reflectors.items()
            if each.pauses.refused_since is not None
        ]
        return max(refused, key=lambda each: each[0], default=None)

    @property
    def unread_seconds(self) -> float:
        """For how long the API server has refused each list and watch of it, or of a part; 0: it has not."""
        return 0.0 if (unread := self.unread) is None else unread[0]

    # -- reading ----------------------------------------------------------

    def get(self, request: Request) -> T | None:
        """A copy of one object; `None`: not in the cache."""
        thing = self.peek(request)
        return None if thing is None else private_copy(thing)

    def controlled_by(self, uid: str) -> list[T]:
        """Copies of the objects whose controller reference has this uid, by name."""
        return self.by_index(_BY_CONTROLLER, uid)

    def by_index(self, index: str, value: str, *, namespace: str | None = None) -> list[T]:
        """Copies of the objects in `namespace` (`None`: in all that it holds) for which `index` gives `value`, by name.

        Raises: KeyError for an index that the cache does not have.
        """
        found = [thing for each in self._reflectors.values() for thing in each.store.by_index(index, value)]
        if namespace is not None:
            found = [thing for thing in found if metadata_of(thing).namespace == namespace]
        return [private_copy(thing) for thing in sorted(found, key=request_of)]

    def requests_by_index(self, index: str, value: str) -> list[Request]:
        """The names of the objects for which `index` gives `value`.  Raises: KeyError, as `by_index`."""
        return sorted(
            request_of(thing) for each in self._reflectors.values() for thing in each.store.by_index(index, value)
        )

    def peek(self, request: Request) -> T | None:
        """One object itself, for code that promises not to change it."""
        reflector = self._reflectors.get(None) or self._reflectors.get(request.namespace)
        return None if reflector is None else reflector.store.get(request.namespace, request.name)

    def metadata(self, request: Request) -> ObjectMeta | None:
        """The metadata of one object, also of one that cannot be shown; `None`: not in the cache."""
        thing = self.peek(request)
        if thing is not None:
            return metadata_of(thing)
        unfit = self.unfit_of(request)
        return None if unfit is None else unfit.metadata

    def unfit_of(self, request: Request) -> Unfit | None:
        """Why one object cannot be shown; `None`: it can, or it is not in the cache."""
        reflector = self._reflectors.get(None) or self._reflectors.get(request.namespace)
        return None if reflector is None else reflector.unfit.get(request)

    def unfit_children(self, uid: str) -> Mapping[Request, Unfit]:
        """What cannot be shown of the objects whose controller reference has this uid."""
        return self._unfit_children.get(uid, {})

    @property
    def unfit(self) -> list[Unfit]:
        """What cannot be shown."""
        return [unfit for reflector in self._reflectors.values() for unfit in list(reflector.unfit.values())]

    def has_seen(self, request: Request, version: str) -> bool:
        """Whether the cache has an object at `version` or later, shown or not, or has seen it end at such a version."""
        metadata = self.metadata(request)
        known = self._deletions.get(request) if metadata is None else metadata.resource_version
        return known is not None and is_at_least(known, version)

    def requests(self) -> list[Request]:
        """The names of all objects."""
        return [request for reflector in self._reflectors.values() for request in reflector.store.view]

    def __len__(self) -> int:
        return sum(len(reflector.store) for reflector in self._reflectors.values())

    async def stream(self, model: type[M], selector: Selector | None = None) -> AsyncIterator[list[M]]:
        """The metadata of the same selection from the API server, consistently, as a `model` of it; or of another one.

        Raises: StreamInterrupted and whatever else a list may raise.
        """
        selected = selector or self.selector
        if self._hash_by is not None:
            if not self._shown:
                return
            selected = replace(selected, shards=self._shown.selector(self._hash_by))
        try:
            for namespace in self._reflectors:
                async for batch in self._api.stream(
                    self.resource, namespace, selector=selected, model=model, metadata_only=True
                ):
                    yield batch
        except NotServed:
            self.absences += 1  # a watch may go on all the while, of an aggregated API say, and tell nothing of it
            raise

    # -- inside -----------------------------------------------------------

    def _on_delta(self, delta: Delta[T]) -> None:
        request = request_of(delta.object)
        self._deletions.pop(request, None)
        if delta.kind is EventKind.DELETED:
            self._note_end(request, metadata_of(delta.object))
        for listener in tuple(self._listeners):
            # One by one: what one raises keeps nothing from the others, a drain least of all.
            contain(partial(listener, delta), str(self.resource.group_resource))

    def _on_failing(self, where: str | None) -> None:
        if isinstance(self._reflectors[where].failure, NotServed):
            self.absences += 1

    def _on_unfit(self, unfit: Unfit, before: Unfit | None) -> None:
        request = Request(unfit.metadata.namespace, unfit.metadata.name)
        if before is not None:
            self._unindex(request, before)
        if unfit.gone:
            self._note_end(request, unfit.metadata)
        elif unfit.error:
            self._deletions.pop(request, None)
            if unfit.metadata.controller is not None:
                self._unfit_children.setdefault(unfit.metadata.controller.uid, {})[request] = unfit
        for listener in tuple(self._unfit_listeners):
            contain(partial(listener, unfit, before), str(self.resource.group_resource))

    def _unindex(self, request: Request, before: Unfit) -> None:
        uid = "" if before.metadata.controller is None else before.metadata.controller.uid
        siblings = self._unfit_children.get(uid, {})
        siblings.pop(request, None)
        if not siblings:
            self._unfit_children.pop(uid, None)

    def _note_end(self, request: Request, metadata: ObjectMeta) -> None:
        if self._dropping:
            return  # it has not ended: should it come back, it may be at this very version
        self._deletions[request] = metadata.resource_version
        if len(self._deletions) > MAX_REMEMBERED_DELETIONS:
            self._deletions.popitem(last=False)


def _slice(by: HashBy) -> Slice:
    from shardsdk.kube.slices import Slice  # most caches hold all that is selected

    return Slice(by)


def _controller_uid(thing: object) -> tuple[str, ...]:
    controller = metadata_of(thing).controller
    return () if controller is None else (controller.uid,)

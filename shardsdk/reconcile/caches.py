"""The caches of one process: one per resource, whoever looks at it.

Does: make them as they are asked for, with what the user set for each
resource, and run them together.  Refuses: two models of one resource, because
the second would double its memory and its watches (`check_specs` says so).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from shardsdk.cache.cache import Cache
from shardsdk.cache.identity import Identity
from shardsdk.cache.objects import drop_managed_fields
from shardsdk.errors import ApiError, ConfigurationError, Forbidden, TooManyRequests, Unauthorized
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock
from shardsdk.kube.selectors import Selector
from shardsdk.kube.store import Index
from shardsdk.logs import logger_of
from shardsdk.protocol.objects import GroupResource, Resource
from shardsdk.protocol.ranges import HashRanges
from shardsdk.queueing.functions import check_plain
from shardsdk.reconcile.spec import Scope, Source, Work

log: Final = logger_of(__name__)

#: For how long reads have to be refused before that counts: longer than an API server starts, and than the longest
#: pause between two attempts.
UNREAD_SECONDS: Final = 90.0
#: How often it is told.
TELL_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """What is cached of one resource; see `Manager.cache`.  `namespaces` None: those of the manager.

    Raises: ConfigurationError for an index that is no plain function.
    """

    namespaces: Sequence[str] | None = None
    selector: Selector | None = None
    indexes: Mapping[str, Index[Any]] = field(default_factory=dict)
    transform: Callable[[Any], Any] = drop_managed_fields

    def __post_init__(self) -> None:
        for name, function in self.indexes.items():
            check_plain(function, f"the index {name!r}")

    def joined(self, further: CacheSettings, resource: GroupResource) -> CacheSettings:
        """These, and `further` ones of the same `resource`.

        Raises: ConfigurationError when both say something, and not the same: one resource has one cache.
        """
        changes: dict[str, Any] = {}
        for name, unsaid in (("namespaces", None), ("selector", None), ("transform", drop_managed_fields)):
            mine, other = getattr(self, name), getattr(further, name)
            if unsaid not in (mine, other) and not _is_same(mine, other, in_any_order=name == "namespaces"):
                raise ConfigurationError(f"the cache of {resource} is given two different {name}: say one")
            changes[name] = mine if other == unsaid else other
        for name in self.indexes.keys() & further.indexes.keys():
            if self.indexes[name] != further.indexes[name]:
                raise ConfigurationError(f"two indexes of {resource} are called {name!r}: rename one")
        return CacheSettings(**changes, indexes={**self.indexes, **further.indexes})


def _is_same(one: Any, other: Any, *, in_any_order: bool) -> bool:
    return bool(set(one) == set(other) if in_any_order else one == other)


class Caches:
    """Caches of what is `shard`'s (`None`: of whole resources), read through `api`."""

    def __init__(
        self,
        api: Api,
        shard: Identity | None,
        *,
        namespaces: Sequence[str] = (),
        settings: Mapping[GroupResource, CacheSettings] | None = None,
        clock: Clock,
        rng: Random,
    ) -> None:
        self._api = api
        self._shard = shard
        self._namespaces = namespaces
        self._settings = settings or {}
        self._clock = clock
        self._rng = rng
        self._caches: dict[GroupResource, Cache[Any]] = {}

    def of(self, source: Source) -> Cache[Any]:
        """The cache of a resource; the first who asks has it made."""
        name = source.resource.group_resource
        if name not in self._caches:
            settings = self.settings_of(name)
            self._caches[name] = Cache(
                self._api,
                source.resource,
                clock=self._clock,
                rng=self._rng,
                namespaces=namespaces_of(source.resource, self._settings, self._namespaces),
                selector=self._select(settings.selector),
                model=source.model,
                metadata_only=source.metadata_only,
                transform=settings.transform,
                indexes=settings.indexes,
                hash_by=None if self._shard is None else self._shard.hash_by,
            )
        return self._caches[name]

    def settings_of(self, name: GroupResource) -> CacheSettings:
        """What the user said of a resource."""
        return self._settings.get(name, CacheSettings())

    def namespaces_of_all(self, resources: Iterable[Resource]) -> frozenset[str] | None:
        """The namespaces in which objects of each of `resources` are read that have one; `None`: in all."""
        named = [
            frozenset(namespaces_of(each, self._settings, self._namespaces)) for each in resources if each.namespaced
        ]
        some = [each for each in named if each and "" not in each]
        return frozenset.intersection(*some) if some else None

    def _select(self, own: Selector | None) -> Selector:
        return own or Selector() if self._shard is None else self._shard.selector(own)

    def __iter__(self) -> Iterator[Cache[Any]]:
        return iter(self._caches.values())

    def show(self, ranges: HashRanges) -> None:
        """Hold the objects in these ranges of hashes alone; see `Cache.show`."""
        for cache in self._caches.values():
            cache.show(ranges)

    def filtered(self) -> float:
        """1: the API server sends what lies in these ranges alone, as far as it has shown; 0: more; NaN: not known."""
        known = [each.filtered for each in list(self._caches.values()) if each.filtered is not None]
        return float(all(known)) if known else float("nan")

    async def run(self) -> None:
        """Fill all that were made and keep them current, until cancelled; say it, again and again, if that fails."""
        async with asyncio.TaskGroup() as group:
            for name, cache in self._caches.items():
                group.create_task(cache.run(), name=f"cache/{name}")
            await self._tell_unread()

    async def _tell_unread(self) -> None:
        told: set[GroupResource] = set()
        while True:
            await self._clock.sleep(TELL_SECONDS)
            for name, cache in self._caches.items():
                if (unread := _unread(cache)) is not None:
                    told.add(name)
                    seconds, namespace, error = unread
                    where = {} if namespace is None else {"namespace": namespace}
                    log.warning(
                        "A resource cannot be read; what happens to its objects is not seen, and nobody works on it",
                        extra={
                            "resource": str(name),
                            **where,
                            "seconds": round(seconds),
                            "error": str(error),
                            "remedy": _remedy_of(error),
                        },
                    )
                elif name in told and not cache.unread_seconds:
                    told.remove(name)
                    log.info("A resource is read again", extra={"resource": str(name)})

    async def wait_synced(self, work: Work) -> None:
        """Wait until the caches that unsharded `work` needs are complete."""
        for spec in work.specs:
            for source in spec.resources:
                await self.of(source).wait_synced()

    def check_synced(self, *, unread: bool) -> str | None:
        """Which caches are not complete, or with `unread` are not kept current any more, and why; `None`: all are."""
        pending: list[str] = []
        for name, cache in list(self._caches.items()):
            if not cache.synced:
                pending.append(f"{name}: {cache.failure or 'first list pending'}")
            elif unread and (refused := _unread(cache)) is not None:
                _, namespace, error = refused
                pending.append(f"{name}: {error}" if namespace is None else f"{name} in {namespace}: {error}")
        return "; ".join(pending) or None


def _unread(cache: Cache[Any]) -> tuple[float, str | None, ApiError] | None:
    """`Cache.unread`, if it has been for so long that it counts; `None`: it lets itself be read, or nobody answers."""
    match cache.unread:
        case seconds, namespace, ApiError() as error if seconds >= UNREAD_SECONDS:
            return seconds, namespace, error
    return None


def _remedy_of(error: ApiError) -> str:
    match error:
        case Unauthorized():
            return "see whether this identity's token or certificate has run out, or its ServiceAccount was made anew"
        case Forbidden():
            return "grant this identity the rules that `shardsdk rbac` prints"
        case TooManyRequests():
            return "give this identity room in the API server's priority and fairness, or see who takes it"
        case _:
            return "look at what serves the resource: its definition, a conversion webhook, an aggregated API server"


def namespaces_of(
    resource: Resource, settings: Mapping[GroupResource, CacheSettings], default: Sequence[str]
) -> Sequence[str]:
    """Where objects of `resource` are read; empty: in all namespaces, or in none, as a cluster-scoped one's are."""
    said = settings.get(resource.group_resource)
    chosen = default if said is None or said.namespaces is None else said.namespaces
    return chosen if resource.namespaced else ()


def needs_shared(work: Mapping[Scope, Work]) -> bool:
    """Whether anything looks at more than a shard's objects."""
    watching = any(spec.watched for spec in work[Scope.SHARDED].specs)
    return watching or bool(work[Scope.LEADER]) or bool(work[Scope.EVERYWHERE])


def prepare(shared: Caches, work: Mapping[Scope, Work]) -> None:
    """Have every cache made that unsharded work needs, so that all of them fill before it begins."""
    for scope in Scope:
        for spec in work[scope].specs:
            watched = tuple(watch.source for watch in spec.watched)
            for source in watched if scope is Scope.SHARDED else spec.resources:
                shared.of(source)

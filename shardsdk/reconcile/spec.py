"""How a controller is described: what it reconciles, what wakes it, with which function, and where it runs.

    controller_for(SECRETS, Secret).owns(CONFIGMAPS).reconcile(fn)
    controller_for(NODES).source(Every(60)).on_leader().reconcile(fn)

Does: collect, and refuse what cannot work.  Refuses: to run anything.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Generic

from typing_extensions import TypeVar

from shardsdk.errors import ConfigurationError
from shardsdk.kube.api import PARTIAL, Api
from shardsdk.kube.api import T as M
from shardsdk.kube.models import check_model
from shardsdk.protocol.objects import PartialObject, Resource
from shardsdk.queueing.functions import check_no_generator, is_async
from shardsdk.queueing.predicates import Predicate, always, check_predicate
from shardsdk.queueing.queue import RateLimit
from shardsdk.queueing.sources import MapFunc, RequestSource
from shardsdk.queueing.workers import Outcome
from shardsdk.reconcile.context import Context

T = TypeVar("T", default=PartialObject)

#: A reconcile: async, or plain; a plain function runs in a thread.
Reconcile = Callable[[Context[T]], Awaitable[Outcome | None] | Outcome | None]


#: What is done around each call of the function: it is handed the context, and `call`, which calls a function of the
#: user's with it (a plain one in a thread) and gives what that returns.
Call = Callable[[Callable[[Context[Any]], Any]], Awaitable[Any]]
Around = Callable[[Context[Any], Call], Awaitable[Outcome | None]]

#: Something else that a process does besides reconciling; it is handed a client.
Task = Callable[[Api], Awaitable[object]]


class Scope(Enum):
    """Which processes run a controller or a task, and for which objects."""

    SHARDED = "on every shard, for its own objects, under its lease"
    LEADER = "on the elected leader, for all objects"
    EVERYWHERE = "on every replica, for all objects"


def check_scope(scope: object, what: str) -> None:
    """Raises: ConfigurationError for what is none: nothing of that scope would ever run."""
    if not isinstance(scope, Scope | None):
        raise ConfigurationError(
            f"{what} has scope={scope!r}, which is no scope: write Scope.SHARDED, Scope.LEADER or Scope.EVERYWHERE"
        )


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """A task of the user's, and where it runs (`None`: where controllers do that say nothing).

    It is cancelled `grace_seconds` after `Manager.stopping` has been set, unless it has returned.
    Raises: ConfigurationError for a plain function: nothing else of the process would run until it returns; and for one
    with a `yield`; or for another `scope`.
    """

    name: str
    function: Task
    scope: Scope | None = None
    grace_seconds: float = 0.0

    def __post_init__(self) -> None:
        check_scope(self.scope, f"task {self.name!r}")
        check_no_generator(self.function)
        if not is_async(self.function) and not is_async(inspect.unwrap(self.function)):
            raise ConfigurationError(
                f"task {self.name!r} is a plain function, and would hold up the whole process: write `async def`; what"
                " blocks goes into `await asyncio.to_thread(…)`"
            )


@dataclass(frozen=True, slots=True)
class Source:
    """A resource that a controller looks at, and which of its changes matter.

    `metadata_only` None: just when `model` holds nothing else.
    Raises: ConfigurationError when `model` does not show an object's metadata, or for what is no predicate.
    """

    resource: Resource
    model: Any = PARTIAL
    metadata_only: bool | None = None
    predicate: Predicate = always

    def __post_init__(self) -> None:
        check_model(self.model, self.resource)
        check_predicate(self.predicate)


@dataclass(frozen=True, slots=True)
class WatchSpec:
    """A resource that the main object does not control, and which main objects its changes matter to.

    With `index` those main objects, of the same namespace, which have the object's name under that index.
    """

    source: Source
    mapping: MapFunc
    index: str = ""


def check_mapping(mapping: Any, title: str) -> None:
    """Raises: ConfigurationError for an async one: it is called between two events of a watch, and not awaited."""
    if is_async(mapping) or inspect.isasyncgenfunction(mapping):
        raise ConfigurationError(
            f"controller {title!r} watches with an async mapping: write it as a plain function, of the object alone"
        )


@dataclass(frozen=True, slots=True)
class ControllerSpec(Generic[T]):
    """A controller, described; each method gives a new description."""

    main: Source
    children: tuple[Source, ...] = ()
    watched: tuple[WatchSpec, ...] = ()
    sources: tuple[tuple[RequestSource, Predicate], ...] = ()
    scope: Scope | None = None
    function: Reconcile[T] | None = None
    around: Around | None = None
    name: str = ""
    field_owner: str = ""
    concurrency: int = 1
    timeout_seconds: float | None = None
    drain_timeout_seconds: float | None = None
    rate_limit: RateLimit | None = None
    max_writes: int | None = None

    def owns(
        self,
        resource: Resource,
        model: Any = PARTIAL,
        *,
        metadata_only: bool | None = None,
        when: Predicate = always,
    ) -> ControllerSpec[T]:
        """It makes objects of `resource` with the main object as their controller; a change of one wakes its owner."""
        taken = (self.main.resource, *(child.resource for child in self.children))
        if resource.group_resource in [other.group_resource for other in taken]:
            raise ConfigurationError(f"controller of {self.main.resource.group_resource} lists {resource.plural} twice")
        return replace(self, children=(*self.children, Source(resource, model, metadata_only, when)))

    def watches(
        self,
        resource: Resource,
        mapping: MapFunc,
        model: Any = PARTIAL,
        *,
        metadata_only: bool | None = None,
        when: Predicate = always,
    ) -> ControllerSpec[T]:
        """A change of an object of `resource` wakes the main objects that `mapping(object)` names.

        `mapping` is asked about the object as it was and as it is, so that one
        that has lost its reference is woken as well.  The whole resource is
        watched, not only what belongs to this shard.

            spec.watches(SECRETS, lambda secret: [Request(secret.metadata.namespace, "home")])
        """
        if resource.group_resource in [other.source.resource.group_resource for other in self.watched]:
            raise ConfigurationError(f"controller {self.title!r} watches {resource.plural} twice: join the mappings")
        check_mapping(mapping, self.title)
        watch = WatchSpec(Source(resource, model, metadata_only, when), mapping)
        return replace(self, watched=(*self.watched, watch))

    def source(self, source: RequestSource, *, when: Predicate = always) -> ControllerSpec[T]:
        """Requests come from `source`, too: `Every`, `Trigger`, or one of your own.

        `when` is asked about the object as the cache has it (`EventKind.GENERIC`).

            spec.source(Every(600)).source(trigger)
        """
        check_predicate(when)
        return replace(self, sources=(*self.sources, (source, when)))

    def on_leader(self) -> ControllerSpec[T]:
        """It runs unsharded: for all objects, on the replica that the manager's `election` makes the leader."""
        return replace(self, scope=Scope.LEADER)

    def on_every_replica(self) -> ControllerSpec[T]:
        """It runs unsharded, for all objects, on every replica at once; what it does must bear that."""
        return replace(self, scope=Scope.EVERYWHERE)

    def reconcile(self, function: Reconcile[T]) -> ControllerSpec[T]:
        """It calls `function` with a `Context` for each object that may need work."""
        return replace(self, function=function)

    def options(
        self,
        *,
        name: str | None = None,
        concurrency: int | None = None,
        timeout_seconds: float | None = None,
        drain_timeout_seconds: float | None = None,
        rate_limit: RateLimit | None = None,
        max_writes: int | None = None,
    ) -> ControllerSpec[T]:
        """Change what is given; `None` leaves a setting as it is.

        `concurrency` objects are reconciled at once; one reconcile is cancelled
        after `timeout_seconds`, and `drain_timeout_seconds` after its object's drain was seen.
        After `max_writes` writes of one reconcile further ones raise `TooManyWrites`.
        """
        given = {
            "name": name,
            "concurrency": concurrency,
            "timeout_seconds": timeout_seconds,
            "drain_timeout_seconds": drain_timeout_seconds,
            "rate_limit": rate_limit,
            "max_writes": max_writes,
        }
        changes: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
        return replace(self, **changes)

    @property
    def resources(self) -> tuple[Source, ...]:
        """All that it looks at."""
        return (self.main, *self.children, *(watch.source for watch in self.watched))

    @property
    def title(self) -> str:
        """Its name, or the main resource's."""
        return self.name or str(self.main.resource.group_resource)


@dataclass(frozen=True, slots=True)
class Work:
    """Controllers and tasks of one scope."""

    specs: Sequence[ControllerSpec[Any]] = ()
    tasks: Sequence[TaskSpec] = ()

    def __bool__(self) -> bool:
        return bool(self.specs or self.tasks)


def controller_for(
    resource: Resource,
    model: type[M] = PARTIAL,  # type: ignore[assignment]
    *,
    metadata_only: bool | None = None,
    when: Predicate[M] = always,
) -> ControllerSpec[M]:
    """Describe a controller of `resource` for a manager to run; `model` is what its objects are decoded to.

    `when` chooses the changes of an object that matter.
    """
    return ControllerSpec(Source(resource, model, metadata_only, when))

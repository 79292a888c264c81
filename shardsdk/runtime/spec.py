"""How a controller is described: what it reconciles, what it owns, with which function.

    Controller.for_(SECRETS, Secret).owns(CONFIGMAPS).reconcile(fn)

Does: collect, and refuse what cannot work.  Refuses: to run anything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic

from typing_extensions import TypeVar

from shardsdk.errors import ConfigurationError
from shardsdk.kube.api import PARTIAL
from shardsdk.protocol.objects import PartialObject, Resource
from shardsdk.runtime.predicates import Predicate, always
from shardsdk.runtime.queue import RateLimit

if TYPE_CHECKING:
    from shardsdk.runtime.context import Context
    from shardsdk.runtime.controller import Outcome

T = TypeVar("T", default=PartialObject)

#: A reconcile: async, or plain; a plain function runs in a thread.
Reconcile = Callable[["Context[T]"], "Awaitable[Outcome | None] | Outcome | None"]


@dataclass(frozen=True, slots=True)
class Source:
    """A resource that a controller looks at, and which of its changes matter.

    `metadata_only` None: just when `model` holds nothing else.
    """

    resource: Resource
    model: Any = PARTIAL
    metadata_only: bool | None = None
    predicate: Predicate = always


@dataclass(frozen=True, slots=True)
class ControllerSpec(Generic[T]):
    """A controller, described; each method gives a new description."""

    main: Source
    children: tuple[Source, ...] = ()
    function: Reconcile[T] | None = None
    name: str = ""
    concurrency: int = 1
    timeout_seconds: float | None = None
    drain_timeout_seconds: float | None = None
    rate_limit: RateLimit | None = None

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
    ) -> ControllerSpec[T]:
        """Change what is given; `None` leaves a setting as it is.

        `concurrency` objects are reconciled at once; one reconcile is cancelled
        after `timeout_seconds`, and `drain_timeout_seconds` after its object's drain was seen.
        """
        given = {
            "name": name,
            "concurrency": concurrency,
            "timeout_seconds": timeout_seconds,
            "drain_timeout_seconds": drain_timeout_seconds,
            "rate_limit": rate_limit,
        }
        changes: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
        return replace(self, **changes)

    @property
    def title(self) -> str:
        """Its name, or the main resource's."""
        return self.name or str(self.main.resource.group_resource)

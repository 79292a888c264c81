"""What controllers of one main resource share, seen by a reconciler: `ShardedResource` and `UnshardedResource`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from shardsdk.cache.cache import Cache
from shardsdk.cache.identity import Identity
from shardsdk.cache.objects import Request
from shardsdk.kube.api import Api
from shardsdk.queueing.metrics import ShardMetrics
from shardsdk.reconcile.inflight import InFlight
from shardsdk.reconcile.state import DrainState

if TYPE_CHECKING:
    from shardsdk.reconcile.reconciler import Reconciler

T = TypeVar("T")


class MainResource(Protocol[T]):
    """What a reconciler asks of the resource that it reconciles."""

    @property
    def identity(self) -> Identity:
        """Whose objects are reconciled."""
        ...

    @property
    def cache(self) -> Cache[T]:
        """The objects."""
        ...

    @property
    def api(self) -> Api:
        """What is written through."""
        ...

    @property
    def metrics(self) -> ShardMetrics | None:
        """Where it is counted."""
        ...

    @property
    def inflight(self) -> InFlight:
        """What is being reconciled, by any controller of the resource."""
        ...

    @property
    def reconcilers(self) -> list[Reconciler[T]]:
        """All controllers of the resource."""
        ...

    @property
    def hands_over(self) -> bool:
        """Whether an owner may arrive that somebody else worked on a moment ago."""
        ...

    def give_away(self, request: Request) -> None:
        """The guard says that the object is to be given away."""
        ...

    def drain_of(self, request: Request) -> DrainState | None:
        """How far the drain of an object is; `None`: there is none."""
        ...

    def draining(self) -> list[Request]:
        """The objects whose drains were seen and not acknowledged yet."""
        ...

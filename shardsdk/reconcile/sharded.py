"""A main resource of a shard: what all its controllers share, and how its objects are given away.

The reconciling itself is `Reconciler`'s (shardsdk/reconcile/reconciler.py), which
knows nothing of leases and drains but what it asks here.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from shardsdk.cache.cache import Cache
from shardsdk.cache.identity import ShardIdentity
from shardsdk.cache.objects import Request
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock
from shardsdk.queueing.metrics import Metrics
from shardsdk.reconcile.drains import Drains
from shardsdk.reconcile.inflight import InFlight
from shardsdk.reconcile.reconciler import Reconciler
from shardsdk.reconcile.state import DrainState

T = TypeVar("T")

#: A controller for a main resource of this shard.
ShardedReconciler = Reconciler


class ShardedResource(Generic[T]):
    """A main resource of this shard: its cache, what is being reconciled, its drains.

    All controllers for the resource share it: a drain waits for every one of them.
    """

    #: An owner may come from another shard, with children that this one has not seen.
    hands_over = True

    def __init__(
        self,
        identity: ShardIdentity,
        cache: Cache[T],
        api: Api,
        *,
        clock: Clock,
        drain_timeout_seconds: float | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.identity = identity
        self.cache = cache
        self.api = api
        self.metrics: Final = metrics.shard(str(cache.resource.group_resource)) if metrics else None
        self.inflight: Final = InFlight()
        self.reconcilers: list[Reconciler[T]] = []
        if self.metrics:
            self.metrics.waiting_owners.set_function(lambda: sum(each.waiting for each in self.reconcilers))
            self.metrics.held_back_owners.set_function(lambda: sum(each.held_back for each in self.reconcilers))
        self.drains: Final = Drains(
            identity,
            cache,
            self.inflight,
            api,
            clock=clock,
            cancel=self.cancel,
            cancel_after_seconds=drain_timeout_seconds,
            metrics=self.metrics,
        )

    def cancel(self, request: Request) -> None:
        """Cancel every reconcile of the object that runs."""
        for reconciler in self.reconcilers:
            reconciler.cancel(request)

    def give_away(self, request: Request) -> None:
        """The guard has met a drain label: acknowledge it when nothing works on the object."""
        self.drains.add(request)

    def drain_of(self, request: Request) -> DrainState | None:
        """How far the drain of an object is; `None`: there is none."""
        return self.drains.state(request)

    def draining(self) -> list[Request]:
        """The objects whose drains were seen and not acknowledged yet."""
        return self.drains.requests()

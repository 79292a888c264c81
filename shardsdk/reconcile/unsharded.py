"""A main resource that nobody shards: every object is reconciled by whoever runs the controller.

That is every replica, or the elected leader (shardsdk/lease/leadership.py).
Nothing is given away and nothing handed over, so there are no drains and no
waiting for children of owners that arrive.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from shardsdk.cache.cache import Cache
from shardsdk.cache.identity import Unsharded
from shardsdk.cache.objects import Request
from shardsdk.kube.api import Api
from shardsdk.queueing.metrics import Metrics
from shardsdk.reconcile.inflight import InFlight
from shardsdk.reconcile.reconciler import Reconciler

T = TypeVar("T")


class UnshardedResource(Generic[T]):
    """A main resource of unsharded controllers; `api` is what they write through."""

    hands_over = False

    def __init__(self, cache: Cache[T], api: Api, *, metrics: Metrics | None = None) -> None:
        self.identity: Final = Unsharded()
        self.cache = cache
        self.api = api
        self.metrics: Final = metrics.shard(str(cache.resource.group_resource)) if metrics else None
        self.inflight: Final = InFlight()
        self.reconcilers: list[Reconciler[T]] = []
        if self.metrics:
            self.metrics.held_back_owners.set_function(lambda: sum(each.held_back for each in self.reconcilers))

    def give_away(self, request: Request) -> None:
        """Never asked: nobody else may have the object."""

    def drain_of(self, request: Request) -> None:
        """There is none."""

    def draining(self) -> list[Request]:
        """None is."""
        return []


class Unfenced:
    """The fence of work that needs no lease: always open."""

    name = "no lease"

    def remaining(self) -> float:
        """For ever."""
        return float("inf")

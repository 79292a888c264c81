"""What the signatures of public names are made of: for annotations, and for parts that are put together by hand.

    from shardsdk.types import Feed, Outcome, Predicate

`import shardsdk` does not load it; most programs never name one.
"""

from __future__ import annotations

from shardsdk.cache.identity import Identity
from shardsdk.events.limits import EventLimits
from shardsdk.events.recorder import Regarding
from shardsdk.kube.api import (
    Body,
    ListOptions,
    Operation,
    RawRequest,
    Selection,
    Transport,
    Unfit,
    WatchEvent,
    WatchKind,
    WatchOptions,
)
from shardsdk.kube.clock import Clock
from shardsdk.kube.credentials import Credentials
from shardsdk.kube.lapses import Lapses
from shardsdk.kube.mirror import OnUnfit
from shardsdk.kube.store import Index
from shardsdk.lease.election import Lead, Recorder
from shardsdk.lease.shardlease import Connect
from shardsdk.lease.timings import Deadlines
from shardsdk.process.health import Check
from shardsdk.process.world import World
from shardsdk.protocol.labels import RingLabels, parse_ring_name
from shardsdk.protocol.leases import Lease, LeaseSpec
from shardsdk.protocol.namespaces import CoveredNamespaces
from shardsdk.protocol.objects import GroupResource, SlimMeta
from shardsdk.protocol.ranges import HashBy, HashRanges
from shardsdk.queueing.item import ItemState
from shardsdk.queueing.metrics import ControllerMetrics, ShardMetrics
from shardsdk.queueing.queue import QueueObserver
from shardsdk.queueing.sources import Feed, MapFunc, Watched
from shardsdk.queueing.workers import Outcome
from shardsdk.rbac import Right
from shardsdk.reconcile.applied import Applied, AppliedFor, Child, Record
from shardsdk.reconcile.caches import CacheSettings
from shardsdk.reconcile.explain import Explanation, Wait
from shardsdk.reconcile.inflight import InFlight
from shardsdk.reconcile.mainresource import Works
from shardsdk.reconcile.spec import Around, Call, Reconcile, Source, Task, TaskSpec, WatchSpec
from shardsdk.reconcile.state import Drain, DrainEvent, DrainState

__all__ = [
    "Applied",
    "AppliedFor",
    "Around",
    "Body",
    "CacheSettings",
    "Call",
    "Check",
    "Child",
    "Clock",
    "Connect",
    "ControllerMetrics",
    "CoveredNamespaces",
    "Credentials",
    "Deadlines",
    "Drain",
    "DrainEvent",
    "DrainState",
    "EventLimits",
    "Explanation",
    "Feed",
    "GroupResource",
    "HashBy",
    "HashRanges",
    "Identity",
    "InFlight",
    "Index",
    "ItemState",
    "Lapses",
    "Lead",
    "Lease",
    "LeaseSpec",
    "ListOptions",
    "MapFunc",
    "OnUnfit",
    "Operation",
    "Outcome",
    "QueueObserver",
    "RawRequest",
    "Reconcile",
    "Record",
    "Recorder",
    "Regarding",
    "Right",
    "RingLabels",
    "Selection",
    "ShardMetrics",
    "SlimMeta",
    "Source",
    "Task",
    "TaskSpec",
    "Transport",
    "Unfit",
    "Wait",
    "WatchEvent",
    "WatchKind",
    "WatchOptions",
    "WatchSpec",
    "Watched",
    "Works",
    "World",
    "parse_ring_name",
]

"""Controllers for Kubernetes in Python whose work is spread over several active replicas.

    from shardsdk import Context, Manager, PartialObject, Resource, controller_for

    SECRETS = Resource("", "v1", "secrets", "Secret")

    async def reconcile(context: Context[PartialObject]) -> None:
        print(context.request)

    Manager(ring="example").add(controller_for(SECRETS).reconcile(reconcile)).run()

What is named here is public and stays; what is not may change.  docs/sdk shows
every name in use, in code that the tests run.  Names are loaded when they are
first used, so that a program pays for what it needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from shardsdk import errors
from shardsdk.version import VERSION

if TYPE_CHECKING:
    from shardsdk.cache.cache import Cache
    from shardsdk.cache.identity import ShardIdentity
    from shardsdk.cache.objects import Request
    from shardsdk.errors import (
        AlreadyOwned,
        ApiError,
        ConfigurationError,
        Conflict,
        FenceClosed,
        LeaseLost,
        NotFound,
        ShardingError,
        TerminalError,
        TooManyWrites,
    )
    from shardsdk.events.recorder import EventRecorder, EventType
    from shardsdk.kinds.base import Model
    from shardsdk.kinds.conditions import Condition, ConditionStatus
    from shardsdk.kinds.custom import CustomResource
    from shardsdk.kinds.markers import Column, Range
    from shardsdk.kube import selectors
    from shardsdk.kube.access import load_access
    from shardsdk.kube.api import Api, Fence, PatchKind
    from shardsdk.kube.client import Client
    from shardsdk.kube.clock import SystemClock
    from shardsdk.kube.reflector import Delta, EventKind
    from shardsdk.kube.selectors import Selector
    from shardsdk.kube.server import Access
    from shardsdk.lease.election import LeaderElector
    from shardsdk.lease.leadership import Election
    from shardsdk.lease.ring import ByRanges, read_assignment
    from shardsdk.lease.shardlease import LeaseState, ShardLease
    from shardsdk.lease.timings import LeaseTimings
    from shardsdk.objects.adoption import Claimed, adopt, claim, release
    from shardsdk.objects.apply import server_side_apply
    from shardsdk.objects.batches import slow_start_batch
    from shardsdk.objects.conditions import find_condition, set_conditions
    from shardsdk.objects.finalizers import add_finalizer, finalizing, remove_finalizer
    from shardsdk.operator.failures import Permanent, Retry
    from shardsdk.operator.operator import Operator
    from shardsdk.process.manager import Manager
    from shardsdk.process.process import ExitCode
    from shardsdk.process.share import Share
    from shardsdk.protocol.objects import ObjectMeta, OwnerReference, PartialObject, Resource
    from shardsdk.protocol.verdict import Verdict
    from shardsdk.queueing import predicates
    from shardsdk.queueing.metrics import Metrics
    from shardsdk.queueing.queue import Priority, RateLimit, WorkQueue
    from shardsdk.queueing.sources import Every, RequestSource, Trigger
    from shardsdk.queueing.workers import Done, Requeue, RequeueAfter
    from shardsdk.reconcile.context import Context
    from shardsdk.reconcile.controller import Controller
    from shardsdk.reconcile.mainresource import MainResource
    from shardsdk.reconcile.references import set_controller_reference
    from shardsdk.reconcile.spec import ControllerSpec, Scope, controller_for

__version__: Final = VERSION

__all__ = [
    "Access",
    "AlreadyOwned",
    "Api",
    "ApiError",
    "ByRanges",
    "Cache",
    "Claimed",
    "Client",
    "Column",
    "Condition",
    "ConditionStatus",
    "ConfigurationError",
    "Conflict",
    "Context",
    "Controller",
    "ControllerSpec",
    "CustomResource",
    "Delta",
    "Done",
    "Election",
    "EventKind",
    "EventRecorder",
    "EventType",
    "Every",
    "ExitCode",
    "Fence",
    "FenceClosed",
    "LeaderElector",
    "LeaseLost",
    "LeaseState",
    "LeaseTimings",
    "MainResource",
    "Manager",
    "Metrics",
    "Model",
    "NotFound",
    "ObjectMeta",
    "Operator",
    "OwnerReference",
    "PartialObject",
    "PatchKind",
    "Permanent",
    "Priority",
    "Range",
    "RateLimit",
    "Request",
    "RequestSource",
    "Requeue",
    "RequeueAfter",
    "Resource",
    "Retry",
    "Scope",
    "Selector",
    "ShardIdentity",
    "ShardLease",
    "ShardingError",
    "Share",
    "SystemClock",
    "TerminalError",
    "TooManyWrites",
    "Trigger",
    "Verdict",
    "WorkQueue",
    "__version__",
    "add_finalizer",
    "adopt",
    "claim",
    "controller_for",
    "errors",
    "finalizing",
    "find_condition",
    "load_access",
    "predicates",
    "read_assignment",
    "release",
    "remove_finalizer",
    "selectors",
    "server_side_apply",
    "set_conditions",
    "set_controller_reference",
    "slow_start_batch",
]

#: Where each lazy name is defined; tests hold this against `__all__`.
_HOMES: Final = {
    "shardsdk.protocol.verdict": ("Verdict",),
    "shardsdk.lease.timings": ("LeaseTimings",),
    "shardsdk.errors": (
        *("AlreadyOwned", "ApiError", "ConfigurationError", "Conflict", "FenceClosed", "LeaseLost", "NotFound"),
        *("ShardingError", "TerminalError", "TooManyWrites"),
    ),
    "shardsdk.kinds.base": ("Model",),
    "shardsdk.kinds.conditions": ("Condition", "ConditionStatus"),
    "shardsdk.kinds.custom": ("CustomResource",),
    "shardsdk.kinds.markers": ("Column", "Range"),
    "shardsdk.kube.access": ("load_access",),
    "shardsdk.kube.server": ("Access",),
    "shardsdk.kube.api": ("Api", "Fence", "PatchKind"),
    "shardsdk.kube.client": ("Client",),
    "shardsdk.kube.clock": ("SystemClock",),
    "shardsdk.kube.reflector": ("Delta", "EventKind"),
    "shardsdk.kube.selectors": ("Selector",),
    "shardsdk.protocol.objects": ("ObjectMeta", "OwnerReference", "PartialObject", "Resource"),
    "shardsdk.objects.adoption": ("Claimed", "adopt", "claim", "release"),
    "shardsdk.objects.apply": ("server_side_apply",),
    "shardsdk.objects.batches": ("slow_start_batch",),
    "shardsdk.cache.cache": ("Cache",),
    "shardsdk.objects.conditions": ("find_condition", "set_conditions"),
    "shardsdk.reconcile.context": ("Context",),
    "shardsdk.queueing.workers": ("Done", "Requeue", "RequeueAfter"),
    "shardsdk.lease.election": ("LeaderElector",),
    "shardsdk.events.recorder": ("EventRecorder", "EventType"),
    "shardsdk.objects.finalizers": ("add_finalizer", "finalizing", "remove_finalizer"),
    "shardsdk.cache.identity": ("ShardIdentity",),
    "shardsdk.lease.leadership": ("Election",),
    "shardsdk.operator.failures": ("Permanent", "Retry"),
    "shardsdk.operator.operator": ("Operator",),
    "shardsdk.process.manager": ("Manager",),
    "shardsdk.queueing.metrics": ("Metrics",),
    "shardsdk.cache.objects": ("Request",),
    "shardsdk.lease.ring": ("ByRanges", "read_assignment"),
    "shardsdk.process.process": ("ExitCode",),
    "shardsdk.process.share": ("Share",),
    "shardsdk.queueing.queue": ("Priority", "RateLimit", "WorkQueue"),
    "shardsdk.reconcile.references": ("set_controller_reference",),
    "shardsdk.reconcile.controller": ("Controller",),
    "shardsdk.reconcile.mainresource": ("MainResource",),
    "shardsdk.lease.shardlease": ("LeaseState", "ShardLease"),
    "shardsdk.queueing.sources": ("Every", "RequestSource", "Trigger"),
    "shardsdk.reconcile.spec": ("ControllerSpec", "Scope", "controller_for"),
}
#: Public modules besides `errors`.
_MODULES: Final = {"predicates": "shardsdk.queueing.predicates", "selectors": "shardsdk.kube.selectors"}
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names}


if not TYPE_CHECKING:  # else every misspelt name would be `Any`

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            value = import_module(_MODULES[name])
        elif name in _HOME_OF:
            value = getattr(import_module(_HOME_OF[name]), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)

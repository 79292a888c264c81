"""Controllers for Kubernetes in Python whose work is spread over several active replicas.

    from shardsdk import Context, Controller, Manager, PartialObject, Resource

    SECRETS = Resource("", "v1", "secrets", "Secret")

    async def reconcile(context: Context[PartialObject]) -> None:
        print(context.request)

    Manager(ring="example").add(Controller.for_(SECRETS).reconcile(reconcile)).run()

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
    from shardsdk.core.guard import Verdict
    from shardsdk.core.timings import LeaseTimings
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
    from shardsdk.kube import selectors
    from shardsdk.kube.access import Access, load_access
    from shardsdk.kube.api import Api, Fence, PatchKind
    from shardsdk.kube.client import Client
    from shardsdk.kube.clock import SystemClock
    from shardsdk.kube.reflector import Delta, EventKind
    from shardsdk.kube.selectors import Selector
    from shardsdk.protocol.objects import ObjectMeta, OwnerReference, PartialObject, Resource
    from shardsdk.runtime import predicates
    from shardsdk.runtime.adoption import Claimed, adopt, claim, release
    from shardsdk.runtime.applying import server_side_apply
    from shardsdk.runtime.batches import slow_start_batch
    from shardsdk.runtime.cache import Cache
    from shardsdk.runtime.conditions import Condition, ConditionStatus, find_condition, set_conditions
    from shardsdk.runtime.context import Context
    from shardsdk.runtime.controller import Controller, Done, Requeue, RequeueAfter
    from shardsdk.runtime.election import LeaderElector
    from shardsdk.runtime.events import EventRecorder, EventType
    from shardsdk.runtime.finalizers import add_finalizer, finalizing, remove_finalizer
    from shardsdk.runtime.identity import ShardIdentity
    from shardsdk.runtime.leading import Election
    from shardsdk.runtime.manager import Manager
    from shardsdk.runtime.metrics import Metrics
    from shardsdk.runtime.objects import Request
    from shardsdk.runtime.process import ExitCode
    from shardsdk.runtime.queue import Priority, RateLimit, WorkQueue
    from shardsdk.runtime.references import set_controller_reference
    from shardsdk.runtime.sharded import ShardedReconciler, ShardedResource
    from shardsdk.runtime.shardlease import LeaseState, ShardLease
    from shardsdk.runtime.sources import Every, RequestSource, Trigger
    from shardsdk.runtime.spec import ControllerSpec, Scope

__version__: Final = VERSION

__all__ = [
    "Access",
    "AlreadyOwned",
    "Api",
    "ApiError",
    "Cache",
    "Claimed",
    "Client",
    "Condition",
    "ConditionStatus",
    "ConfigurationError",
    "Conflict",
    "Context",
    "Controller",
    "ControllerSpec",
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
    "Manager",
    "Metrics",
    "NotFound",
    "ObjectMeta",
    "OwnerReference",
    "PartialObject",
    "PatchKind",
    "Priority",
    "RateLimit",
    "Request",
    "RequestSource",
    "Requeue",
    "RequeueAfter",
    "Resource",
    "Scope",
    "Selector",
    "ShardIdentity",
    "ShardLease",
    "ShardedReconciler",
    "ShardedResource",
    "ShardingError",
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
    "errors",
    "finalizing",
    "find_condition",
    "load_access",
    "predicates",
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
    "shardsdk.core.guard": ("Verdict",),
    "shardsdk.core.timings": ("LeaseTimings",),
    "shardsdk.errors": (
        *("AlreadyOwned", "ApiError", "ConfigurationError", "Conflict", "FenceClosed", "LeaseLost", "NotFound"),
        *("ShardingError", "TerminalError", "TooManyWrites"),
    ),
    "shardsdk.kube.access": ("Access", "load_access"),
    "shardsdk.kube.api": ("Api", "Fence", "PatchKind"),
    "shardsdk.kube.client": ("Client",),
    "shardsdk.kube.clock": ("SystemClock",),
    "shardsdk.kube.reflector": ("Delta", "EventKind"),
    "shardsdk.kube.selectors": ("Selector",),
    "shardsdk.protocol.objects": ("ObjectMeta", "OwnerReference", "PartialObject", "Resource"),
    "shardsdk.runtime.adoption": ("Claimed", "adopt", "claim", "release"),
    "shardsdk.runtime.applying": ("server_side_apply",),
    "shardsdk.runtime.batches": ("slow_start_batch",),
    "shardsdk.runtime.cache": ("Cache",),
    "shardsdk.runtime.conditions": ("Condition", "ConditionStatus", "find_condition", "set_conditions"),
    "shardsdk.runtime.context": ("Context",),
    "shardsdk.runtime.controller": ("Controller", "Done", "Requeue", "RequeueAfter"),
    "shardsdk.runtime.election": ("LeaderElector",),
    "shardsdk.runtime.events": ("EventRecorder", "EventType"),
    "shardsdk.runtime.finalizers": ("add_finalizer", "finalizing", "remove_finalizer"),
    "shardsdk.runtime.identity": ("ShardIdentity",),
    "shardsdk.runtime.leading": ("Election",),
    "shardsdk.runtime.manager": ("Manager",),
    "shardsdk.runtime.metrics": ("Metrics",),
    "shardsdk.runtime.objects": ("Request",),
    "shardsdk.runtime.process": ("ExitCode",),
    "shardsdk.runtime.queue": ("Priority", "RateLimit", "WorkQueue"),
    "shardsdk.runtime.references": ("set_controller_reference",),
    "shardsdk.runtime.sharded": ("ShardedReconciler", "ShardedResource"),
    "shardsdk.runtime.shardlease": ("LeaseState", "ShardLease"),
    "shardsdk.runtime.sources": ("Every", "RequestSource", "Trigger"),
    "shardsdk.runtime.spec": ("ControllerSpec", "Scope"),
}
#: Public modules besides `errors`.
_MODULES: Final = {"predicates": "shardsdk.runtime.predicates", "selectors": "shardsdk.kube.selectors"}
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

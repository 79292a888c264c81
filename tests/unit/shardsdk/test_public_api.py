"""What `shardsdk` offers, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import shardsdk
import shardsdk.testing
from bench.imports import FRONT_PAGE, STATEMENTS

#: Whoever changes this list changes what users rely on.
PUBLIC = [
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


#: The same for what users test with.
TESTING = [
    "Admit",
    "Change",
    "ControlPlane",
    "ControlPlaneFailed",
    "Deadlock",
    "Fault",
    "Given",
    "LeaseStage",
    "Livelock",
    "MemoryApi",
    "MemoryServer",
    "Object",
    "Process",
    "Programs",
    "Rig",
    "RightsLack",
    "SkewedClock",
    "Story",
    "TimeLimit",
    "VirtualClock",
    "drive",
    "find_programs",
    "in_virtual_time",
    "lease_body",
    "make_lease",
    "run_virtual",
]


def test_the_public_names_of_testing_are_pinned() -> None:
    assert shardsdk.testing.__all__ == dir(shardsdk.testing) == TESTING
    assert set(shardsdk.testing._HOME_OF) == set(TESTING)
    assert all(getattr(shardsdk.testing, name) for name in TESTING)
    with pytest.raises(AttributeError, match="no attribute 'Unknown'"):
        shardsdk.testing.Unknown  # type: ignore[attr-defined]  # noqa: B018


def test_the_public_names_are_pinned() -> None:
    assert shardsdk.__all__ == PUBLIC
    assert dir(shardsdk) == sorted(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(shardsdk, name)


def test_every_lazy_name_is_public() -> None:
    assert {*shardsdk._HOME_OF, *shardsdk._MODULES, "__version__", "errors"} == set(PUBLIC)


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Unknown'"):
        shardsdk.Unknown  # type: ignore[attr-defined]  # noqa: B018


#: Statements, what they must not load, and how many modules they may: what they load today and a tenth more, because
#: Pythons split their library differently (3.14 into the most).  docs/performance.md has the seconds; on a busy machine
#: those prove nothing.
IMPORTS = [
    ("import shardsdk", {"aiohttp", "kubernetes", "prometheus_client", "asyncio", "msgspec"}, 40),
    ("from shardsdk import Context, Manager, Resource, controller_for", {"aiohttp", "kubernetes", "yaml"}, 370),
    (STATEMENTS[FRONT_PAGE], {"aiohttp", "kubernetes", "yaml"}, 405),
    ("from shardsdk.testing import drive", {"aiohttp", "kubernetes", "yaml", "pytest"}, 430),
    ("import shardsdk; [getattr(shardsdk, name) for name in shardsdk.__all__]", {"kubernetes", "yaml", "pytest"}, 535),
]


@pytest.mark.parametrize(("statement", "absent", "at_most"), IMPORTS, ids=[statement for statement, *_ in IMPORTS])
def test_importing_loads_nothing_that_is_not_needed_yet(statement: str, absent: set[str], at_most: int) -> None:
    code = f"import sys\nbefore = {{*sys.modules}}\n{statement}\nprint(*({{*sys.modules}} - before))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(result.stdout.split())
    assert "shardsdk" in loaded
    assert loaded & absent == set()
    assert len(loaded) <= at_most, "importing has become more expensive: load what is rarely used when it is used"

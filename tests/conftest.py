"""Fixtures that every test may ask for: a real control plane, shared or of one's own.

Without Kubernetes programs the tests fail and say how to get them; they are
never skipped in silence.
"""

from __future__ import annotations

import gc
import os
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, settings

from localcluster import AdminClient, ControlPlane, find_binaries
from localcluster.binaries import say
from localcluster.components import parse_feature_gates

# Tests have a time limit of their own; how fast a busy machine draws examples is not what they are about.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("default")

# What takes more than a fresh machine has: real pods (root and Debian's packages: `make e2e-node`), a Prometheus (`make
# monitoring`). Their targets name their folders.
collect_ignore = ["node", "monitoring"]

#: What takes longest comes first: handed out last, it would run on one worker while others idle.
_LONG = (
    "e2e/test_bench.py",
    "chaos/test_chaos.py",
    "chaos/test_upgrades.py",
    "chaos/soak",
    "docs/test_commands.py",
    "e2e/test_demo.py",
    "chart/test_release.py",
    "integration/test_kubectl_check.py",
    "integration/test_outages.py",
    "e2e",
    "simulation",
    "contracts/test_readme.py",
    "docs",
    "chart",
    "integration/test_examples.py",
    "integration/test_shard_runtime.py",
    "integration/test_manager_scopes.py",
    "integration/test_takeover.py",
    "integration/test_kubectl_status.py",
    "integration/test_groups.py",
    "integration/test_scope.py",
    "integration/test_shardlease.py",
    "integration/test_kubectl_cleanup.py",
    "integration/test_localcluster_outages.py",
    "integration",
    "contracts",
    "types",
    "node/test_shards.py",
    "node/test_controller.py",
)

#: What fills all cores by itself comes at the end: beside others it takes twice the CPU time, and so do they.  Its
#: processes let all others go first, so that beside those a test of theirs takes minutes.
_ALONE = ("simulation/test_simulation.py", "simulation/test_command.py")

#: Some wait at any time; more of them take no less time, but a tenth more CPU time, since they find caches cold.  Three
#: to a core, each kept to that core with all that it starts, took a tenth less time; but whoever waits for a process
#: that has no other core to run on than its own waits longer than many tests allow for.  With its control planes a
#: worker takes a gigabyte and a half.
_WORKERS_PER_CORE = 2
_MOST_WORKERS = 8

# Most control planes here run for seconds, and then garbage is not worth collecting: a fifth less of their CPU time.
# Those of programs that tests start (the demo, say) inherit it.
os.environ.setdefault("GOGC", "off")
os.environ.setdefault("GOMEMLIMIT", "400MiB")
# There are more workers than cores, so further threads look for work more than they do any: a twentieth less, a tenth
# on a busy machine.
os.environ.setdefault("GOMAXPROCS", "1")

#: Takes a folder and what closes something; returns a context that closes it, too.
ClosedAfter = Callable[[str, Callable[[], None]], ExitStack]

#: With the last place in the order of the tests where each is needed.
_SHARED = pytest.StashKey[list[tuple[int, ExitStack]]]()
_PLACE = pytest.StashKey[int]()
_KEPT_LOGS = pytest.StashKey[list[Path]]()
_FAILED = pytest.StashKey[set[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the fixtures below."""
    parser.addoption(
        "--feature-gates",
        default="",
        metavar="NAME=BOOL,…",
        help="of the API servers of control_plane and fresh_control_plane",
    )


@pytest.fixture(scope="session")
def closed_after(request: pytest.FixtureRequest) -> ClosedAfter:
    """Have what a session shares closed once the last test of a folder (`""`: that needs a control plane) is over.

    By the session's end at the latest, as what it returns is a context.  Idle a control plane takes CPU time, too.
    """

    def closing(folder: str, close: Callable[[], None]) -> ExitStack:
        stack = ExitStack()
        stack.callback(close)
        request.config.stash.setdefault(_SHARED, []).append((_place(Path(folder), served=True), stack))
        return stack

    return closing


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def control_plane(request: pytest.FixtureRequest, closed_after: ClosedAfter) -> AsyncIterator[ControlPlane]:
    """The control plane that all tests share: use namespaces and names of your own, and stop nothing."""
    plane = _control_plane(request.config)
    await plane.start()
    with closed_after("", lambda: _close(plane, request.config, "control_plane")):
        yield plane


@pytest_asyncio.fixture
async def fresh_control_plane(request: pytest.FixtureRequest) -> AsyncIterator[ControlPlane]:
    """A control plane for this test alone, to stop, pause and restart."""
    plane = _control_plane(request.config)
    await plane.start()
    yield plane
    _close(plane, request.config, "fresh_control_plane")


@pytest_asyncio.fixture
async def admin(control_plane: ControlPlane) -> AsyncIterator[AdminClient]:
    """A client of the shared control plane with every right."""
    async with control_plane.admin() as client:
        yield client


@pytest_asyncio.fixture
async def namespace(admin: AdminClient) -> str:
    """A namespace of the shared control plane for this test alone.

    It stays: the end of one takes the control plane a tenth of a second, and nobody looks at it any more.
    """
    made = await admin.create("v1/namespaces", {"metadata": {"generateName": "test-"}})
    name: str = made["metadata"]["name"]
    return name


def _control_plane(config: pytest.Config) -> ControlPlane:
    return ControlPlane(feature_gates=parse_feature_gates(config.getoption("--feature-gates")))


def _close(plane: ControlPlane, config: pytest.Config, fixture: str) -> None:
    keep = fixture in config.stash.setdefault(_FAILED, set())
    plane.close(keep_logs=keep)
    if keep:
        config.stash.setdefault(_KEPT_LOGS, []).append(plane.logs)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have what takes long run first, what needs no others beside it last, and the rest in any order."""
    here = Path(__file__).parent
    served = {item.path for item in items if _needs_control_plane(item)}
    places = {path: _place(path.relative_to(here), path in served) for path in {item.path for item in items}}
    items.sort(key=lambda item: places[item.path])
    for item in items:
        item.stash[_PLACE] = places[item.path]


def _place(path: Path, served: bool) -> int:
    """When a file's turn comes; `served`: it needs a control plane."""
    if str(path) in _ALONE:
        return len(_LONG) + 1
    return next((place for place, long in enumerate(_LONG) if path.is_relative_to(long)), len(_LONG) - served)


def _needs_control_plane(item: pytest.Item) -> bool:
    return any(name.endswith("control_plane") for name in getattr(item, "fixturenames", ()))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Close what tests have shared that are all over: none of an earlier place comes any more."""
    for last, shared in item.config.stash.get(_SHARED, []):
        if item.stash[_PLACE] > last:
            shared.close()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """How many workers `-n auto` means: so many that there is mostly one that need not wait."""
    return min(_WORKERS_PER_CORE * (os.cpu_count() or 1), _MOST_WORKERS)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage meanwhile: what is imported and collected stays, and each worker goes through all of it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Acquire the Kubernetes programs before the first test's clock ticks: a build takes minutes."""
    # What was imported stays until the end: the garbage collector need not look at it again and again.
    gc.collect()
    gc.freeze()
    if not any(map(_needs_control_plane, session.items)) or session.config.option.collectonly:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else nullcontext():
        say(f"\nlocalcluster: Kubernetes programs: {find_binaries().source}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember which kinds of control plane served a failed test: their logs are kept."""
    # What a finalizer raises is put into words as well, and Python 3.11 cannot parse a source while it parses another:
    # a SystemError here would end the whole run.
    gc.disable()
    try:
        report = yield
    finally:
        gc.enable()
    if report.failed and report.when != "teardown":
        item.config.stash.setdefault(_FAILED, set()).update(getattr(item, "fixturenames", ()))
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of several hands over where it kept logs."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["kept_logs"] = [str(path) for path in session.config.stash.get(_KEPT_LOGS, [])]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Take over from a worker where it kept logs."""
    kept = getattr(node, "workeroutput", {}).get("kept_logs", [])
    node.config.stash.setdefault(_KEPT_LOGS, []).extend(Path(path) for path in kept)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say where the logs of failed tests' control planes are."""
    for path in terminalreporter.config.stash.get(_KEPT_LOGS, []):
        terminalreporter.write_line(f"control plane logs: {path}")

"""Fixtures of the charts' tests: Helm, a cluster of their own, and something that plays its nodes for Jobs.

The charts name cluster-wide objects, so they share no control plane with other tests.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, nullcontext

import pytest
import pytest_asyncio

from localcluster import AdminClient, ControlPlane
from localcluster.binaries import say
from localcluster.helm import find_helm
from tests.chart.helm import Helm
from tests.chart.jobs import Jobs
from tests.chart.releases import Cluster


def pytest_collection_finish(session: pytest.Session) -> None:
    """Acquire Helm before the first test's clock ticks: a build takes minutes."""
    needed = any("helm" in getattr(item, "fixturenames", ()) for item in session.items)
    if not needed or session.config.option.collectonly:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else nullcontext():
        say(f"\nlocalcluster: Helm: {find_helm().source}")


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(find_helm().program, tmp_path_factory.mktemp("helm"))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chart_control_plane(
    closed_after: Callable[[str, Callable[[], None]], AbstractContextManager[object]],
) -> AsyncIterator[ControlPlane]:
    async with ControlPlane() as plane:
        with closed_after("chart", plane.close):
            yield plane


@pytest_asyncio.fixture
async def cluster(chart_control_plane: ControlPlane, helm: Helm) -> AsyncIterator[Cluster]:
    """The charts' cluster, without a release; whatever a test installs goes with it."""
    plane = chart_control_plane
    async with plane.admin() as admin, Jobs(plane, admin) as jobs:
        cluster = Cluster(plane, admin, helm, jobs)
        await cluster.prepare()
        yield cluster
        await cluster.clean()


@pytest.fixture
def api(cluster: Cluster) -> AdminClient:
    return cluster.admin

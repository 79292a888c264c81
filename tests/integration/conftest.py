"""Fixtures of the integration tests: the project installed on the shared control plane, and a stage on it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from localcluster import AdminClient, ControlPlane
from tests.integration.harness import REPOSITORY, Stage, set_stage
from tests.integration.plugin import Plugin
from tests.integration.world import Ring


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def installed(control_plane: ControlPlane) -> ControlPlane:
    """The shared control plane with the CRD and the sharder's own role."""
    await control_plane.apply(REPOSITORY / "crds", REPOSITORY / "rbac" / "sharder.yaml")
    return control_plane


@pytest_asyncio.fixture
async def stage(installed: ControlPlane, admin: AdminClient, namespace: str) -> AsyncIterator[Stage]:
    """A stage in a namespace of this test's own."""
    async with set_stage(installed, admin, namespace) as made:
        yield made


@pytest.fixture
def plugin(tmp_path: Path, installed: ControlPlane) -> Plugin:
    """`kubectl sharding` as an administrator."""
    return Plugin.install(tmp_path, installed)


@pytest_asyncio.fixture
async def ring(stage: Stage) -> Ring:
    """A ring with three shards and a family of two for each of them, settled."""
    ring = await stage.ring()
    for name in ("one", "two", "three"):
        await stage.shard(ring, name)
    await stage.sharder()
    await ring.in_force()
    await ring.create_families(2, {"one", "two", "three"})
    await ring.in_place({"one", "two", "three"})
    return ring

"""Fixtures of the integration tests: the project installed on the shared control plane, and a stage on it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from localcluster import AdminClient, ControlPlane
from tests.integration.harness import REPOSITORY, Stage, set_stage


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

"""Fixtures of the documentation's tests: Helm, and a control plane that knows ClusterRings."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from localcluster import ControlPlane
from localcluster.helm import find_helm
from tests.chart.helm import Helm


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(find_helm().program, tmp_path_factory.mktemp("helm"))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def rings(control_plane: ControlPlane) -> AsyncIterator[ControlPlane]:
    """The shared control plane, with the CustomResourceDefinitions."""
    await control_plane.apply(Path("crds"))
    yield control_plane

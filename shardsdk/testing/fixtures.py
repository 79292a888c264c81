"""pytest fixtures: a control plane for a test session.

In your conftest.py:

    pytest_plugins = ["shardsdk.testing.fixtures"]

    @pytest.fixture(scope="session")
    def crds() -> list[Path]:                     # only if you have some
        return [Path("config/crd")]

    def test_something(control_plane: ControlPlane) -> None: ...

pytest is not a dependency of shardsdk; whoever writes tests has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shardsdk.testing.controlplane import ControlPlane


@pytest.fixture(scope="session")
def crds() -> list[Path]:
    """Files and folders with CustomResourceDefinitions; override it with yours."""
    return []


@pytest.fixture(scope="session")
def control_plane(crds: list[Path]) -> Iterator[ControlPlane]:
    """A real etcd and API server that all tests share: use namespaces of your own."""
    with ControlPlane(crds=crds) as plane:
        yield plane

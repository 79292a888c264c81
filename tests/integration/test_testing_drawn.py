"""The API server in memory and a real one, asked the same at random: objects, their owners and refusals are alike."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from localcluster import ControlPlane
from shardsdk.errors import ApiError
from shardsdk.kinds import crd_of
from shardsdk.kube.access import load_access
from shardsdk.kube.client import Client
from shardsdk.kube.clock import SystemClock
from shardsdk.testing import MemoryApi, MemoryServer
from tests.integration.drawn import PLOTS, Answering, Plot, draw
from tests.integration.served import served

SCHEMA = crd_of(Plot)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def plane(control_plane: ControlPlane) -> AsyncIterator[ControlPlane]:
    """With plots, served."""
    async with served(control_plane, crd_of(Plot)):
        yield control_plane


@pytest.mark.parametrize("first", range(0, 60, 10))
async def test_both_go_the_same_way(plane: ControlPlane, namespace: str, first: int) -> None:
    async with Client(await load_access(str(plane.admin_kubeconfig))) as client:
        for seed in range(first, first + 10):
            resource, requests = draw(seed)
            server = MemoryServer(schema_of=lambda which: SCHEMA if which == PLOTS else None)
            real = Answering(client, namespace, resource)
            memory = Answering(MemoryApi(server, SystemClock(), delay=lambda: 0), namespace, resource)
            for number, request in enumerate(requests):
                about = (seed, number, request)
                assert (about, await memory.answer(request)) == (about, await real.answer(request))
            try:
                await real.end()
            except ApiError:
                raise AssertionError(f"seed {seed} has left something behind") from None

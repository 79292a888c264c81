"""Fixtures of the tests with real pods: a cluster, the images on it, the sharder installed.

Run by `make e2e-node`, not by `make test`: they take root, Linux and Debian's
packages, or somebody's cluster.  With IMAGE the cluster is the one of
KUBECONFIG, which must be able to pull IMAGE and its `-examples` (or
EXAMPLES_IMAGE).  Tests change cluster-wide objects there: use one to throw away.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import nullcontext
from pathlib import Path

import pytest
import pytest_asyncio

from localcluster import ControlPlane, Node, find_binaries
from localcluster.binaries import say
from localcluster.helm import find_helm
from localcluster.images import Image, build_images
from localcluster.node_programs import find_node_programs
from tests.chart.helm import NAMESPACE, Helm
from tests.node.clusters import Cluster, Reference, proxied, read_reference
from tests.node.readers import Reader, clear

IMAGE = os.environ.get("IMAGE", "")
_IMAGES = pytest.StashKey[Mapping[str, Image]]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build what takes minutes before the first test's clock ticks."""
    if IMAGE or not session.items or session.config.option.collectonly:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else nullcontext():
        say(f"\nlocalcluster: a node's programs: {find_node_programs().source}")
        session.config.stash[_IMAGES] = build_images()


@pytest.fixture(scope="session")
def images(request: pytest.FixtureRequest) -> Mapping[str, Image]:
    """What was built, by target; of the cluster that these tests make themselves."""
    return request.config.stash[_IMAGES]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def plane(request: pytest.FixtureRequest) -> AsyncIterator[ControlPlane | None]:
    """This machine's own cluster, with the images; `None` when another is given."""
    if IMAGE:
        yield None
        return
    plane = ControlPlane(node=Node())
    await plane.start()
    for image in request.config.stash[_IMAGES].values():
        await plane.node.load(image.archive)
    yield plane
    failed = request.session.testsfailed > 0
    plane.close(keep_logs=failed)
    if failed:
        say(f"\nlocalcluster: logs, those of pods among them: {plane.logs}")


@pytest_asyncio.fixture
async def cluster(
    request: pytest.FixtureRequest, plane: ControlPlane | None, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Cluster]:
    helm = Helm(find_helm().program, tmp_path_factory.mktemp("helm"))
    if plane is not None:
        images = request.config.stash[_IMAGES]
        sharder, examples = (
            Reference(images[target].repository, images[target].tag, "Never") for target in ("sharder", "examples")
        )
        async with plane.admin() as admin:
            yield Cluster(admin, plane.admin_kubeconfig, helm, plane.binaries.kubectl, sharder, examples, plane)
        return
    kubeconfig = Path(os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config")
    sharder = read_reference(IMAGE)
    examples = read_reference(os.environ.get("EXAMPLES_IMAGE") or f"{sharder.repository}-examples:{sharder.tag}")
    on_path = shutil.which("kubectl")
    kubectl = (on_path,) if on_path else find_binaries().kubectl
    async with proxied(kubectl, kubeconfig) as admin:
        yield Cluster(admin, kubeconfig, helm, kubectl, sharder, examples, None)


@pytest_asyncio.fixture
async def sharder(cluster: Cluster) -> Cluster:
    """The cluster with the chart installed; it stays from test to test, until one uninstalls it."""
    found = await cluster.release("list", "--namespace", NAMESPACE, "--short")
    if "sharder" not in found.split():
        await cluster.install_sharder()
    return cluster


@pytest_asyncio.fixture
async def reader(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Reader]:
    """Somebody who tries what a page says, on a cluster without a sharder."""
    if cluster.plane is None:
        pytest.skip("types `python -m localcluster`: for the cluster that these tests make themselves")
    await clear(cluster)
    yield Reader.sit_down(cluster, cluster.plane, tmp_path)
    await clear(cluster)

"""What README and docs/operations.md say about a cluster works as it is written, with real pods."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from docsite.pages import blocks_of
from shardsdk.version import VERSION
from tests.node.clusters import PATIENCE_SECONDS, Cluster
from tests.node.owners import World
from tests.node.readers import Reader
from tests.walking import section_of

README: Final = Path("README.md")
OPERATIONS: Final = Path("docs/operations.md")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(4 * PATIENCE_SECONDS)]


async def test_the_readme_installs_sharder_and_controller(cluster: Cluster, reader: Reader) -> None:
    blocks = blocks_of("README.md", section_of(README.read_text(), "## On a cluster"))

    await reader.type(command for block in blocks for command in block.commands)

    world = World(cluster, "checksum", "default", "default", "app.kubernetes.io/name=checksum")
    assert (await world.settled(3)).total() > 0


async def test_operations_installs_from_a_registry_and_makes_a_ring(cluster: Cluster, reader: Reader) -> None:
    """The sharder's pod prints the role, and the ring is ready with it."""
    await reader.call_image(cluster.sharder, f"registry.example.com/controller-sharding:{VERSION}")
    blocks = blocks_of("operations.md", section_of(OPERATIONS.read_text(), "## Install"))
    of_the_ring = next(number for number, block in enumerate(blocks) if "sharder rbac" in block.text)

    await reader.type(
        [command for block in blocks[: of_the_ring + 1] for command in block.commands],
        {block.file: block.text for block in blocks if block.file},
    )

    assert "True" in await cluster.kubectl(
        "get", "clusterring/checksum", "--output=jsonpath={.status.conditions[?(@.type=='PermissionsGranted')].status}"
    )
    await cluster.kubectl("delete", "clusterring/checksum")
    await cluster.kubectl("delete", "clusterrole,clusterrolebinding", "sharding:clusterring:checksum")

"""Rings whose rights were taken away later: what is new on a ring's list waits for its rights."""

from __future__ import annotations

from tests.integration.harness import Stage
from tests.integration.world import RINGS, Ring


async def in_force_before(stage: Stage, ring: Ring) -> None:
    """Write down that what the ring lists may be labelled, as a leader did that was granted what this takes."""
    paths = [path.rpartition("/") for path in ring.resources]
    placed = [{"group": version.rpartition("/")[0], "resource": plural} for version, _, plural in paths]
    await stage.admin.patch(RINGS, ring.name, {"status": {"placedResources": placed}}, subresource="status")

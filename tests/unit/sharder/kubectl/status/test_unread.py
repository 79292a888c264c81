"""What `status` says of a ring of which nobody can tell how it assigns."""

from __future__ import annotations

import json

from tests.unit.sharder.kubectl.rings import SPEC, lease
from tests.unit.sharder.kubectl.status.test_command import Cluster


async def facts(cluster: Cluster) -> list[object]:
    assert "label:" not in (await cluster.status())[1]
    [ring] = json.loads((await cluster.status(output="json"))[1])["rings"]
    return [ring[each] for each in ("upToDate", "assignment", "shardLabel", "namespaces")]


async def test_of_a_ring_that_may_not_be_read_what_it_would_say_is_not_known() -> None:
    cluster = Cluster(lease("one"))
    cluster.denied = {("get", "clusterrings")}
    assert await facts(cluster) == [None, None, None, None]


async def test_of_a_ring_that_cannot_be_used_it_is_not_known_how_it_assigns() -> None:
    assert await facts(Cluster(lease("one"), spec=SPEC | {"assignment": "Ranges"})) == [True, None, None, None]

"""Which namespaces `status` counts as the ring's."""

from __future__ import annotations

import pytest

from sharder.kubectl.outcomes import ExitCode
from tests.unit.sharder.kubectl.rings import SECRETS, SPEC, lease
from tests.unit.sharder.kubectl.status.test_command import Cluster, settled


@pytest.mark.parametrize("generation", [1, 0])
async def test_without_selector_and_webhook_the_scope_is_what_the_sharder_says_of_the_present_spec(
    generation: int,
) -> None:
    covered = {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["default"]}]}
    cluster = Cluster(lease("one"), namespaceSelector=covered, observedGeneration=generation)
    settled(cluster, "one")
    cluster.put(SECRETS, "nobodys", namespace="other")
    code, text = await cluster.status()
    assert ("secrets 1 (other/nobodys)" in text) is (generation == 0)
    assert code is (ExitCode.IN_ORDER if generation == 1 else ExitCode.WRONG)


async def test_of_a_ring_by_ranges_that_looks_at_labels_the_scope_is_what_its_shards_know() -> None:
    """These go by what was said before; labels of namespaces would be no remedy for what is not selected."""
    covered = {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["default"]}]}
    spec = SPEC | {"assignment": "Ranges", "hashBy": "Namespace", "namespaceSelector": {"matchLabels": {"team": "a"}}}
    cluster = Cluster(lease("one"), spec=spec, namespaceSelector=covered, observedGeneration=1)
    _, text = await cluster.status()
    assert "kubernetes.io/metadata.name in (default)" in text
    assert "team" not in text

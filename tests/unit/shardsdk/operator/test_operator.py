"""Operators, driven: what a reconcile function makes of objects."""

from __future__ import annotations

import pytest

from shardsdk.testing import drive
from tests.unit.shardsdk.operator.websites import ConfigMap, Deployment, Website, site, websites


@pytest.mark.parametrize("sharded", [False, True])
def test_children_are_made_and_status_is_written(sharded: bool) -> None:
    rig = drive(websites(sharded=sharded), [site()])

    assert rig.get(ConfigMap, "home").data == {"index.html": "<h1>hi</h1>"}
    assert [each.metadata.name for each in rig.children(Website, "home", Deployment)] == ["home"]
    status = rig.get(Website, "home").status
    assert [(each.type, each.status, each.observed_generation) for each in status.conditions] == [("Ready", "False", 1)]
    assert status.observed_generation == 1
    assert rig.writes == [
        ("patch", "configmaps", "home"),
        ("patch", "deployments", "home"),
        ("patch", "websites", "home"),
    ]
    assert [each.subresource for each in rig.sent] == ["", "", "status"]


def test_only_what_is_sharded_carries_the_label_of_a_shard() -> None:
    unsharded, sharded = drive(websites(), [site()]), drive(websites(sharded=True), [site()])

    for kind in (Website, ConfigMap, Deployment):
        assert not unsharded.labels(kind, "home")
        assert sharded.labels(kind, "home") == {sharded.labels_of_ring.shard: "shard-1"}

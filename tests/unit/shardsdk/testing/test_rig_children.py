"""Children of owners of any kind and namespace are arranged and looked at; and where `drive` is not to be called."""

from __future__ import annotations

import asyncio

import pytest

from shardsdk import ConfigurationError, Context, ObjectMeta, Operator
from shardsdk.kinds import ConfigMap, Secret
from shardsdk.testing import Rig, drive
from tests.shard_rig import CONFIGMAPS, SECRETS


def owning() -> Operator:
    operator = Operator("owning", sharded=True)

    @operator.reconcile(Secret, owns=[ConfigMap])
    async def keep(ctx: Context[Secret]) -> None: ...

    return operator


def test_children_are_of_kinds_and_in_any_namespace() -> None:
    async def story(rig: Rig) -> None:
        for namespace in ("default", "team"):
            rig.create(Secret(ObjectMeta(name="a", namespace=namespace)))
        made = rig.create_child(Secret, "a", ConfigMap("page", data={"a": "b"}), namespace="team")
        assert (made.metadata.namespace, made.data) == ("team", {"a": "b"})
        rig.create_child(Secret, "a", resource=CONFIGMAPS, body={"metadata": {"name": "home"}})
        await rig.settle()

    rig = drive(owning(), [], story)
    assert [each.metadata.name for each in rig.children(Secret, "a", ConfigMap, "team")] == ["page"]
    assert [each["metadata"]["name"] for each in rig.children(SECRETS, "a", CONFIGMAPS)] == ["home"]
    assert set(rig.labels(ConfigMap, "page", "team").values()) == {"shard-1"}


async def test_in_an_event_loop_drive_says_what_to_do() -> None:
    with pytest.raises(ConfigurationError, match=r"drive has one of its own: call it in a plain test .*to_thread"):
        drive(owning(), [Secret("a")])
    assert (await asyncio.to_thread(drive, owning(), [Secret("a")])).failures == []

"""What is pruned of a child that a timer applies as well."""

from __future__ import annotations

from typing import Any

import pytest

from shardsdk import Context, Operator
from shardsdk.errors import Invalid
from shardsdk.testing import Rig, drive
from tests.unit.shardsdk.operator.websites import ConfigMap, Website, site


def shared(*, sharded: bool = False, name: str = "", timed: bool = True) -> Operator:
    """One ConfigMap, of reconcile and (if `timed`) timer, as long as there is a theme."""
    operator = Operator("websites", sharded=sharded)

    @operator.reconcile(Website, owns=[ConfigMap], prune=True, name=name)
    async def function(ctx: Context[Website]) -> None:
        if ctx.object.spec.theme:
            await ctx.apply(ConfigMap("both", data={"theme": ctx.object.spec.theme}))

    if timed:

        @function.timer(every=60)
        async def measure(ctx: Context[Website]) -> None:
            await ctx.apply(ConfigMap("both", data={"measured": "7"}))

    return operator


async def theme(rig: Rig, theme: str) -> None:
    rig.patch(Website, "home", {"spec": {"theme": theme}})
    await rig.settle()


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("name", ["", "n" * 60])
def test_what_the_timer_applies_stays_and_the_rest_goes(sharded: bool, name: str) -> None:
    async def story(rig: Rig) -> None:
        await rig.clock.sleep(70)
        before = rig.get(ConfigMap, "both")
        await theme(rig, "")
        there = rig.get(ConfigMap, "both")
        assert there.data == {"measured": "7"}
        assert there.metadata.uid == before.metadata.uid
        assert there.metadata.owner_references == before.metadata.owner_references
        assert there.metadata.labels == before.metadata.labels
        await rig.clock.sleep(70)
        sent = len(rig.sent)
        rig.patch(Website, "home", {"metadata": {"annotations": {"a": "b"}}})
        await rig.clock.sleep(600)
        assert len(rig.sent) == sent

    rig = drive(shared(sharded=sharded, name=name), [site(theme="dark")], story)
    assert [each for each in rig.writes if each[0] == "delete"] == []


def test_what_a_client_of_that_name_has_written_otherwise_is_not_taken_for_what_was_applied() -> None:
    """An API server has entries of their own for what a manager applies and for what it writes by other means."""

    async def story(rig: Rig) -> None:
        await rig.clock.sleep(70)
        child = rig.server.get(ConfigMap.resource, "both", "default")["metadata"]
        [owner] = {each["manager"] for each in child["managedFields"] if "/timer/" not in each["manager"]}
        patched = {"manager": owner, "operation": "Update", "fieldsV1": {"f:metadata": {"f:ownerReferences": {}}}}
        fields = {"metadata": {"managedFields": [*child["managedFields"], patched]}}
        rig.server.rearrange(ConfigMap.resource, "both", "default", fields)
        await theme(rig, "")
        assert rig.get(ConfigMap, "both").data == {"measured": "7"}

    drive(shared(), [site(theme="dark")], story)


def test_what_is_applied_again_is_there_again() -> None:
    async def story(rig: Rig) -> None:
        await rig.clock.sleep(70)
        await theme(rig, "")
        await theme(rig, "dark")

    rig = drive(shared(), [site(theme="dark")], story)
    assert rig.get(ConfigMap, "both").data == {"theme": "dark", "measured": "7"}


def test_what_a_timer_has_applied_that_is_there_no_more_does_not_stay() -> None:
    async def story(rig: Rig) -> None:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "both"}, "data": {"measured": "7"}}
        rig.server.apply(ConfigMap.resource, "both", "default", body, "websites/timer/measure", force=True)
        assert rig.get(ConfigMap, "both").data == {"theme": "dark", "measured": "7"}
        await theme(rig, "")

    assert drive(shared(timed=False), [site(theme="dark")], story).find(ConfigMap, "both") is None


def test_what_cannot_be_there_with_the_timers_part_alone_is_deleted() -> None:
    async def story(rig: Rig) -> None:
        def admit(verb: str, resource: Any, old: Any, new: Any) -> Any:
            if resource == ConfigMap.resource and "theme" not in new["data"]:
                raise Invalid("there has to be a theme")
            return new

        rig.server.admit = admit
        await rig.clock.sleep(70)
        await theme(rig, "")

    rig = drive(shared(), [site(theme="dark")], story, raises=False)
    assert ("delete", "configmaps", "both") in rig.writes

"""An apply that was left out would have changed nothing, whatever others did to the object meanwhile."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardsdk import Context, Operator
from shardsdk.cache.objects import controller_reference
from shardsdk.errors import NotFound
from shardsdk.testing import MemoryServer, Object, Rig, drive
from tests.unit.shardsdk.operator.websites import ConfigMap, Website, site

FIELD_OWNER = "websites"
KEYS = "abc"
VALUES = st.sampled_from("xy")

#: What the page is to hold: a string of keys, each in small letters or capitals.
themes = st.text("abcABC", max_size=3)
actions = st.one_of(
    st.tuples(st.just("want"), themes),
    st.tuples(st.just("patch"), st.dictionaries(st.sampled_from(KEYS), VALUES | st.none(), min_size=1)),
    st.tuples(st.just("take"), st.dictionaries(st.sampled_from(KEYS), VALUES, min_size=1)),
    st.tuples(st.just("label"), st.dictionaries(st.sampled_from(KEYS), VALUES | st.none(), min_size=1)),
    st.tuples(st.just("disown"), st.none()),
    st.tuples(st.just("delete"), st.none()),
    st.tuples(st.just("replace"), st.none()),
    st.tuples(st.just("lend"), themes),
    st.tuples(st.just("wait"), st.none()),
)


def page_of(theme: str) -> dict[str, str]:
    return {key.lower(): key for key in theme}


def operator(*, sharded: bool) -> Operator:
    made = Operator("websites", sharded=sharded)

    @made.reconcile(Website, owns=[ConfigMap])
    async def website(ctx: Context[Website]) -> None:
        await ctx.apply(ConfigMap(data=page_of(ctx.object.spec.theme)))

    return made


async def act(rig: Rig, action: str, what: Any, *, sharded: bool) -> None:
    """What people and other programs do."""
    server, page = rig.server, (ConfigMap.resource, "home", "default")
    try:
        match action:
            case "want":
                rig.patch(Website, "home", {"spec": {"theme": what}})
            case "patch":
                rig.patch(ConfigMap, "home", {"data": what})
            case "take":
                server.apply(*page, {"data": what}, "somebody", force=True)
            case "label":
                rig.patch(ConfigMap, "home", {"metadata": {"labels": what}})
            case "disown":
                rig.patch(ConfigMap, "home", {"metadata": {"ownerReferences": None}})
            case "delete":
                rig.delete(ConfigMap, "home")
            case "replace":
                found = rig.get(ConfigMap.resource, "home")
                rig.delete(ConfigMap, "home")
                rig.create(ConfigMap.resource, {**found, "metadata": {**found["metadata"], "managedFields": None}})
            case "lend" if sharded:
                await lend(rig, what)
            case _:
                await rig.settle()
    except NotFound:
        pass  # nobody has made it yet, or somebody has deleted it


async def lend(rig: Rig, theme: str) -> None:
    """Another shard of the same controller has the object for a while, and wants something else there."""
    label = rig.labels_of_ring.shard
    move(rig, {label: "shard-2"})
    await rig.settle()
    reference = controller_reference(Website.resource, rig.get(Website, "home").metadata)
    body = {"metadata": {"ownerReferences": [reference], "labels": {label: "shard-2"}}, "data": page_of(theme)}
    rig.server.apply(ConfigMap.resource, "home", "default", body, FIELD_OWNER, force=True)
    move(rig, {label: "shard-1"})


def move(rig: Rig, labels: dict[str, str]) -> None:
    for kind in (ConfigMap, Website):
        if rig.find(kind, "home") is not None:
            rig.patch(kind, "home", {"metadata": {"labels": labels}})


def values_of(thing: Object) -> Object:
    """But for its version, and who set what."""
    hidden = ("resourceVersion", "managedFields", "generation")
    return {**thing, "metadata": {name: value for name, value in thing["metadata"].items() if name not in hidden}}


def applied_once_more(rig: Rig) -> Object:
    """The page as it would be, had the last reconcile sent its apply."""
    owner = rig.get(Website.resource, "home")
    reference = rig.get(ConfigMap.resource, "home")["metadata"].get("ownerReferences", [])
    assert [each["uid"] for each in reference if each.get("controller")] == [owner["metadata"]["uid"]]
    shard = owner["metadata"].get("labels")
    metadata = {"name": "home", "ownerReferences": reference, **({"labels": shard} if shard else {})}
    wanted = page_of(owner["spec"].get("theme", ""))
    body = {"metadata": metadata, **({"data": wanted} if wanted else {})}
    server = MemoryServer(version=rig.server.version, objects=copy.deepcopy(rig.server.objects))
    return server.apply(ConfigMap.resource, "home", "default", body, FIELD_OWNER, force=True)


@pytest.mark.parametrize("sharded", [False, True])
@settings(max_examples=60)
@given(first=themes, story=st.lists(actions, max_size=6))
def test_what_is_not_applied_would_have_changed_nothing(
    sharded: bool, first: str, story: list[tuple[str, Any]]
) -> None:
    async def told(rig: Rig) -> None:
        for action, what in story:
            await act(rig, action, what, sharded=sharded)

    rig = drive(operator(sharded=sharded), [site(theme=first)], told)
    assert values_of(rig.get(ConfigMap.resource, "home")) == values_of(applied_once_more(rig))


@settings(max_examples=30)
@given(first=themes, touches=st.integers(1, 4))
def test_at_rest_nothing_is_sent(first: str, touches: int) -> None:
    async def told(rig: Rig) -> None:
        for number in range(touches):
            rig.patch(Website, "home", {"metadata": {"annotations": {"touched": str(number)}}})
            await rig.settle()

    rig = drive(operator(sharded=False), [site(theme=first)], told)
    assert len(rig.sent) == 1

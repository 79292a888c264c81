"""What a manager's cache is told in several calls holds together; of an index that is not there a watch is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shardsdk import ConfigurationError, Manager, Operator, Selector, selectors
from shardsdk.cache.objects import drop_managed_fields
from shardsdk.kinds import ConfigMap, Secret
from shardsdk.process.process import ExitCode
from shardsdk.testing import Rig, drive
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import SECRETS
from tests.unsharded_rig import ELECTION, Cluster

RED, BLUE = (Selector(labels=selectors.equals("color", each)) for each in ("red", "blue"))


def pages(thing: Any) -> list[str]:
    return ["page"]


def other(thing: Any) -> list[str]:
    return []


def indexed() -> tuple[Operator, list[str]]:
    """One whose objects a ConfigMap wakes by an index, and whom it has reconciled."""
    operator, seen = Operator("secrets"), list[str]()

    @operator.reconcile(Secret)
    async def keep(ctx: Any) -> None:
        seen.append(ctx.name)

    keep.index("page", pages)
    keep.watches(ConfigMap, to="page")
    return operator, seen


async def make_page(rig: Rig) -> None:
    rig.create(ConfigMap("page"))
    await rig.settle()


def test_what_an_operator_indexes_stays_when_more_is_said_of_the_cache() -> None:
    operator, seen = indexed()
    manager = operator.manager().cache(SECRETS, namespaces=["default"], indexes={"other": other})
    assert manager.cached[SECRETS.group_resource].namespaces == ("default",)
    assert manager.cached[SECRETS.group_resource].indexes == {"page": pages, "other": other}
    drive(manager, [Secret("a")], make_page)
    assert seen == ["a", "a"]


def test_each_call_says_more_in_whatever_order() -> None:
    manager = Manager().cache(SECRETS, selector=RED).cache(SECRETS, transform=str).cache(SECRETS, selector=RED)
    settings = manager.cached[SECRETS.group_resource]
    assert (settings.selector, settings.transform, settings.namespaces) == (RED, str, None)
    assert Manager().cache(SECRETS).cached[SECRETS.group_resource].transform is drop_managed_fields


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        ({"indexes": {"page": pages}}, {"indexes": {"page": other}}, "two indexes of secrets are called 'page'"),
        ({"namespaces": ["a"]}, {"namespaces": []}, "the cache of secrets is given two different namespaces"),
        ({"selector": RED}, {"selector": BLUE}, "two different selector"),
        ({"transform": str}, {"transform": repr}, "two different transform"),
    ],
)
def test_what_contradicts_itself_is_refused(first: Any, second: Any, says: str) -> None:
    manager = Manager().cache(SECRETS, **first)
    with pytest.raises(ConfigurationError, match=says):
        manager.cache(SECRETS, **second)


class Site:
    def pages(self, thing: Any) -> list[str]:
        return []


def test_the_same_said_twice_is_no_contradiction() -> None:
    site = Site()
    first: dict[str, Any] = {"namespaces": ["a", "b"], "indexes": {"page": site.pages, "other": other}}
    second: dict[str, Any] = {"namespaces": ("b", "a"), "indexes": {"page": site.pages, "other": other}}
    settings = Manager().cache(SECRETS, **first).cache(SECRETS, **second).cached[SECRETS.group_resource]
    assert set(settings.namespaces or ()) == {"a", "b"}
    assert set(settings.indexes) == {"page", "other"}


def in_a_manager_of_its_own(operator: Operator) -> Manager:
    manager = Manager(election=ELECTION)
    for spec in operator.controllers():
        manager.add(spec)
    return manager


NOT_THERE = "watches configmaps by the index 'page', which the cache of secrets does not have: run its operator by"


@in_virtual_time
async def test_an_index_that_is_not_there_is_said_before_anything_starts(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Else nothing that happens to a watched object would wake anybody."""
    manager = in_a_manager_of_its_own(indexed()[0])
    assert await manager.run_async(Cluster(clock).replica().world()) is ExitCode.CONFIGURATION
    assert NOT_THERE in caplog.text


@pytest.mark.parametrize("of", [in_a_manager_of_its_own, Operator.controllers])
def test_an_index_that_is_not_there_fails_a_drive(of: Callable[[Operator], Any]) -> None:
    with pytest.raises(ConfigurationError, match=NOT_THERE):
        drive(of(indexed()[0]), [Secret("a")], make_page)


def test_controllers_run_in_a_manager_that_is_told_of_their_indexes() -> None:
    operator, seen = indexed()
    drive(in_a_manager_of_its_own(operator).cache(SECRETS, indexes={"page": pages}), [Secret("a")], make_page)
    assert seen == ["a", "a"]

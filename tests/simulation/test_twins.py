"""Two shards of one name: judges are told of them as of two."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from shardsdk.kube.store import Key
from shardsdk.protocol.objects import LEASES
from shardsdk.protocol.ranges import RING_ASSIGNMENTS
from tests.simulation.ranges.drawing import TWINS, draw_ranges_plan
from tests.simulation.ranges.twins import Names
from tests.simulation.storage import Author, Commit, Version
from tests.simulation.vocabulary import SHARDS_NAMESPACES

PLAN = replace(draw_ranges_plan(1), spread=True, twins=True)
NAMES = Names(PLAN)
HOME = NAMES.namespace_of("fam-0")
(ELSEWHERE,) = {*SHARDS_NAMESPACES} - {HOME}


def version(name: str, namespace: str, **said: Any) -> Version:
    meta = {"namespace": namespace, "name": name, "resourceVersion": "7", "uid": f"{namespace}/{name}"}
    return Version({"metadata": meta, **said})


def test_a_lease_elsewhere_is_told_as_one_of_another_shard_which_holds_it() -> None:
    for namespace, called in ((HOME, "fam-0"), (ELSEWHERE, NAMES.twin("fam-0"))):
        lease = version("fam-0", namespace, spec={"holderIdentity": "fam-0"})
        told = NAMES.commit(Commit(7, LEASES, lease.key, None, lease, Author("it")))
        assert told.after is not None
        assert (told.key, told.after.doc["spec"]["holderIdentity"]) == (Key(namespace, called), called)
        assert told.after is NAMES.lease(lease), "judges compare versions"
        assert (NAMES.namespace_of(called), NAMES.in_product(called)) == (namespace, "fam-0")
    taken = NAMES.lease(version("fam-0", ELSEWHERE, spec={"holderIdentity": "shardlease-controller"}))
    assert taken.doc["spec"]["holderIdentity"] == "shardlease-controller"


def test_a_range_is_told_as_of_the_shard_that_it_names_by_its_namespace() -> None:
    ranges = [{"start": "0", "shard": "fam-0", "namespace": each} for each in (HOME, ELSEWHERE)]
    found = version("family", "", spec={"ranges": [*ranges, {"start": "0", "shard": "fam-0"}, {"start": "0"}]})
    told = NAMES.commit(Commit(7, RING_ASSIGNMENTS, found.key, None, found, Author("it")))
    shards = [each.get("shard") for each in told.latest.doc["spec"]["ranges"]]
    assert shards == ["fam-0", NAMES.twin("fam-0"), "fam-0", None]


def test_twins_are_drawn_in_some_runs_and_where_they_are_asked_for() -> None:
    plans = [draw_ranges_plan(seed) for seed in range(100)]
    assert 5 < sum(plan.twins for plan in plans) < 40
    for plan in (*plans, draw_ranges_plan(1, {"add_twin": 10.0})):
        assert plan.spread or not plan.twins
        assert plan.twins == any(action.what in TWINS for action in plan.actions)

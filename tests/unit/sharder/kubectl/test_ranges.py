"""`kubectl sharding` about a ring by ranges: what it counts, how it explains an object, and what it checks."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sharder.core.ringspec import ResolvedMain, ResolvedRing, parse_ring
from sharder.kubectl.check.findings import Finding, Level
from sharder.kubectl.check.ranges import check_ranges, read_filtering
from sharder.kubectl.cluster import Reader, SeenLeases
from sharder.kubectl.explain.explanation import Explanation, Known
from sharder.kubectl.explain.ranges import explain_range
from sharder.kubectl.explain.text import render_explanation
from sharder.kubectl.outcomes import ExitCode
from sharder.kubectl.ranges import SeenRanges
from sharder.kubectl.shards import read_membership, read_shard_status
from sharder.kubectl.status.command import show_status
from sharder.kubectl.status.overview import Condition
from sharder.kubectl.text import Painter
from shardsdk.errors import ConnectionFailed, ShardingError
from shardsdk.protocol.labels import SHARDER_HOLDER
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES, NAMESPACES, ObjectMeta
from shardsdk.protocol.ranges import (
    EVERYWHERE,
    HELD_RANGES_ANNOTATION,
    RING_ASSIGNMENTS,
    SPACE,
    HashBy,
    HashRanges,
    Named,
    point_of,
    render_assignment,
)
from shardsdk.testing.memory import MemoryServer
from tests.unit.sharder.kubectl.rings import (
    NOW,
    SECRETS,
    RestrictedApi,
    Wall,
    lease,
    manifest,
    raw_ring,
    resolved_ring,
    said,
    session_of,
)

SPEC: dict[str, Any] = {"assignment": "Ranges", "hashBy": "Namespace", "resources": [{"resource": "secrets"}]}
#: `left` lies before `right`; the space is cut between them.
LEFT, RIGHT = sorted(("team-a", "other"), key=point_of)
MIDDLE = point_of(RIGHT)
LOW, HIGH = HashRanges.of((0, MIDDLE)), HashRanges.of((MIDDLE, SPACE))
SHARED = Named(HashBy.NAMESPACE, {"one": LOW, "two": HIGH})


def holding(name: str, ranges: HashRanges, **options: Any) -> Lease:
    made = lease(name, **options)
    annotations = {**(made.metadata.annotations or {}), HELD_RANGES_ANNOTATION: str(ranges)}
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, annotations=annotations))


class Cluster:
    """A ring by ranges in memory, with one Secret in each of two namespaces."""

    def __init__(self, named: Named | None, *leases: Lease) -> None:
        self.server = MemoryServer()
        self.denied: set[tuple[str, str]] = set()
        self.server.arrange(CLUSTERRINGS, raw_ring(spec=SPEC), None)
        for namespace in (LEFT, RIGHT):
            self.server.create(NAMESPACES, {"metadata": {"name": namespace}}, None)
            self.server.create(SECRETS, manifest("secret"), namespace)
        self.server.create(SECRETS, manifest("secret"), "kube-system")
        if named is not None:
            spec = msgspec.to_builtins(render_assignment(named))
            self.server.create(RING_ASSIGNMENTS, {"metadata": {"name": "checksum"}, "spec": spec}, None)
        for each in leases:
            self.server.create(LEASES, msgspec.to_builtins(each), each.metadata.namespace)

    def api(self) -> RestrictedApi:
        api = RestrictedApi(self.server, Wall(), self.denied)
        api.served.append(RING_ASSIGNMENTS)
        return api

    async def ranges(self, leases: Iterable[Lease]) -> SeenRanges:
        reader = Reader(self.api(), Wall())
        return await reader.ranges(parse_ring(raw_ring(spec=SPEC)), SeenLeases(list(leases), whole=True))

    async def status(self, **options: Any) -> tuple[ExitCode, str]:
        session = session_of(self.api(), **options)
        return await show_status(session, "checksum"), said(session)


async def test_objects_are_counted_by_the_lease_that_holds_their_range() -> None:
    cluster = Cluster(SHARED, holding("one", LOW), holding("two", HIGH))
    code, text = await cluster.status()
    assert code is ExitCode.IN_ORDER
    assert "settled" in text
    assert "by hash of Namespace: 2 ranges of 2 shards\n" in text
    found = json.loads((await cluster.status(output="json"))[1])["rings"][0]
    assert [shard["objects"] for shard in found["shards"]] == [{"secrets": 1}, {"secrets": 1}]
    assert found["ranges"] == {"hashBy": "Namespace", "byShard": {"one": 1, "two": 1}, "moving": 0}
    assert (found["assignment"], found["shardLabel"]) == ("Ranges", None)


@pytest.mark.parametrize(
    ("named", "leases", "trouble"),
    [
        # Revoked, and not let go.
        (Named(HashBy.NAMESPACE, {"one": LOW}), (holding("one", LOW), holding("two", HIGH)), "draining"),
        # Let go, and nobody named yet; named, and not taken yet.
        (Named(HashBy.NAMESPACE, {"one": LOW}), (holding("one", LOW), lease("two")), "unassigned"),
        (SHARED, (holding("one", LOW), lease("two")), "unassigned"),
        # Taken over by the sharder, which empties it.
        (SHARED, (holding("one", LOW), lease("two", holder=SHARDER_HOLDER, state="dead")), "stranded"),
    ],
)
async def test_what_is_on_its_way_is_told_by_what_it_waits_for(
    named: Named, leases: tuple[Lease, ...], trouble: str
) -> None:
    cluster = Cluster(named, *leases)
    code, text = await cluster.status(output="json")
    assert code is not ExitCode.IN_ORDER
    found = json.loads(text)["rings"][0]
    counts = {name: found[name] for name in ("unassigned", "stranded", "draining", "misplaced")}
    assert counts == {**dict.fromkeys(counts, 0), trouble: 1}
    assert found["settled"] is False


async def test_without_its_assignment_a_ring_is_not_in_order_and_nothing_is_guessed() -> None:
    code, text = await Cluster(None, holding("one", EVERYWHERE)).status()
    assert code is not ExitCode.IN_ORDER
    assert "RingAssignment checksum is not there" in text
    cluster = Cluster(SHARED, holding("one", LOW), holding("two", HIGH))
    cluster.denied.add(("get", "ringassignments"))
    code, text = await cluster.status()
    assert code is ExitCode.UNKNOWN
    assert "ringassignment checksum" in text


def explained(namespace: str, named: Named | None, *leases: Lease, covered: bool | None = True) -> Explanation:
    ring = resolved_ring(SPEC)
    statuses = tuple(read_shard_status(each, NOW) for each in leases)
    known = Known(
        ring=ring,
        subject=next(ring.subjects()),
        meta=ObjectMeta(name="secret", namespace=namespace),
        owner=None,
        membership=read_membership(leases, statuses),
        shard_statuses=statuses,
        covered=covered,
        conditions=(),
        up_to_date=True,
        leading=None,
    )
    return explain_range(known, SeenRanges.of(HashBy.NAMESPACE, named, leases))


def test_an_object_is_explained_by_its_point_and_who_is_named_there_and_holds_it() -> None:
    found = explained(RIGHT, SHARED, holding("one", LOW), holding("two", HIGH))
    assert found.key == f"0x{MIDDLE:016x} (namespace '{RIGHT}')"
    assert (found.current, found.desired, found.draining, found.in_place) == ("two", "two", False, True)
    whole = f"0x{MIDDLE:016x}-0x10000000000000000"
    assert f"in the range {whole}, for which RingAssignment checksum names two" in found.because[0]
    assert found.because[1] == "the lease of two says that it holds this range"
    assert found.then == "it is where it belongs"
    lines = "\n".join(render_explanation(found, Painter(False)))
    assert "belongs on" not in lines
    assert "two (ready, renewed 1s ago)" in lines


def test_an_object_on_its_way_is_explained_with_whom_it_waits_for() -> None:
    kept = explained(RIGHT, SHARED, holding("one", EVERYWHERE), lease("two"))
    assert (kept.current, kept.desired, kept.draining, kept.in_place) == ("one", "two", True, False)
    assert "one is to let go of it" in kept.then
    assert "the answer of one: look into its log, or stop it" in kept.missing[0]
    named = explained(RIGHT, SHARED, holding("one", LOW), lease("two"))
    assert named.then == "two takes it as soon as no other shard's lease holds it"
    gone = explained(RIGHT, SHARED, holding("one", LOW), lease("two", holder=SHARDER_HOLDER, state="dead"))
    assert gone.then.startswith("the sharder names another shard once it holds the lease of two: within 15s, as a rule")
    nobody = explained(RIGHT, Named(HashBy.NAMESPACE, {"one": LOW}), holding("one", LOW), lease("two"))
    assert "names nobody at present" in nobody.because[0]
    assert nobody.then == "the sharder names a shard for it, as a rule within a second"
    assert "an available shard" in explained(RIGHT, SHARED).missing[0]


@pytest.mark.parametrize(
    ("one", "two", "namespace", "shard"), [(LOW, EVERYWHERE, LEFT, "two"), (EVERYWHERE, HIGH, RIGHT, "one")]
)
async def test_a_range_that_two_leases_hold_is_not_settled_and_both_are_named(
    one: HashRanges, two: HashRanges, namespace: str, shard: str
) -> None:
    leases = holding("one", one), holding("two", two)
    code, text = await Cluster(SHARED, *leases).status()
    assert (code, "not settled" in text, "1 on their way" in text) == (ExitCode.WRONG, True, True)
    made = explained(namespace, SHARED, *leases)
    assert (made.in_place, made.current) == (False, shard)
    assert {f"the lease of {each} says that it holds this range" for each in ("one", "two")} <= set(made.because)
    found = levels(SeenRanges.of(HashBy.NAMESPACE, SHARED, leases))["ranges"]
    assert found.level is Level.PROBLEM
    assert "one" in found.message
    assert "two" in found.message
    assert f"stop {shard}, " in found.remedy


@pytest.mark.parametrize("restored", [{"renewed": 86_400}, {"renewed": 20, "state": "expired"}])
@pytest.mark.parametrize("has", [EVERYWHERE, "0x0-0xff"])
async def test_a_lease_that_has_run_out_overlaps_nothing(restored: dict[str, Any], has: Any) -> None:
    """A backup has brought it back, say: nobody works by it, so that there is nobody to stop."""
    leases = holding("one", LOW), holding("two", HIGH), holding("gone", has, **restored)
    assert (await Cluster(SHARED).ranges(leases)).overlapping is None
    assert (await Cluster(SHARED).ranges([*leases[:2], holding("gone", has)])).overlapping is not None


def test_that_held_ranges_cannot_be_read_is_said_and_not_that_they_are_held_twice() -> None:
    nonsense = holding("one", LOW)
    said = {**(nonsense.metadata.annotations or {}), HELD_RANGES_ANNOTATION: "0x0-0xff"}
    nonsense = msgspec.structs.replace(nonsense, metadata=msgspec.structs.replace(nonsense.metadata, annotations=said))
    found = levels(SeenRanges.of(HashBy.NAMESPACE, SHARED, [nonsense, holding("two", HIGH)]))["ranges"]
    assert (found.level, found.message[:20]) == (Level.PROBLEM, "the Lease of one has")
    assert "that cannot be read" in found.message
    assert "all hold" not in found.message


def test_whoever_has_left_a_range_to_its_next_process_is_not_asked_for() -> None:
    left = holding("one", EVERYWHERE, instance="")
    kept = explained(RIGHT, SHARED, left, lease("two"))
    assert kept.missing[0].startswith("the next process of one, which ended with a restart grace")


def test_the_documented_example_is_what_is_said() -> None:
    held = HashRanges.of((0xC << 60, 0xE << 60))
    spec = {"metadata": {"name": "tokens"}, "spec": SPEC}
    ring = ResolvedRing(parse_ring(spec), (ResolvedMain(SECRETS),))
    leases = (holding("tokens-1", held, ring="tokens"), lease("tokens-2", ring="tokens"))
    statuses = tuple(read_shard_status(each, NOW) for each in leases)
    meta = ObjectMeta(name="one", namespace="team-a")
    known = Known(
        ring, next(ring.subjects()), meta, None, read_membership(leases, statuses), statuses, True, (), True, None
    )
    seen = SeenRanges.of(HashBy.NAMESPACE, Named(HashBy.NAMESPACE, {"tokens-2": held.complement}), leases)
    text = "\n".join(render_explanation(explain_range(known, seen), Painter(False)))
    assert text in Path("docs/kubectl.md").read_text(encoding="utf-8")


def test_nothing_is_said_of_what_could_not_be_read_and_of_what_is_none_of_the_rings() -> None:
    assert explained("kube-system", SHARED, holding("one", LOW), covered=False).then == "the ring leaves it alone"
    assert explained(RIGHT, None, holding("one", LOW)).in_place is None
    assert explained(RIGHT, SHARED, holding("two", HIGH), covered=None).in_place is None


# -- check --------------------------------------------------------------------


class Answering(RestrictedApi):
    """An API server that says, or does not say, that it filters."""

    def __init__(self, answer: bytes | ShardingError) -> None:
        super().__init__(MemoryServer(), Wall(), set())
        self.answer = answer
        self.asked = ""

    async def raw(self, method: str, path: str, **options: Any) -> bytes:
        self.asked = f"{method} {path} {dict(options['query'])}"
        if isinstance(self.answer, ShardingError):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("answer", "filters"),
    [
        (b'{"metadata": {"shardInfo": {"selector": "x"}}, "items": []}', True),
        (b'{"metadata": {}, "items": []}', False),
        (b"no json", None),
        (ConnectionFailed("no"), None),
    ],
)
async def test_only_a_list_that_repeats_the_selector_was_filtered(
    answer: bytes | ShardingError, filters: bool | None
) -> None:
    api = Answering(answer)
    assert await read_filtering(api) is filters
    assert api.asked.startswith("GET /apis/coordination.k8s.io/v1/leases {'limit': '1', 'shardSelector': \"shardRange(")


def levels(seen: SeenRanges | None, filters: bool | None = True) -> dict[str, Finding]:
    return {each.topic: each for each in check_ranges("checksum", seen, filters)}


def test_everything_in_order_is_told_as_such() -> None:
    even = Condition("Even", True, "Even", "the fullest shard, one, has 1.02 times its part")
    near = Condition("Together", True, "OneNamespace", "all shards have their Leases in one namespace")
    seen = SeenRanges.of(HashBy.NAMESPACE, SHARED, [holding("one", LOW), holding("two", HIGH)], conditions=(even, near))
    assert {topic: each.level for topic, each in levels(seen).items()} == dict.fromkeys(
        ("ranges", "filtering", "balance", "namespaces"), Level.OK
    )


def test_what_is_amiss_is_told_with_its_remedy() -> None:
    uneven = Condition("Even", False, "LargeNamespace", "namespace x alone has 2 parts; divide it")
    apart = Condition("Together", False, "ManyNamespaces", "shards are in a, b; run all in one")
    seen = SeenRanges.of(HashBy.NAMESPACE, SHARED, [holding("one", EVERYWHERE)], conditions=(uneven, apart))
    found = levels(seen, filters=False)
    assert {topic: each.level for topic, each in found.items()} == dict.fromkeys(found, Level.WARNING)
    assert found["balance"].remedy == "divide it"
    assert found["namespaces"].remedy == "run all in one"
    assert "--feature-gates=ShardedListAndWatch=true" in found["filtering"].remedy
    assert "kubectl get ringassignment checksum" in found["ranges"].remedy


def test_what_could_not_be_read_or_is_not_there_is_no_good_news() -> None:
    assert levels(None)["ranges"].level is Level.UNKNOWN
    assert levels(None, None)["filtering"].level is Level.UNKNOWN
    gone = SeenRanges.of(HashBy.NAMESPACE, None, [], "RingAssignment checksum is not there")
    assert levels(gone)["ranges"].level is Level.PROBLEM

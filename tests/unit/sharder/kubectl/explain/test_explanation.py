"""Why an object is where it is: the sharder's own decision, in words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharder.core.decisions import Decision, Reason
from sharder.core.membership import Membership, build
from sharder.core.ringspec import Subject
from sharder.kubectl.cluster import read_ring
from sharder.kubectl.explain.command import stray_labels
from sharder.kubectl.explain.explanation import Explanation, Known, Owner, explain
from sharder.kubectl.explain.text import render_explanation
from sharder.kubectl.leader import Leading
from sharder.kubectl.shards import read_shard_status
from sharder.kubectl.status.overview import Condition
from sharder.kubectl.text import Painter
from shardsdk.protocol.labels import SHARD_LABEL_PREFIX, SHARDER_HOLDER
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.objects import ObjectMeta, OwnerReference
from tests.unit.sharder.kubectl.rings import CONFIGMAP, LABELS, NOW, SECRET, lease, members, raw_ring, resolved_ring

LEADS = Leading(True, "sharder-1 leads, renewed 1s ago")
GONE = Leading(False, "sharder-1 last renewed the lease sharding-system/sharder 5m ago")


def known(subject: Subject = SECRET, shard: str | None = None, *, drain: bool = False, **changes: Any) -> Known:
    labels = ({LABELS.shard: shard} if shard is not None else {}) | ({LABELS.drain: "true"} if drain else {})
    references = [OwnerReference("v1", "Secret", "owner", "uid", True)] if subject is CONFIGMAP else None
    facts: dict[str, Any] = {
        "ring": resolved_ring(),
        "subject": subject,
        "meta": ObjectMeta(name="a", namespace="default", labels=labels or None, owner_references=references),
        "owner": None,
        "membership": members("one"),
        "shard_statuses": (read_shard_status(lease("one"), NOW),),
        "covered": True,
        "conditions": (),
        "up_to_date": True,
        "leading": LEADS,
    }
    return Known(**facts | changes)


def lines(explanation: Explanation) -> list[str]:
    return [" ".join(line.split()) for line in render_explanation(explanation, Painter(False))]


def test_an_object_in_its_place() -> None:
    explanation = explain(known(shard="one"))
    assert explanation.in_place
    assert lines(explanation) == [
        "Ring checksum (main resource)",
        "shard one (ready, renewed 1s ago)",
        "because the hash of its key falls to one, of 1 available shard: one",
        "decision KEEP it is where it belongs",
        "ring key /Secret/default/a",
    ]


def test_an_object_without_shard_is_given_one() -> None:
    explanation = explain(known())
    assert (explanation.in_place, explanation.current, explanation.desired) == (False, None, "one")
    assert explanation.then == "the sharder gives it to one, as a rule within a second"
    assert explanation.missing == ()


def test_without_a_sharder_that_is_what_is_missing() -> None:
    condition = Condition("PermissionsGranted", False, "Forbidden", "the sharder may not patch secrets")
    explanation = explain(known(leading=GONE, up_to_date=False, conditions=(condition,)))
    assert explanation.missing == (
        "a sharder: sharder-1 last renewed the lease sharding-system/sharder 5m ago; start it, or look into its log",
        "a sharder that has seen the ring's present spec",
        "ring condition PermissionsGranted is false: the sharder may not patch secrets",
    )
    assert lines(explanation)[5].startswith("missing a sharder: ")


def test_what_does_not_move_where_the_api_server_refuses_writes_may_be_one_of_those() -> None:
    refused = Condition("Settled", False, "Refused", "1 stranded; the API server refuses to change some of them")
    moving = Condition("Settled", False, "Moving", "1 stranded")
    shards = members("one", "two")
    both = [explain(known(shard="one", membership=shards, conditions=(each,))) for each in (refused, moving)]
    assert [each.outcome.decision.name for each in both if each.outcome is not None] == ["DRAIN", "DRAIN"]
    [missing] = both[0].missing
    assert "Event PlacementRefused has one, and why (kubectl describe clusterring checksum)" in missing
    assert both[1].missing == ()


def test_without_a_shard_that_is_what_is_missing() -> None:
    explanation = explain(known(membership=Membership(), shard_statuses=()))
    assert explanation.outcome is not None
    assert explanation.outcome.decision is Decision.DEFER
    assert explanation.missing[0].startswith("an available shard: start one (a Lease labelled alpha.sharding")


#: How long one counts as held that was deleted, the leader alone knows.
UNLESS_DELETED = ", as a rule; longer if one of a longer duration was deleted (ShardsAvailable says until when)"


def test_a_stranded_object_names_the_shard_that_is_gone() -> None:
    dead = read_shard_status(lease("two", holder="", state="dead"), NOW)
    explanation = explain(known(shard="two", shard_statuses=(read_shard_status(lease("one"), NOW), dead)))
    assert explanation.then == f"the sharder moves it to one once it holds the lease of two: within 15s{UNLESS_DELETED}"
    assert explanation.shard_status == "dead, renewed 1s ago"
    assert explain(known(shard="ghost")).shard_status == "no lease of that name"


@pytest.mark.parametrize(
    ("leases", "waits"),
    [
        ([lease("one", duration=60)], f": within 60s{UNLESS_DELETED}"),
        ([lease("one"), lease("two", holder="", duration=30)], ": within 30s, as a rule"),
        ([lease("one"), lease("two", holder="me", duration=30)], ", 30s after me, who holds that, has renewed it last"),
        (
            [lease("one"), lease("two", holder="me", duration=2**31 - 1)],
            ", 60m after me, who holds that, has renewed it last",
        ),
        ([lease("one"), lease("stray", holder="me", duration=2**31 - 1)], f": within 15s{UNLESS_DELETED}"),
    ],
    ids=["no lease", "emptied", "a stranger's", "a stranger's for 68 years", "beside one of 68 years"],
)
def test_until_when_the_lease_of_a_shard_that_is_gone_counts_as_held_is_said(leases: list[Lease], waits: str) -> None:
    statuses = tuple(read_shard_status(each, NOW) for each in leases)
    explanation = explain(known(shard="two", shard_statuses=statuses, leases=tuple(leases)))
    assert explanation.then == f"the sharder moves it to one once it holds the lease of two{waits}"


def test_a_stranded_object_of_a_lease_that_the_sharder_holds_points_to_who_may_refuse() -> None:
    taken = read_shard_status(lease("two", holder=SHARDER_HOLDER), NOW)
    explanation = explain(known(shard="two", shard_statuses=(read_shard_status(lease("one"), NOW), taken)))
    assert explanation.then == (
        "the sharder moves it to one: it holds the lease of two; if this stays, an Event PlacementRefused says why"
        " (kubectl describe clusterring checksum)"
    )


def test_a_drain_that_waits_says_for_whom() -> None:
    explanation = explain(known(shard="one", drain=True))
    assert explanation.then == (
        "one has been asked to let go (drain label) and has not acknowledged that yet (one write that takes both labels"
        " off and does nothing else)"
    )
    assert explanation.missing == ("the answer of one: look into its log, or stop it, and its objects move without it",)


def test_a_child_follows_its_owner_wherever_that_is() -> None:
    membership = members("one", "two")
    for shard in ("one", "two"):
        owner = Owner("Secret", "owner", True, label=shard)
        explanation = explain(known(CONFIGMAP, shard, membership=membership, owner=owner))
        assert explanation.in_place
        assert explanation.because == (f"children follow their owner: Secret owner is on shard {shard}",)


def test_a_child_that_was_a_main_object_is_asked_back_first() -> None:
    owner, membership = Owner("Secret", "owner", True, label="one"), members("one", "two")
    then = "the next resync asks two to let go of it (drain label); then one gets it"
    joining = (CONFIGMAP.resource.group_resource,)
    assert explain(known(CONFIGMAP, "two", membership=membership, owner=owner, joining=joining)).then == then


def test_an_owner_stays_while_what_it_controls_is_asked_back() -> None:
    joining = (CONFIGMAP.resource.group_resource,)
    place = explain(known(SECRET, "one", membership=members("one", "two"))).desired
    [other] = {"one", "two"} - {place}
    assert explain(known(SECRET, other, membership=members("one", "two"), joining=joining)).then == (
        f"it stays with {other} until all configmaps are with their owners, which the ring lists as controlled now"
        f" (condition Settled); then {place} gets it"
    )


def test_a_child_of_an_unassigned_owner_points_to_the_owner() -> None:
    explanation = explain(known(CONFIGMAP, owner=Owner("Secret", "owner", True)))
    assert explanation.then == "it waits: its owner has no shard yet; it follows its owner"
    assert explanation.missing == ("a shard for its owner: `kubectl sharding explain secrets owner -n default`",)


def test_a_command_that_is_to_be_run_quotes_a_strangers_name() -> None:
    explanation = explain(known(CONFIGMAP, owner=Owner("Secret", "owner; $(reboot)", True)))
    [missing] = explanation.missing
    assert "explain secrets 'owner; $(reboot)' -n default" in missing


def test_a_child_whose_owner_is_gone_goes_by_the_hash() -> None:
    explanation = explain(known(CONFIGMAP, "one", owner=Owner("Secret", "owner", False)))
    assert explanation.in_place
    assert explanation.because[0] == "its owner, Secret owner, is not there; so the hash of the owner's key decides"
    assert explanation.because[1].startswith("the hash of its key falls to one")


def test_an_object_that_nothing_in_the_ring_controls_is_left_alone() -> None:
    free = known(CONFIGMAP)
    explanation = explain(
        Known(**{name: getattr(free, name) for name in Known.__slots__} | {"meta": ObjectMeta(name="a", namespace="b")})
    )
    assert explanation.in_place
    assert explanation.key is None
    assert explanation.because == (
        "it has no controller reference; the ring takes configmaps whose controller is a Secret",
    )


def test_outside_the_scope_it_shall_have_no_shard() -> None:
    explanation = explain(known(covered=False))
    assert (explanation.in_place, explanation.desired) == (True, None)
    assert explanation.because[0].startswith("namespace default is outside the ring's scope (kubernetes.io/metadata")
    assert explain(known(shard="one", covered=False)).then.startswith("the next resync asks one to let go of it")


@pytest.mark.parametrize("changes", [{"membership": None}, {"covered": None}])
def test_what_could_not_be_read_leaves_it_open(changes: dict[str, Any]) -> None:
    explanation = explain(known(shard="one", **changes))
    assert (explanation.in_place, explanation.outcome) == (None, None)
    assert explanation.then == "not known: not everything could be read"


def test_an_owner_that_could_not_be_read_leaves_it_open() -> None:
    explanation = explain(known(CONFIGMAP, "one", owner=Owner("Secret", "owner", None)))
    assert explanation.in_place is None
    assert explanation.because == ("its owner, Secret owner, could not be read",)


OWNERS = st.builds(Owner, st.just("Secret"), st.just("owner"), st.booleans(), st.sampled_from([None, "one", "ghost"]))
labels = st.sampled_from([None, "one", "two", "ghost", "twice"])


@pytest.mark.parametrize(
    ("shards", "why"),
    [
        (replace(members("one", "two"), leaving=frozenset({"one", "two"})), "is about to leave"),
        (replace(members("one", "two"), left=frozenset({"one", "two"})), "has left its lease to its next process"),
    ],
)
def test_why_nothing_is_drained_toward_the_shard_where_an_object_belongs_is_told(shards: Membership, why: str) -> None:
    there = explain(known(membership=shards)).desired
    explanation = explain(known(shard="two" if there == "one" else "one", membership=shards))
    assert explanation.outcome is not None
    assert explanation.outcome.reason is Reason.TARGET_NOT_READY
    assert explanation.then == f"it waits: nothing is drained toward {there}, where it belongs and which {why}"


@given(
    subject=st.sampled_from([SECRET, CONFIGMAP]),
    shard=labels,
    drain=st.booleans(),
    owner=OWNERS,
    names=st.sets(st.sampled_from(["one", "two"])),
    ready=st.booleans(),
    covered=st.booleans(),
    leading=st.sampled_from([LEADS, GONE, None]),
)  # fmt: skip
def test_every_case_has_words_and_a_verdict(
    subject: Subject, shard: str | None, drain: bool, owner: Owner, names: set[str], ready: bool, covered: bool,
    leading: Leading | None,
) -> None:  # fmt: skip
    leases = [lease(name) for name in names] + [lease("twice"), lease("twice", namespace="other")]
    membership = build(leases, names if ready else ())
    shard_statuses = tuple(read_shard_status(each, NOW) for each in leases)
    explanation = explain(
        known(
            subject, shard, drain=drain, membership=membership, shard_statuses=shard_statuses, covered=covered,
            leading=leading,
            owner=owner if subject is CONFIGMAP else None,
        )
    )  # fmt: skip
    assert explanation.outcome is not None
    assert explanation.in_place == (explanation.outcome.decision in (Decision.KEEP, Decision.IGNORE))
    assert explanation.then
    assert explanation.because or explanation.outcome.decision in (Decision.KEEP, Decision.DEFER)
    assert not (explanation.in_place and explanation.missing)
    assert all(line.strip() for line in render_explanation(explanation, Painter(True)))


def test_labels_of_rings_that_are_not_there_are_named() -> None:
    labels = {LABELS.shard: "one", f"{SHARD_LABEL_PREFIX}clusterring-12345678-gone": "x", "team": "a"}
    long = f"{SHARD_LABEL_PREFIX}clusterring-12345678-{'x' * 42}"
    meta = ObjectMeta(name="a", labels=labels | {long: "y"})
    assert list(stray_labels(meta, [read_ring(raw_ring())])) == [
        (f"{SHARD_LABEL_PREFIX}clusterring-12345678-gone", "gone"),
        (long, "x" * 42 + "…"),
    ]

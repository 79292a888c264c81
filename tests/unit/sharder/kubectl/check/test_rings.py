"""What `check` says of rings, shards and objects, and what it proposes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sharder.core.membership import Membership
from sharder.core.ringspec import Role, parse_ring, resolve, unsuited
from sharder.core.selectors import LabelSelector
from sharder.core.status import Health, conditions_of
from sharder.kubectl.check.cluster import check_sharder, check_strangers
from sharder.kubectl.check.findings import Finding, Level
from sharder.kubectl.check.rings import RingEvidence, check_fit, check_ring
from sharder.kubectl.cluster import Ring, read_ring
from sharder.kubectl.counting import Trouble
from sharder.kubectl.leader import Leading, Sharder, read_leading
from sharder.kubectl.outcomes import Unread
from sharder.kubectl.shards import read_membership, read_shard_status
from sharder.kubectl.status.overview import Condition, Overview, ResourceCount
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.objects import GroupResource
from tests.unit.sharder.kubectl.rings import NOW, SPEC, lease, raw_ring, resolved_ring

ACCOUNT = ("sharding-system", "sharder")
SHARDER = Sharder(ACCOUNT, ACCOUNT)
LEADS = Leading(True, "sharder-1 leads, renewed 1s ago")
GONE = Leading(False, "nobody holds the lease sharding-system/sharder")
SECRETS = GroupResource("", "secrets")
CONFIGMAPS = GroupResource("", "configmaps")


def counted(**changes: Any) -> ResourceCount:
    count = ResourceCount(SECRETS, Role.MAIN, False, {"one": 3}, {}, 0, 0, 0, 0, 0, {})
    return replace(count, **changes)


def overview(*leases: Lease, **changes: Any) -> Overview:
    shard_statuses = tuple(read_shard_status(each, NOW) for each in leases or (lease("one"),))
    made = Overview(
        name="checksum",
        read=True,
        conditions=(Condition("Ready", True, "ReconciliationSucceeded", "the ring is in use"),),
        up_to_date=True,
        problems=(),
        scope="",
        shard_statuses=shard_statuses,
        membership=read_membership(leases or (lease("one"),), shard_statuses),
        resources=(counted(),),
        unread=(),
    )
    return replace(made, **changes)


def evidence(**changes: Any) -> RingEvidence:
    facts: dict[str, Any] = {
        "ring": read_ring(raw_ring()),
        "overview": overview(),
        "resolved": resolved_ring(),
        "missing": (),
        "namespaces": ["default"],
        "permissions": {},
        "leading": LEADS,
        "account": ACCOUNT,
    }
    return RingEvidence(**facts | changes)


def amiss(**changes: Any) -> list[Finding]:
    return [each for each in check_ring(evidence(**changes)) if each.level is not Level.OK]


def only(findings: list[Finding]) -> Finding:
    [finding] = findings
    return finding


def test_nothing_is_amiss_with_a_ring_in_order() -> None:
    assert amiss() == []


def test_a_spec_that_cannot_be_used_is_all_that_is_said() -> None:
    ring = read_ring(raw_ring(spec={"resources": [{"resource": "Secrets"}]}))
    finding = only(amiss(ring=ring, resolved=None))
    assert (finding.topic, finding.level) == ("spec", Level.PROBLEM)
    assert finding.remedy.startswith("use its lower-case plural")


def test_a_resource_that_is_not_served_names_both_remedies() -> None:
    finding = only(amiss(missing=(GroupResource("x", "ys"),)))
    assert finding.message == "the API server does not serve ys.x, or not for list, watch and patch"
    assert finding.remedy.startswith("install their CustomResourceDefinitions")


def test_a_ring_that_no_sharder_has_seen() -> None:
    assert only(amiss(ring=Ring("checksum", {}, spec=read_ring(raw_ring()).spec))).message.startswith("no sharder has")
    assert only(amiss(ring=read_ring(raw_ring(observedGeneration=0)))).message.startswith("no sharder has seen the pr")


def test_a_selector_that_selects_nothing() -> None:
    finding = only(amiss(namespaces=[]))
    assert (finding.topic, finding.level) == ("namespaces", Level.PROBLEM)
    assert "correct spec.namespaceSelector" in finding.remedy
    assert only(amiss(namespaces=None)).level is Level.SKIPPED


def test_labels_are_no_remedy_where_the_ring_goes_by_names() -> None:
    by_name = {**SPEC, "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "a"}}}
    finding = only(amiss(namespaces=[], resolved=resolved_ring(by_name)))
    assert finding.remedy == "make a namespace that it names, or correct spec.namespaceSelector"


# -- permissions --------------------------------------------------------------


def denied(*verbs: str) -> dict[tuple[str, GroupResource], bool]:
    return {(verb, CONFIGMAPS): False for verb in verbs}


def granted(status: bool | None) -> Overview:
    return overview(conditions=(Condition("PermissionsGranted", status, "x", "the sharder may not patch pods; do"),))


def test_missing_permissions_come_with_the_command_that_grants_them() -> None:
    finding = only(amiss(permissions=denied("watch", "patch")))
    assert finding.message == "sharding-system/sharder may not watch configmaps, patch configmaps"
    assert finding.remedy == "kubectl sharding rbac checksum | kubectl apply -f -"
    assert finding.level is Level.PROBLEM


def test_the_command_grants_them_to_the_account_that_was_asked_about() -> None:
    other = {"account": ("shards", "their-sharder"), "permissions": denied("patch")}
    command = "kubectl sharding rbac checksum --service-account shards/their-sharder"
    assert only(amiss(**other)).remedy == f"{command} | kubectl apply -f -"
    roles = {("escalate", GroupResource("rbac.authorization.k8s.io", "roles")): False}
    assert f"`{command}` prints as a comment" in only(amiss(**other | {"permissions": roles})).remedy


def test_what_no_manifest_grants_is_not_said_to_come_by_applying_one() -> None:
    finding = only(amiss(permissions={("escalate", GroupResource("rbac.authorization.k8s.io", "roles")): False}))
    assert finding.message == "sharding-system/sharder may not escalate roles.rbac.authorization.k8s.io"
    assert "`kubectl sharding rbac checksum` prints as a comment" in finding.remedy
    assert "apply" not in finding.remedy


def test_the_running_sharders_own_word_makes_it_a_warning() -> None:
    finding = only(amiss(permissions=denied("patch"), overview=granted(True)))
    assert finding.level is Level.WARNING
    assert "taken away within the last minute, or it has another identity" in finding.message
    assert finding.remedy.startswith("kubectl sharding rbac checksum | kubectl apply -f -; or ")
    assert "--service-account" in finding.remedy


def test_rights_on_what_was_taken_off_the_ring_are_asked_for_as_well() -> None:
    finding = only(amiss(permissions={("patch", GroupResource("apps", "deployments")): False}))
    assert finding.message == "sharding-system/sharder may not patch deployments.apps"


@pytest.mark.parametrize(
    ("status", "level", "message"),
    [
        (True, None, ""),
        (False, Level.PROBLEM, "the sharder may not patch pods"),
        (None, Level.UNKNOWN, "you may not ask what the sharder may, and it has not said so itself"),
    ],
)
def test_who_may_not_ask_believes_the_sharder(status: bool | None, level: Level | None, message: str) -> None:
    found = amiss(permissions=None, overview=granted(status))
    assert [(each.level, each.message) for each in found] == ([(level, message)] if level else [])


# -- shards -------------------------------------------------------------------


def test_a_name_held_twice_is_a_problem() -> None:
    finding = only(amiss(overview=overview(lease("one"), lease("two"), lease("two", namespace="other"))))
    assert "the name two is held in several namespaces (default, other)" in finding.message


def test_a_name_that_no_label_can_have_is_a_problem() -> None:
    finding = only(amiss(overview=overview(lease("one"), lease("x" * 64))))
    assert "cannot be a label value" in finding.message


def test_no_shard_is_a_problem_and_objects_are_not_complained_about_as_well() -> None:
    finding = only(amiss(overview=overview(lease("one", holder=""), resources=(counted(unassigned=3),))))
    assert (finding.topic, finding.level) == ("shards", Level.PROBLEM)


@pytest.mark.parametrize("late", [lease("two", state="expired", renewed=20), lease("two", renewed=60)])
def test_a_late_shard_is_a_warning(late: Lease) -> None:
    finding = only(amiss(overview=overview(lease("one"), late)))
    assert (finding.topic, finding.level) == ("shards", Level.WARNING)


def test_leases_that_cannot_be_read_leave_it_open() -> None:
    found = amiss(overview=overview(shard_statuses=None, membership=None))
    assert {(each.topic, each.level) for each in found} == {("shards", Level.UNKNOWN), ("objects", Level.UNKNOWN)}


# -- objects ------------------------------------------------------------------


def unsettled(seconds: float | None, **changes: Any) -> Overview:
    stranded = counted(by_shard={"ghost": 2}, stranded=2, examples={Trouble.STRANDED: ("default/a;reboot",)})
    conditions = () if seconds is None else (Condition("Settled", False, "Moving", "2 stranded", seconds),)
    return overview(resources=(stranded,), conditions=conditions, **changes)


def test_objects_in_motion_are_a_warning_until_that_lasts() -> None:
    assert only(amiss(overview=unsettled(None))).level is Level.WARNING
    assert only(amiss(overview=unsettled(59))).level is Level.WARNING
    finding = only(amiss(overview=unsettled(61)))
    assert finding.level is Level.PROBLEM
    assert finding.message == "2 stranded; on shards without lease: ghost, for 61s"
    assert finding.remedy == "kubectl sharding explain secrets 'a;reboot' -n default"


def test_while_not_all_leases_were_read_nothing_is_said_of_shards_without_one() -> None:
    found = amiss(overview=unsettled(61, membership=None))
    assert [each.message for each in found if each.topic == "objects"] == ["2 stranded, for 61s"]


def test_what_is_amiss_says_nothing_of_what_could_not_be_counted() -> None:
    found = amiss(overview=unsettled(None, unread=(Unread("configmaps", "list configmaps: 503"),)))
    assert [(each.level, each.message.split(";")[0]) for each in found] == [
        (Level.UNKNOWN, "configmaps: list configmaps: 503"),
        (Level.WARNING, "2 stranded"),
    ]


def test_objects_in_motion_without_a_sharder_are_a_problem() -> None:
    finding = only(amiss(overview=unsettled(None), leading=GONE))
    assert finding.level is Level.PROBLEM
    assert finding.message.endswith("and no sharder leads")


def test_shards_that_know_labels_alone_in_a_ring_by_ranges_are_told_with_the_sharders_remedy() -> None:
    said = Condition("ShardsFit", False, "LabelsOnly", "the Lease of a does not say; stop it")
    [finding] = check_fit(overview(conditions=(said,)))
    assert (finding.level, finding.message, finding.remedy) == (
        Level.PROBLEM, "the Lease of a does not say", "stop it",
    )  # fmt: skip
    assert not [*check_fit(overview(conditions=(replace(said, status=True),)))]
    assert not [*check_fit(overview(conditions=(said,), up_to_date=False))]


def test_an_unfit_shard_of_any_ring_and_a_name_that_is_anothers_by_now_are_told_with_the_sharders_remedy() -> None:
    unfit = Condition("ShardsFit", False, "LibrariesMixed", "the Lease of a has both; delete one")
    taken = Condition("ShardNamesUnique", False, "TakenElsewhere", "the Lease of b is another's; rename it")
    found = [each for each in amiss(overview=overview(conditions=(unfit, taken))) if each.topic == "shards"]
    assert [(each.message, each.remedy) for each in found] == [
        ("the Lease of a has both", "delete one"), ("the Lease of b is another's", "rename it"),
    ]  # fmt: skip
    seen_in_leases = replace(taken, reason="Ambiguous")
    assert not [*check_fit(overview(conditions=(seen_in_leases,)))]


def test_what_is_reconciled_as_main_is_told_whole_however_many_resources_that_are() -> None:
    """The sharder's own words are cut, before the remedy and nowhere else."""
    as_main = ((GroupResource("", "configmaps"), ("a", "b")), (SECRETS, ("c",)))
    [said] = [each for each in conditions_of(Health(1, as_main=as_main)) if each.type == "ShardsFit"]
    [finding] = check_fit(overview(conditions=(Condition("ShardsFit", False, said.reason, said.message),)))
    assert "configmaps on a, b and secrets on c, so that two may" in finding.message
    assert finding.remedy == "roll out the program that has it as a child, or list it as a main resource"


def test_overdue_drains_are_told_with_the_sharders_remedy() -> None:
    said = Condition("DrainsAcknowledged", False, "Overdue", "drains wait for their shard, the longest: a; stop it")
    finding = only(amiss(overview=overview(conditions=(said,))))
    assert (finding.message, finding.remedy) == ("drains wait for their shard, the longest: a", "stop it")


UNREADY = Condition("Ready", False, "ReconciliationFailed", "cannot write the webhook configuration")
SERVED = Condition("ResourcesServed", False, "NotServed", "the API server does not serve ys.x; install it")
FORBIDDEN = Condition("PermissionsGranted", False, "Forbidden", "the sharder may not patch secrets; grant it")


def unready(message: str, *conditions: Condition) -> Overview:
    return overview(conditions=(replace(UNREADY, message=message), *conditions))


def test_whatever_else_keeps_the_ring_from_being_ready_is_told() -> None:
    finding = only(amiss(overview=overview(conditions=(UNREADY,))))
    assert (finding.topic, finding.message) == ("ready", UNREADY.message)
    both = f"{UNREADY.message} | {SERVED.message}"
    missing = (GroupResource("x", "ys"),)
    found = amiss(overview=unready(both, SERVED), missing=missing)
    assert [(each.topic, each.level) for each in found] == [("spec", Level.PROBLEM), ("ready", Level.PROBLEM)]


def test_what_keeps_the_ring_from_being_ready_is_told_once() -> None:
    missing, may_not = (GroupResource("x", "ys"),), {("patch", SECRETS): False}
    assert only(amiss(overview=unready(SERVED.message, SERVED), missing=missing)).topic == "spec"
    assert only(amiss(overview=unready(FORBIDDEN.message, FORBIDDEN), permissions=may_not)).topic == "permissions"
    both = unready(f"{SERVED.message} | {FORBIDDEN.message}", SERVED, FORBIDDEN)
    found = amiss(overview=both, missing=missing, permissions=may_not)
    assert [each.topic for each in found] == ["spec", "permissions"]


@pytest.mark.parametrize("said", [(), (SERVED,), (FORBIDDEN,), (SERVED, FORBIDDEN)])
@pytest.mark.parametrize("undiscovered", [(), (Unread("ys.x", "discovery: 503"),)])
@pytest.mark.parametrize("failure", ["", UNREADY.message])
def test_a_ring_that_is_not_ready_has_a_problem_whatever_can_be_seen_from_here(
    said: tuple[Condition, ...], undiscovered: tuple[Unread, ...], failure: str
) -> None:
    """Also when the sharder asks about more than the ring lists by now, or when what it says is just out of date."""
    message = " | ".join(filter(None, [failure, *(each.message for each in said)]))
    found = amiss(overview=unready(message, *said), undiscovered=undiscovered)
    told = [each for each in found if each.level is Level.PROBLEM]
    assert [each.topic for each in told] == ["ready"]
    assert all(each.remedy for each in told)


def test_the_sharders_own_remedy_is_told_with_what_it_complains_about() -> None:
    finding = only(amiss(overview=unready(FORBIDDEN.message, FORBIDDEN)))
    assert (finding.message, finding.remedy) == ("the sharder may not patch secrets", "grant it")


def test_what_only_the_sharder_can_know_is_told_with_its_remedy() -> None:
    by_team = LabelSelector(match_labels=(("team", "a"),))
    raw = raw_ring(spec={**SPEC, "assignment": "Ranges", "hashBy": "Namespace"})
    told = unsuited(resolve(parse_ring(raw), {}, by_team)[0])
    finding = only(amiss(overview=unready(str(told))))
    assert (finding.topic, finding.remedy.partition(",")[0]) == (
        "ready",
        "use kubernetes.io/metadata.name with In or NotIn in spec.namespaceSelector",
    )


# -- what rings share -----------------------------------------------------------


def levels(*findings: Finding) -> list[Level]:
    return [each.level for each in findings]


def test_a_sharder_that_leads_with_its_rights_is_good() -> None:
    assert levels(*check_sharder(LEADS, [], SHARDER)) == [Level.OK, Level.OK]


@pytest.mark.parametrize(("seconds", "level"), [(15, Level.OK), (21, Level.WARNING), (31, Level.PROBLEM)])
def test_a_leader_that_is_late_is_a_warning_until_it_is_gone(seconds: float, level: Level) -> None:
    [found] = list(check_sharder(read_leading(lease("sharder", renewed=seconds), "a/sharder", NOW), [], SHARDER))[:1]
    assert (found.level, f"{seconds}s ago" in found.message) == (level, True)


def test_no_leader_is_a_problem() -> None:
    assert levels(*check_sharder(GONE, [], SHARDER)) == [Level.PROBLEM, Level.OK]
    assert levels(*check_sharder(None, None, SHARDER)) == [Level.UNKNOWN, Level.SKIPPED]


def test_rights_that_a_leading_sharder_seems_to_lack_are_a_warning() -> None:
    assert levels(*check_sharder(LEADS, ["patch leases"], SHARDER)) == [Level.OK, Level.WARNING]
    assert levels(*check_sharder(GONE, ["patch leases"], SHARDER)) == [Level.PROBLEM, Level.PROBLEM]


def test_a_leader_that_may_not_write_statuses_is_a_problem_where_a_ring_shows_it() -> None:
    lacks = ["patch clusterrings/status.sharding.timebertt.dev"]
    elsewhere = list(check_sharder(LEADS, lacks, SHARDER))[1]
    assert elsewhere.level is Level.WARNING
    assert "a ring that is new gets neither labels nor a webhook" in elsewhere.message
    shown = list(check_sharder(LEADS, lacks, SHARDER, unseen=["checksum"]))[1]
    assert (shown.level, shown.message.rpartition("; ")[2]) == (
        Level.PROBLEM,
        "no status speaks of the present spec of checksum",
    )
    assert shown.remedy.startswith("apply rbac/sharder.yaml; if another one leads, name its ServiceAccount")
    assert levels(*check_sharder(LEADS, ["patch leases"], SHARDER, unseen=["checksum"]))[1] is Level.WARNING


def test_roles_of_the_sharder_are_to_name_the_account_that_was_asked_about() -> None:
    other = Sharder(("shards", "their-sharder"), ("shards", "sharder"))
    remedy = list(check_sharder(GONE, ["patch leases"], other))[1].remedy
    assert remedy == "apply rbac/sharder.yaml, with shards/their-sharder as the subject of its bindings"


def test_leases_and_webhooks_of_rings_that_are_not_there_are_found() -> None:
    leases = {
        "here": {"default/a": True},
        "gone": {"default/b": True, "default/c": False},
        "past": {"default/d": False},
    }
    found = list(check_strangers({"here"}, leases, {"here", "lost"}))
    assert levels(*found) == [Level.PROBLEM, Level.SKIPPED, Level.PROBLEM]
    assert [each.message for each in found] == [
        "default/b belong to ring gone, which is not there",
        "1 lease of ring past, which is not there, and no shard holds them:"
        " `kubectl delete leases -A -l alpha.sharding.timebertt.dev/clusterring=past`",
        "the configuration clusterring-lost is of a ring that is not there",
    ]
    assert list(check_strangers({"here"}, None, None)) == []


def test_membership_of_nobody_is_known_and_empty() -> None:
    assert overview(membership=Membership()).settled

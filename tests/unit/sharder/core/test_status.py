"""Conditions say what is wrong and what to do, and change only when something changed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sharder.core.conditions import ConditionType, changed_conditions
from sharder.core.problems import Problem
from sharder.core.rights import MissingRule, rights_to_grant
from sharder.core.status import Health, NotInForce, Unsettled, render_status
from shardsdk.protocol.objects import LEASES, NAMESPACES, GroupResource

NOW = datetime(2026, 11, 21, 15, 0, 0, 250_000, tzinfo=UTC)
LATER = NOW + timedelta(minutes=5)
GOOD = Health(generation=2, shards=3, available=3, unsettled=Unsettled())
DEPLOYMENTS = GroupResource("apps", "deployments")
SECRETS = GroupResource("", "secrets")
WORSE = ("Worse", "it was worse")
AWAY = replace(GOOD, unanswered=((DEPLOYMENTS, "503"),), unsettled=None)


def conditions(health: Health) -> dict[str, dict[str, Any]]:
    return {each["type"]: each for each in render_status(health, None, NOW)["conditions"]}


def statuses(health: Health) -> dict[str, str]:
    return {name: each["status"] for name, each in conditions(health).items() if each["status"] != "True"}


def test_a_ring_that_works_has_every_condition_true() -> None:
    found = conditions(GOOD)
    assert list(found) == [each.value for each in ConditionType]
    assert statuses(GOOD) == {}
    assert found["Ready"]["reason"] == "ReconciliationSucceeded"
    assert {each["observedGeneration"] for each in found.values()} == {2}
    assert found["ShardsAvailable"]["message"] == "3 of 3 shards are available"


@pytest.mark.parametrize("counts", [None, Unsettled()])
def test_while_a_resource_joins_the_ring_is_not_settled_whatever_else_is_known(counts: Unsettled | None) -> None:
    found = conditions(replace(GOOD, unsettled=counts, joining=((DEPLOYMENTS, 0),)))["Settled"]
    assert (found["status"], found["reason"]) == ("False", "Joining")
    assert found["message"].endswith("where their owners are not: 0 deployments.apps")
    away = conditions(replace(AWAY, joining=((DEPLOYMENTS, 0),), not_in_force=NotInForce(NOW, 1)))["Settled"]
    assert away["status"] == "Unknown"


def test_the_counts_that_columns_and_go_clients_read() -> None:
    status = render_status(replace(GOOD, available=2), None, NOW)
    assert (status["observedGeneration"], status["shards"], status["availableShards"]) == (2, 3, 2)


@pytest.mark.parametrize(
    ("change", "wrong", "words"),
    [
        ({"failure": "cannot write"}, {"Ready": "False"}, ("Ready", "cannot write")),
        (
            {"unread": ((DEPLOYMENTS, "500"),)},
            {"Ready": "False", "Settled": "Unknown"},
            ("Ready", "deployments.apps cannot be read: 500; what is new"),
        ),
        (
            {"unread": ((DEPLOYMENTS, "500"),), "unsettled": Unsettled(draining=1)},
            {"Ready": "False", "Settled": "False"},
            ("Settled", "1 draining"),
        ),
        (
            {"missing": (DEPLOYMENTS,)},
            {"Ready": "False", "ResourcesServed": "False"},
            ("ResourcesServed", "deployments.apps, or not for list, watch and patch; install"),
        ),
        (
            {"denied": (MissingRule("patch", DEPLOYMENTS),)},
            {"Ready": "False", "PermissionsGranted": "False"},
            ("PermissionsGranted", "may not patch deployments.apps; `sharder rbac RING`"),
        ),
        (
            {"denied": (MissingRule("patch", DEPLOYMENTS),)},
            {"Ready": "False", "PermissionsGranted": "False"},
            ("Ready", "may not patch deployments.apps; `sharder rbac RING`"),
        ),
        (
            {"denied": (MissingRule("watch", DEPLOYMENTS),)},
            {"PermissionsGranted": "False"},
            ("PermissionsGranted", "watch deployments.apps"),
        ),
        (
            {"denied": rights_to_grant([GroupResource("rbac.authorization.k8s.io", "roles")])},
            {"PermissionsGranted": "False"},
            ("PermissionsGranted", "may not escalate roles.rbac.authorization.k8s.io; what grants rights that the"),
        ),
        (
            {"denied": (MissingRule("watch", NAMESPACES.group_resource),)},
            {"Ready": "False", "PermissionsGranted": "False", "Settled": "Unknown"},
            ("PermissionsGranted", "may not watch namespaces; its own ClusterRole lacks that: apply rbac/sharder.yaml"),
        ),
        (
            {"denied": (MissingRule("list", NAMESPACES.group_resource), MissingRule("patch", DEPLOYMENTS))},
            {"Ready": "False", "PermissionsGranted": "False", "Settled": "Unknown"},
            ("PermissionsGranted", "upgrade the Helm chart; `sharder rbac RING` prints"),
        ),
        (
            {"denied": (MissingRule("patch", LEASES.group_resource),)},
            {"Ready": "False", "PermissionsGranted": "False"},
            ("PermissionsGranted", "may not patch leases.coordination.k8s.io; its own ClusterRole"),
        ),
        (
            {"available": 2, "not_acquired": ("the Lease a/x: no",)},
            {"ShardsAvailable": "False", "Settled": "False"},
            ("ShardsAvailable", "2 of 3 shards are available; the Lease a/x: no; let the sharder"),
        ),
        (
            {"available": 0, "abandoned": ("the Lease a/x",)},
            {"ShardsAvailable": "False", "Settled": "False"},
            ("ShardsAvailable", "0 of 3 shards are available; the Lease a/x ran out, and no other shard is ready"),
        ),
        (
            {"shards_before": ("NobodyReady", "gone")},
            {"ShardsAvailable": "False", "Settled": "False"},
            ("ShardsAvailable", "gone"),
        ),
        (
            {"available": 2, "unread": ((LEASES.group_resource, "429"),), "abandoned": ("the Lease a/x",)},
            {"Ready": "False", "ShardsAvailable": "Unknown", "Settled": "Unknown"},
            ("ShardsAvailable", "2 of 3 shards were available when the sharder could follow Leases last; see Ready"),
        ),
        (
            {"denied": (MissingRule("watch", LEASES.group_resource),)},
            {"Ready": "False", "PermissionsGranted": "False", "ShardsAvailable": "Unknown", "Settled": "Unknown"},
            ("ShardsAvailable", "3 of 3 shards were available when the sharder could follow Leases last; see Ready"),
        ),
        (
            {"unanswered": ((DEPLOYMENTS, "503"),)},
            {"Ready": "False", "ResourcesServed": "False"},
            ("ResourcesServed", "is not known: 503; they wait, and so do the owners of those"),
        ),
        (
            {"unanswered": ((GroupResource("", "pods"), "503"),)},
            {"Ready": "False", "ResourcesServed": "False"},
            ("ResourcesServed", "kubectl get apiservices` for group core"),
        ),
        ({"available": 0}, {"ShardsAvailable": "False"}, ("ShardsAvailable", "start a shard")),
        ({"unsteady": frozenset("fedcba")}, {}, ("ShardsAvailable", "a, b, c, d, e, f crashed lately")),
        ({"unrenewed": frozenset("ba")}, {}, ("ShardsAvailable", "Lease of a, b was out of date when")),
        (
            {"available": 4, "shards_leaving": frozenset("zyx")},
            {},
            ("ShardsAvailable", "x, y, z will leave soon: nothing new goes"),
        ),
        (
            {"available": 3, "shards_leaving": frozenset("zyx")},
            {},
            ("ShardsAvailable", "x, y, z will leave soon: there is no other, so what is new goes there"),
        ),
        ({"shards_left": frozenset("ab")}, {}, ("ShardsAvailable", "a, b ended with a restart grace: what is there")),
        ({"ambiguous": ("a/x", "b/x")}, {"ShardNamesUnique": "False"}, ("ShardNamesUnique", "Leases a/x, b/x")),
        ({"unusable": frozenset("ZYXWV")}, {"ShardNamesUnique": "False"}, ("ShardNamesUnique", "V, W, X, Y, Z cannot")),
        ({"unfit": ("LabelsOnly", "stop x")}, {"ShardsFit": "False"}, ("ShardsFit", "stop x")),
        ({"overlapping": ("RangesOverlap", "stop y")}, {"ShardsFit": "False"}, ("ShardsFit", "stop y")),
        (
            {"unfit": ("LabelsOnly", "stop x"), "mixed": frozenset("y"), "overlong": frozenset("z")},
            {"ShardsFit": "False"},
            ("ShardsFit", "; once that is mended, 2 more to mend: LeaseTooLong, LabelsOnly"),
        ),
        ({"remarks": ("x is renewed by y",)}, {}, ("ShardsAvailable", "3 of 3 shards are available; x is renewed by")),
        (
            {"available": 0, "remarks": ("x is renewed by y",)},
            {"ShardsAvailable": "False"},
            ("ShardsAvailable", "start a shard of this ring; x is renewed by y"),
        ),
        ({"mixed": frozenset("zyxwv")}, {"ShardsFit": "False"}, ("ShardsFit", "Lease of v, w, x, y, z has the labels")),
        (
            {"overlong": frozenset("zyxwv")},
            {"ShardsFit": "False"},
            ("ShardsFit", "of v, w, x, y, z is held for more than"),
        ),
        (
            {"as_main": ((DEPLOYMENTS, ("x", "y")),)},
            {"ShardsFit": "False"},
            ("ShardsFit", "deployments.apps on x, y, so that two may reconcile one"),
        ),
        (
            {"not_reconciled": ((DEPLOYMENTS, ("x", "y")), (SECRETS, ("z",)))},
            {"ShardsFit": "False"},
            ("ShardsFit", "as main: deployments.apps on x, y and secrets on z, so that nobody works on the objects"),
        ),
        ({"taken": ("x is taken",)}, {"ShardNamesUnique": "False"}, ("ShardNamesUnique", "x is taken")),
        ({"stuck_drains": ("n/a",)}, {"DrainsAcknowledged": "False"}, ("DrainsAcknowledged", "n/a")),
        ({"unsettled": None}, {"Settled": "Unknown"}, ("Settled", "no resync")),
        (
            {"unsettled": None, "resynced": True, "waiting": (DEPLOYMENTS,)},
            {"Settled": "Unknown"},
            ("Settled", "nothing of deployments.apps gets a shard before rights are granted; see PermissionsGranted"),
        ),
        ({"unsettled": Unsettled(draining=4)}, {"Settled": "False"}, ("Settled", "4 draining")),
    ],
)
def test_each_trouble_shows_where_it_belongs_with_its_remedy(
    change: dict[str, Any], wrong: dict[str, str], words: tuple[str, str]
) -> None:
    health = replace(GOOD, **change)
    assert statuses(health) == wrong
    assert words[1] in conditions(health)[words[0]]["message"]


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [
        ({"missing": (DEPLOYMENTS,), "unanswered": ((SECRETS, "503"),)}, "ResourcesServed", ("False", "NotServed")),
        (
            {"denied": (MissingRule("patch", DEPLOYMENTS),), "not_in_force": NotInForce(NOW)},
            "PermissionsGranted",
            ("False", "Forbidden"),
        ),
        ({"abandoned": ("a/x",)}, "ShardsAvailable", ("False", "NobodyReady")),
        ({"not_acquired": ("a/x",), "abandoned": ("a/x",)}, "ShardsAvailable", ("False", "NotTakenOver")),
        ({"not_acquired": ("a/x",), "shards_before": WORSE}, "ShardsAvailable", ("False", "NotTakenOver")),
        ({"shards_before": WORSE}, "ShardsAvailable", ("False", "Worse")),
        ({"abandoned": ("a/x",)}, "Settled", ("False", "NobodyReady")),
        ({"not_acquired": ("a/x",), "unsettled": None}, "Settled", ("False", "NotTakenOver")),
        ({"not_acquired": ("a/x",), "unsettled": Unsettled(unassigned=1)}, "Settled", ("False", "Moving")),
        ({"shards_before": WORSE}, "Settled", ("False", "Worse")),
        ({"shards_before": WORSE, "available": 0}, "Settled", ("False", "Worse")),
        ({"shards_before": WORSE, "available": 0}, "ShardsAvailable", ("False", "NoShard")),
        ({"stuck_drains": ("n/a",)}, "DrainsAcknowledged", ("False", "Overdue")),
        ({"stuck_drains": ("n/a",), "overdue_before": WORSE}, "DrainsAcknowledged", ("False", "Overdue")),
        ({"stuck_drains": ("n/a",), "stuck_unlisted": True}, "DrainsAcknowledged", ("False", "NobodyWatches")),
        ({"overdue_before": WORSE}, "DrainsAcknowledged", ("False", "Worse")),
        (
            {"as_main": ((SECRETS, ("x",)),), "not_reconciled": ((DEPLOYMENTS, ("x",)),)},
            "ShardsFit",
            ("False", "ControlledAsMain"),
        ),
        ({"moving": "2 of 8 ranges"}, "Settled", ("False", "Moving")),
        ({"leaving": ((DEPLOYMENTS, 1),)}, "Settled", ("False", "Leaving")),
        ({"joining": ((DEPLOYMENTS, 1),)}, "Settled", ("False", "Joining")),
        ({"leaving": ((DEPLOYMENTS, 1),), "joining": ((SECRETS, 1),)}, "Settled", ("False", "Leaving")),
        ({"unsettled": Unsettled(stranded=1), "refused": True}, "Settled", ("False", "Refused")),
    ],
)
def test_what_is_worst_gives_the_reason(change: dict[str, Any], kind: str, said: tuple[str, str]) -> None:
    found = conditions(replace(GOOD, **change))[kind]
    assert (found["status"], found["reason"]) == said


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"unsettled": Unsettled(1, 2, 3)}, "1 unassigned, 2 stranded, 3 draining"),
        (
            {"unsettled": Unsettled(misplaced=True)},
            "0 unassigned, 0 stranded, 0 draining; the last resync has found objects that are not where they should be",
        ),
        (
            {"unsettled": Unsettled(1, 2, 3), "leaving": ((DEPLOYMENTS, 4),)},
            "1 unassigned, 2 stranded, 3 draining; the ring lists no longer, and has labels on: 4 deployments.apps",
        ),
        (
            {"unsettled": Unsettled(1, 2, 3), "refused": True},
            "1 unassigned, 2 stranded, 3 draining; the API server refuses to change some of them: the Event"
            " PlacementRefused has one, and its answer",
        ),
        ({"moving": "2 of 8 ranges"}, "2 of 8 ranges"),
        ({"unsettled": None}, "no resync has ended yet"),
        (
            {"unsettled": None, "resynced": True},
            "no resync has ended since shards came or went, or objects moved; that takes some seconds",
        ),
        ({"unsettled": None, "not_in_force": NotInForce(NOW)}, "the ring's spec is not in use; see Ready"),
    ],
)
def test_settled_says_what_is_left(change: dict[str, Any], message: str) -> None:
    assert conditions(replace(GOOD, **change))["Settled"]["message"] == message


def test_a_ring_that_cannot_be_used_says_why_and_knows_nothing_else() -> None:
    health = replace(GOOD, problems=(Problem("spec.resources[0]", "is wrong", "mend it"),))
    found = conditions(health)
    assert found["Ready"]["reason"] == "ReconciliationFailed"
    assert found["Ready"]["message"] == "spec.resources[0]: is wrong; mend it"
    assert {each["status"] for name, each in found.items() if name != "Ready"} == {"Unknown"}


@pytest.mark.parametrize(
    ("in_use", "words"),
    [(None, "nothing of the ring is placed"), (1, "the ring is used as it was before it was edited (generation 1)")],
)
def test_a_spec_that_cannot_be_looked_up_is_not_in_force_and_says_since_when(in_use: int | None, words: str) -> None:
    health = replace(AWAY, not_in_force=NotInForce(NOW, in_use))
    unknown = {"PermissionsGranted": "Unknown", "Settled": "Unknown"}
    assert statuses(health) == {"Ready": "False", "ResourcesServed": "False"} | unknown
    found = conditions(health)
    assert (found["Ready"]["reason"], found["ResourcesServed"]["reason"]) == ("ReconciliationFailed", "NotAnswered")
    for kind in ("Ready", "ResourcesServed"):
        said = found[kind]["message"]
        assert "deployments.apps is not known: 503" in said
        assert words in said
        assert "again since 2026-11-21T15:00:00Z; look at `kubectl get apiservices` for group apps" in said


def test_a_status_that_has_not_changed_is_equal_to_the_one_before() -> None:
    first = render_status(GOOD, None, NOW)
    assert render_status(GOOD, first, LATER) == first


def test_the_transition_time_moves_with_the_status_alone() -> None:
    first = render_status(replace(GOOD, unsettled=Unsettled(draining=4)), None, NOW)
    fewer = render_status(replace(GOOD, unsettled=Unsettled(draining=3)), first, LATER)
    none = render_status(GOOD, fewer, LATER)
    times = [status["conditions"][-1]["lastTransitionTime"] for status in (first, fewer, none)]
    assert times == ["2026-11-21T15:00:00Z", "2026-11-21T15:00:00Z", "2026-11-21T15:05:00Z"]


def test_conditions_of_others_stay() -> None:
    other = {"type": "Theirs", "status": "True"}
    status = render_status(GOOD, {"conditions": [other]}, NOW)
    assert status["conditions"][-1] == other
    assert len(status["conditions"]) == len(ConditionType) + 1


@pytest.mark.parametrize("previous", [None, {}, {"conditions": None}, {"conditions": ["x", {}]}, {"shards": "x"}])
def test_whatever_was_written_before_a_status_is_rendered(previous: Any) -> None:
    assert render_status(GOOD, previous, NOW)["shards"] == 3


def test_changes_worth_an_event_are_those_of_status_or_reason() -> None:
    first = render_status(GOOD, None, NOW)
    denied = render_status(replace(GOOD, denied=(MissingRule("patch", DEPLOYMENTS),)), first, NOW)
    assert {each["type"] for each in changed_conditions(first, denied)} == {"Ready", "PermissionsGranted"}
    assert changed_conditions(denied, denied) == ()
    assert {each["type"] for each in changed_conditions(denied, first)} == {"Ready", "PermissionsGranted"}


def test_messages_are_bounded() -> None:
    health = replace(GOOD, stuck_drains=tuple(f"namespace/object-{index}" for index in range(10_000)))
    message = conditions(health)["DrainsAcknowledged"]["message"]
    assert "and 9990 more" in message
    assert len(conditions(replace(GOOD, failure="x" * 5000))["Ready"]["message"]) == 1024

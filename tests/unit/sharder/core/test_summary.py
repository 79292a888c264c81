"""What is told of a ring is told anew when it has changed, and only then."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import fields, replace

from sharder.core.conditions import ConditionReason
from sharder.core.ringspec import LetGo
from sharder.core.summary import RESYNC, OldestDrain, Pending, RangesSummary, Refused, Summary
from shardsdk.errors import Forbidden, NotFound
from shardsdk.events.recorder import MAX_MESSAGE_CHARACTERS
from shardsdk.kube.answers import Status, Target, explain_status
from shardsdk.protocol.objects import GroupResource

SECRETS = GroupResource("", "secrets")
ALARM_SECONDS = 60.0
#: By field: another value than a summary has that says nothing.
CHANGED: dict[str, Any] = {
    "settled": True,
    "counts": {(Pending.UNASSIGNED, SECRETS): 1},
    "oldest_drain": OldestDrain(SECRETS, "default", "a", "one", ALARM_SECONDS),
    "failures": ((SECRETS, RESYNC, Forbidden("no")),),
    "removed_clean": frozenset({LetGo(SECRETS, None)}),
    "leaving": {SECRETS: 1},
    "trouble": "the API server does not answer",
    "overdue_before": (ConditionReason.OVERDUE, "drains wait"),
    "misplaced": True,
    "resynced": True,
    "refused": True,
    "ranges": RangesSummary(in_transit=1),
    "taken": ("the Lease is another's",),
    "not_acquired": (("one", "the Lease is refused"),),
    "abandoned": (("one", "the Lease default/one"),),
    "remarks": ("the Lease default/one is a stranger's",),
    "shards_before": (ConditionReason.NOBODY_READY, "nobody"),
    "joining": {SECRETS: 1},
    "waiting": (SECRETS,),
    "watches_beside": 1,
}
#: What the status does not say: when to look again, and since when; what has its ring looked up.
UNTOLD: dict[str, Any] = {"at_rest": True, "clean_since": 1.0, "lost_positions": 1}


def outline(**changes: Any) -> object:
    return replace(Summary(), **changes).outline(ALARM_SECONDS)


@pytest.mark.parametrize("name", [each.name for each in fields(Summary)])
def test_whatever_changes_in_a_summary_is_told_unless_the_status_does_not_say_it(name: str) -> None:
    assert (outline(**{name: (CHANGED | UNTOLD)[name]}) != outline()) is (name in CHANGED)


def test_that_time_passes_or_a_failure_says_something_else_is_no_news() -> None:
    drain, failures = CHANGED["oldest_drain"], CHANGED["failures"]
    assert outline(oldest_drain=replace(drain, seconds=ALARM_SECONDS - 1)) == outline()
    assert outline(oldest_drain=replace(drain, seconds=ALARM_SECONDS + 1)) == outline(oldest_drain=drain)
    assert outline(failures=((SECRETS, RESYNC, Forbidden("never")),)) == outline(failures=failures)
    assert outline(failures=((SECRETS, RESYNC, NotFound("no")),)) != outline(failures=failures)


@pytest.mark.parametrize("name", ["a" * 253, "a" * 100_000], ids=["the longest of most kinds", "of a Role"])
def test_however_long_an_objects_name_people_are_told_why_it_is_refused_and_what_to_do(name: str) -> None:
    patch, roles = Target("patch", "rbac.authorization.k8s.io", "roles", "tenant", name), GroupResource("", "roles")
    answer = explain_status(patch, Status(403, "Forbidden", f'roles "{name}" is forbidden: attempting to grant'))
    event = Refused(roles, "tenant", name, "given to shard one", str(answer), 0).render()[:MAX_MESSAGE_CHARACTERS]

    assert "given to shard one" in event
    assert "attempting to grant" in event
    assert "make it smaller" in event
    drain = str(OldestDrain(roles, "tenant", name, "one", ALARM_SECONDS))
    assert len(drain) < 400
    assert drain.endswith("on shard one")

"""What audit logs add: each rule of theirs finds what is planted for it, and nothing in what is as it should be."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from tests.chaos.audit import read_requests, writer_of
from tests.chaos.history import Version, Writer
from tests.chaos.rules import judge
from tests.chaos.story import SHARDER, USER, Story, rules

NOBODY = Writer("unknown", "somebody")
ACCOUNT = "system:serviceaccount:default:checksum"


def worked() -> Story:
    """Two shards; a user's object with a child, made by the first shard; API servers tell who did what."""
    story = Story()
    story.asked("one", story.lease("one"))
    story.asked("two", story.lease("two"))
    story.asked(USER, story.owner("one"))
    story.begin("one", "one/1")
    story.write("one/1", "w1")
    story.asked("one", story.child("one", write="w1"), verb="create", code=200)
    return story


def given_away(story: Story) -> None:
    """The first shard leaves, and the sharder gives its object to the second one, which begins with it."""
    story.asked("one", story.lease("one", holder=""))
    story.asked(SHARDER, story.child("two", write="w1"))
    story.asked(SHARDER, story.owner("two"))
    story.begin("two", "two/1")


def test_a_handover_of_which_all_is_known_is_well() -> None:
    story = worked()
    given_away(story)
    story.write("two/1", "w2")
    story.asked("two", story.child("two", write="w2"))
    verdict = judge(story.told())
    assert verdict.violations == ()
    assert (verdict.moves, verdict.writes) == (1, 2)


def test_without_audit_logs_nobody_is_asked_who_wrote() -> None:
    story = worked()
    given_away(story)
    story.child("two", write="nobody's")
    story.facts["requests"].clear()
    assert rules(story.told()) == []


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda story: story.child("one", write="w1"), ["unknown writer"]),
        (lambda story: story.owner("one"), ["unknown writer"]),
        (lambda story: story.lease("one"), ["unknown writer"]),
        (lambda story: story.child("one", write="w1", deleted=True), ["unknown writer", "lost"]),
        (lambda story: story.asked(NOBODY, story.child("one", write="w1")), ["unknown writer"]),
        (lambda story: story.asked(USER, story.child("one", write="w1")), []),
        (lambda story: story.asked(USER, story.child("one", write="w1", deleted=True), verb="delete"), ["lost"]),
    ],
)
def test_what_nobody_is_known_to_have_written_is_found(change: Callable[[Story], Version], found: list[str]) -> None:
    story = worked()
    change(story)
    assert sorted(rules(story.told())) == sorted(found)


@pytest.mark.parametrize("code", [None, 500, 504])
@pytest.mark.parametrize("named", [True, False])
def test_a_request_whose_outcome_nobody_knows_excuses_one_version(code: int | None, named: bool) -> None:
    story = worked()
    story.asked("one", story.child("one", write="w1"), code=code, named=named)
    assert rules(story.told()) == []
    story.child("one", write="w1")
    assert rules(story.told()) == ["unknown writer"]


@pytest.mark.parametrize("code", [403, 409, 422, 429])
def test_a_request_that_was_refused_excuses_nothing(code: int) -> None:
    story = worked()
    story.asked("one", story.child("one", write="w1"), code=code)
    assert rules(story.told()) == ["unknown writer"]


def test_what_was_filled_from_a_backup_nobody_has_written() -> None:
    story = worked()
    revision = story.revision
    for version in list(story.facts["versions"]):
        story.facts["versions"].append(replace(version, at=(1, version.at[1])))
    assert rules(story.told(restores=((1, revision),))) == []
    assert set(rules(story.told())) == {"unknown writer"}


@pytest.mark.parametrize(
    "change",
    [
        lambda story: story.child("one", write="w2"),
        lambda story: story.child("one", value="2", write="w1"),
        lambda story: story.owner("one", content="other"),
        lambda story: story.lease("two"),
    ],
    ids=["unknown id", "known id, other content", "owner", "lease of another one"],
)
def test_a_write_that_its_shard_does_not_know_of_is_found(change: Callable[[Story], Version]) -> None:
    story = worked()
    story.asked("one", change(story))
    assert "unrecorded write" in rules(story.told())


def test_a_write_that_another_shard_has_noted_is_not_its_own() -> None:
    story = worked()
    story.begin("two", "two/1", lasts=0.1)
    story.write("two/1", "w2")
    story.asked("one", story.child("one", write="w2"))
    assert "unrecorded write" in rules(story.told())


def test_a_child_that_a_shard_deletes_is_found() -> None:
    story = worked()
    story.asked("one", story.child("one", write="w1", deleted=True), verb="delete")
    assert "unrecorded write" in rules(story.told())


def test_labels_are_nothing_that_a_shard_notes() -> None:
    story = worked()
    story.asked(SHARDER, story.owner("one", drain=True))
    story.asked("one", story.child(None, write="w1"))
    story.asked("one", story.owner(None))
    story.asked(SHARDER, story.child("one", write="w1"))
    story.asked(SHARDER, story.owner("one"))
    assert rules(story.told()) == []


def test_a_sharder_that_changes_more_than_labels_is_found() -> None:
    story = worked()
    story.asked(SHARDER, story.owner("one", content="other"))
    assert rules(story.told()) == ["more than labels"]


def test_a_late_write_of_a_process_that_could_not_note_it_is_found() -> None:
    story = worked()
    given_away(story)
    story.asked("one", story.child("two", write="w9"))
    assert sorted(rules(story.told())) == ["late write", "unrecorded write"]


def test_a_late_acknowledgement_is_found() -> None:
    story = worked()
    given_away(story)
    story.asked("one", story.owner(None))
    story.asked(SHARDER, story.owner("two"))
    assert rules(story.told()) == ["late write"]


def test_what_a_shard_writes_that_has_got_the_object_back_is_not_late() -> None:
    story = worked()
    given_away(story)
    story.asked("two", story.lease("two", holder=""))
    story.asked("one", story.lease("one"))
    story.asked(SHARDER, story.child("one", write="w1"))
    story.asked(SHARDER, story.owner("one"))
    story.asked("one", story.child("one", write="w9"))
    assert rules(story.told(living=frozenset({"one"}))) == ["unrecorded write"]


def test_what_was_there_already_when_a_shard_wrote_it_is_whoever_elses() -> None:
    story = worked()
    given_away(story)
    story.write("two/1", "w2")
    made = story.asked("two", story.child("two", write="w2"))
    story.asked("one", made)
    assert rules(story.told()) == []


def test_who_wrote_is_told_by_account_and_user_agent() -> None:
    shard = "shardsdk/0.1.0 (ring checksum; shard shard-1)"
    assert writer_of("admin", "Python/3.12 aiohttp/3.13") == Writer("user")
    assert writer_of("system:serviceaccount:sharding-system:sharder", "sharder/0.1.0") == Writer("sharder")
    assert writer_of(ACCOUNT, shard) == Writer("shard", "shard-1")
    assert writer_of(ACCOUNT, "controller-sharding/0.1.0") == Writer("shard")
    assert writer_of(ACCOUNT, "curl/8").kind == "unknown"
    assert writer_of("system:serviceaccount:default:other", shard).kind == "unknown"


def line(number: int, stage: str, received: str, **more: object) -> str:
    event = {
        "kind": "Event", "apiVersion": "audit.k8s.io/v1", "auditID": f"id-{number}", "stage": stage, "verb": "patch",
        "user": {"username": "admin"}, "userAgent": "x", "requestReceivedTimestamp": received,
        "objectRef": {"resource": "secrets", "namespace": "default", "name": f"object-{number}"},
    }  # fmt: skip
    return json.dumps({**event, **more}, separators=(",", ":")) + "\n"


def test_a_log_tells_of_each_request_what_became_of_it(tmp_path: Path) -> None:
    early, late = "2026-01-01T00:00:00.000000Z", "2026-01-01T01:00:00.000000Z"
    answer = {"responseStatus": {"code": 200}, "responseObject": {"metadata": {"resourceVersion": "7"}}}
    cut = line(3, "RequestReceived", late)
    log = tmp_path / "audit.jsonl"
    log.write_text(
        line(1, "RequestReceived", early)
        + line(1, "ResponseComplete", early, **answer)
        + line(2, "RequestReceived", early)
        + cut
        + line(3, "ResponseComplete", late, **answer)[:-40]  # the API server was killed there
        + line(4, "ResponseComplete", late, **answer)
        + line(5, "ResponseComplete", late, responseStatus={"code": 409})
    )
    restored = datetime.fromisoformat("2026-01-01T00:30:00Z").timestamp()
    found = {each.name: each for each in read_requests([log, tmp_path / "not there"], [restored])}
    assert {name: (each.code, each.at) for name, each in found.items()} == {
        "object-1": (200, (0, 7)),
        "object-2": (None, None),
        "object-3": (None, None),
        "object-4": (200, (1, 7)),
        "object-5": (409, None),
    }
    assert [name for name, each in found.items() if each.open] == ["object-2", "object-3"]

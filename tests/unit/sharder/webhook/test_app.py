from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sharder.webhook.app import COMPLAINT_SECONDS, LOOK_UP_SECONDS, Limits
from shardsdk.errors import ConnectionFailed, Forbidden, NotServed
from shardsdk.protocol.objects import GroupResource, ObjectMeta, PartialObject, Resource
from tests.unit.sharder.webhook.reviews import (
    CONFIGMAPS,
    LABELS,
    PATH,
    SECRETS,
    SHARDS,
    Reply,
    call,
    child,
    review,
    view,
)
from tests.unit.sharder.webhook.setting import Owners, Setting, told_of
from tests.unit.shardsdk.serving.manual_clock import ManualClock


def owner(uid: str = "u-one", **labels: str) -> PartialObject:
    return PartialObject(ObjectMeta(name="one", namespace="default", uid=uid, labels=labels))


async def test_a_new_main_object_is_assigned_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    setting = Setting(clock=ManualClock(60.0))
    reply = await setting.call(review())
    assert reply.status == 200
    assert reply.headers["content-type"] == "application/json"
    assert reply.response["uid"] == "11111111-2222-3333-4444-555555555555"
    assert reply.response["allowed"] is True
    assert reply.shard == view().membership.target("/Secret/default/one")
    assert setting.outcomes == [("checksum", "assigned")]
    assert setting.seconds == [0.0], "of a clock that stands still"
    assert setting.assigned == [("checksum", GroupResource("", "secrets"))]
    assert told_of(caplog) == []


async def test_a_dry_run_is_answered_but_not_counted_as_assignment() -> None:
    setting = Setting()
    reply = await setting.call(review(dryRun=True))
    assert reply.shard in SHARDS
    assert setting.assigned == []


async def test_a_child_gets_the_label_that_its_owner_has_now() -> None:
    setting = Setting(owners=Owners(owner(**{LABELS.shard: "shard-1"})))
    reply = await setting.call(review(CONFIGMAPS, child()))
    assert reply.shard == "shard-1"
    assert setting.owners.asked == [(SECRETS, "one", "default")]


@pytest.mark.parametrize("found", [owner(), owner(**{LABELS.shard: "gone"})])
async def test_a_child_of_an_owner_without_living_shard_waits_with_it(found: PartialObject) -> None:
    setting = Setting(owners=Owners(found))
    reply = await setting.call(review(CONFIGMAPS, child()))
    assert reply.response["allowed"] is True
    assert reply.patch is None
    assert setting.outcomes == [("checksum", "owner_unassigned")]


async def test_a_child_whose_owner_is_gone_is_placed_by_the_ring() -> None:
    reply = await Setting(owners=Owners(None)).call(review(CONFIGMAPS, child()))
    assert reply.shard == view().membership.target("/Secret/default/one")


@pytest.mark.parametrize(
    "error",
    [ConnectionFailed("no answer"), Forbidden("secrets: list is not allowed", status=403), RuntimeError("a bug")],
)
async def test_an_error_while_the_owner_is_read_lets_the_child_pass(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    setting = Setting(owners=Owners(error))
    reply = await setting.call(review(CONFIGMAPS, child(), name="kid"))
    assert reply.response == {"uid": "11111111-2222-3333-4444-555555555555", "allowed": True}
    outcome = "failed" if isinstance(error, RuntimeError) else "owner_unread"
    assert setting.outcomes == [("checksum", outcome)]
    [told] = [vars(record) for record in caplog.records]
    assert [told[key] for key in ("ring", "resource", "namespace", "object")] == [
        "checksum", "configmaps", "default", "kid",
    ]  # fmt: skip
    assert str(error) in (told.get("reason") or told["error"])


@pytest.mark.parametrize("error", [NotServed("404 page not found", status=404), ConnectionFailed("no answer")])
async def test_a_ring_is_looked_up_again_whose_owners_are_not_served_as_it_has_them(error: Exception) -> None:
    setting, is_gone = Setting(owners=Owners(error)), isinstance(error, NotServed)
    app = setting.build()
    for _ in range(3):
        reply = await call(app, review(CONFIGMAPS, child()))
        assert reply.response["allowed"] is True
    assert setting.outcomes == [("checksum", "owner_unread")] * 3
    assert setting.not_served == ["checksum"] * is_gone, "as often as callers ask would be a load"
    setting.clock.jump(timedelta(seconds=LOOK_UP_SECONDS))
    await call(app, review(CONFIGMAPS, child()))
    assert setting.not_served == ["checksum"] * 2 * is_gone


async def test_a_ring_is_looked_up_again_whose_resource_has_become_another_kind() -> None:
    setting = Setting()
    app, another = setting.build(), {"group": "", "version": "v1", "kind": "Another"}
    for _ in range(3):
        reply = await call(app, review(kind=another))
        assert reply.patch is None
    assert setting.outcomes == [("checksum", "another_kind")] * 3
    assert setting.not_served == ["checksum"]


async def test_an_owner_that_is_not_read_in_time_lets_the_child_pass() -> None:
    setting = Setting(owners=Owners(hold=asyncio.Event()), limits=Limits(owner_seconds=0.01))
    reply = await setting.call(review(CONFIGMAPS, child()))
    assert reply.response["allowed"] is True
    assert reply.patch is None
    assert setting.outcomes == [("checksum", "owner_unread")]
    assert setting.owners.running == 0


async def test_owners_are_read_a_few_at_a_time() -> None:
    setting = Setting(owners=Owners(owner(**{LABELS.shard: "shard-1"})), limits=Limits(owner_reads=3))
    app = setting.build()
    replies = await asyncio.gather(*(call(app, review(CONFIGMAPS, child())) for _ in range(20)))
    assert [reply.shard for reply in replies] == ["shard-1"] * 20
    assert setting.owners.most == 3


async def test_a_removed_label_is_put_back() -> None:
    old = {"name": "one", "namespace": "default", "labels": {LABELS.shard: "dead-shard"}}
    setting = Setting()
    reply = await setting.call(review(old=old, operation="UPDATE"))
    assert reply.shard == "dead-shard"
    assert setting.outcomes == [("checksum", "restored")]
    assert setting.assigned == [], "it has its shard already"


async def test_an_acknowledgement_takes_the_labels_off() -> None:
    """Put back, they would have the object drain for ever."""
    draining = {"name": "one", "namespace": "default", "labels": {LABELS.shard: "old", LABELS.drain: "true"}}
    setting = Setting()
    reply = await setting.call(review(old=draining, operation="UPDATE"))
    assert reply.patch is None
    assert setting.outcomes == [("checksum", "left_to_placement")]


async def test_who_acknowledges_wrongly_is_warned_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    labels = {LABELS.shard: "shard-1", LABELS.drain: "true"}
    new = {"name": "one", "namespace": "default", "uid": "u", "labels": {LABELS.drain: "true"}}
    wrong = review(
        metadata=new, old={**new, "labels": labels}, operation="UPDATE", name="one", userInfo={"username": "me"}
    )
    setting = Setting()
    app = setting.build()
    replies = [await call(app, wrong) for _ in range(2)]
    for reply in replies:
        assert (reply.shard, reply.response["allowed"], len(reply.response["warnings"])) == ("shard-1", True, 1)
    assert setting.outcomes == [("checksum", "not_acknowledged")] * 2
    [told] = [vars(each) for each in caplog.records]
    assert told["message"] == "an acknowledgement did not count"
    assert [told[key] for key in ("ring", "shard", "resource", "namespace", "object", "account", "reason")] == [
        "checksum", "shard-1", "secrets", "default", "one", "me", *replies[0].response["warnings"],
    ]  # fmt: skip


async def test_of_a_dry_run_only_its_maker_hears_that_it_acknowledges_nothing(caplog: pytest.LogCaptureFixture) -> None:
    old = {"name": "one", "namespace": "default", "labels": {LABELS.shard: "shard-1", LABELS.drain: "true"}}
    reply = await Setting().call(
        review(old=old, operation="UPDATE", dryRun=True, object={"metadata": {"name": "one"}, "data": 1})
    )
    assert len(reply.response["warnings"]) == 1
    assert caplog.records == []


@pytest.mark.parametrize(("account", "shard"), [("sharder", None), ("sharder-of-another-name", "shard-1")])
async def test_from_a_shard_that_is_there_only_the_sharder_moves_an_object(account: str, shard: str | None) -> None:
    old, new = ({"name": "one", "namespace": "default", "labels": {LABELS.shard: f"shard-{n}"}} for n in (1, 2))
    setting = Setting(account=account)
    reply = await setting.call(review(metadata=new, old=old, operation="UPDATE", userInfo={"username": "sharder"}))
    assert reply.shard == shard


async def test_a_stale_replica_assigns_nothing(caplog: pytest.LogCaptureFixture) -> None:
    setting = Setting(rings={"checksum": view(stale=True)})
    app = setting.build()
    for _ in range(3):
        reply = await call(app, review())
        assert (reply.response["allowed"], reply.patch) == (True, None)
    assert setting.outcomes == [("checksum", "stale")] * 3
    [told] = told_of(caplog)
    assert told == ("checksum", "stale", "this replica has heard nothing of leases or rings for too long")


async def test_without_shards_objects_pass_unlabelled() -> None:
    setting = Setting(rings={"checksum": view(frozenset())})
    assert (await setting.call(review())).patch is None
    assert setting.outcomes == [("checksum", "no_shard")]


async def test_an_unknown_ring_lets_everything_pass_and_makes_no_metric_of_its_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    setting = Setting()
    reply = await setting.call(review(), path="/webhooks/sharder/clusterring/nobody-knows-me")
    assert reply.response == {"uid": "11111111-2222-3333-4444-555555555555", "allowed": True}
    assert setting.outcomes == [("", "unknown_ring")]
    [(_, _, reason)] = told_of(caplog)
    assert reason.startswith("no such ring")
    assert reason.endswith("kubectl delete mutatingwebhookconfiguration clusterring-nobody-knows-me")


async def test_an_object_without_metadata_passes() -> None:
    setting = Setting()
    reply = await setting.call(review(object={"spec": 1}))
    assert (reply.response["allowed"], reply.patch) == (True, None)
    assert setting.outcomes == [("checksum", "malformed")]


async def test_a_malformed_review_is_allowed_if_it_says_whom_to_answer(caplog: pytest.LogCaptureFixture) -> None:
    setting = Setting()
    app = setting.build()
    for _ in range(5):
        reply = await call(app, review(object={"metadata": {"labels": 7}}))
        assert reply.response == {"uid": "11111111-2222-3333-4444-555555555555", "allowed": True}
    assert setting.outcomes == [("checksum", "malformed")] * 5
    assert len(caplog.messages) == 1


async def test_a_rings_trouble_is_told_however_much_others_have(caplog: pytest.LogCaptureFixture) -> None:
    setting = Setting(rings={"a": view(), "b": view()})
    app = setting.build()
    for ring in ("a", "a", "b", "a", "b", "left-over", "invented", "left-over"):
        await call(app, review(object={"metadata": {"labels": 7}}), path=PATH.replace("checksum", ring))
    told = [vars(record)["ring"] for record in caplog.records]
    assert told == ["a", "b", "left-over"], "names that are no ring's are told of together: callers can invent them"


async def test_the_webhook_remembers_no_complaint_for_long(caplog: pytest.LogCaptureFixture) -> None:
    """Rings come and go."""
    setting = Setting(rings={f"ring-{number}": view() for number in range(20)})
    app = setting.build()
    for ring in list(setting.rings):
        await call(app, review(object={"metadata": {"labels": 7}}), path=PATH.replace("checksum", ring))
        del setting.rings[ring]
        setting.clock.jump(timedelta(seconds=COMPLAINT_SECONDS))
    assert len(caplog.records) == 20
    assert len(app._endpoint._complaints._passed_at) == 1


async def test_a_ring_that_is_deleted_while_an_owner_is_read_gets_no_metrics_again() -> None:
    setting = Setting(owners=Owners(owner(**{LABELS.shard: "shard-1"}), hold=asyncio.Event()))
    assert setting.owners.hold is not None
    asking = asyncio.create_task(setting.call(review(CONFIGMAPS, child())))
    while not setting.owners.running:
        await asyncio.sleep(0)
    setting.rings.clear()
    setting.owners.hold.set()
    reply = await asking
    assert reply.shard == "shard-1"
    assert (setting.assigned, setting.outcomes) == ([], [("", "assigned")])


@pytest.mark.parametrize(
    "body", [b"", b"null", b"[]", b"{}", b"{", b"\xff\xfe", b'{"request":{"uid":""}}', b"[" * 100_000]
)
async def test_what_is_no_review_gets_a_400_that_says_so(body: bytes) -> None:
    setting = Setting()
    reply = await setting.call(body)
    assert reply.status == 400
    assert "not an AdmissionReview" in reply.text
    assert setting.outcomes == [("checksum", "malformed")]


@pytest.mark.parametrize(
    "path",
    ["/", PATH + "/", PATH + "/more", PATH[: -len("checksum")], "/webhooks/sharder/ring/x", "/docs", "/openapi.json"],
)
async def test_a_wrong_path_is_told_the_right_one(path: str) -> None:
    reply = await Setting().call(review(), path=path)
    assert reply.status == 404
    assert "/webhooks/sharder/clusterring/" in reply.text


async def test_other_methods_are_refused() -> None:
    reply = await Setting().call(b"", method="GET")
    assert (reply.status, reply.headers["allow"], reply.text) == (405, "POST", "POST an AdmissionReview")


async def test_the_application_behind_answers_reviews_too() -> None:
    # Here, because each worker of the tests imports this file.
    from sharder.webhook.application import build_application

    setting = Setting()
    app = setting.build()
    reply = await call(build_application(app._endpoint), review())
    assert reply.shard == view().membership.target("/Secret/default/one")
    assert setting.outcomes == [("checksum", "assigned")]


async def test_callers_at_once_who_ask_for_something_else_get_one_application() -> None:
    app = Setting().build()
    replies = await asyncio.gather(*(call(app, b"", path=f"/{number}") for number in range(5)), call(app, review()))
    assert [reply.status for reply in replies] == [404] * 5 + [200]
    made = app._application
    assert (await call(app, b"", path="/later")).status == 404
    assert app._application is made


def test_reviews_are_answered_without_fastapi() -> None:
    """It would be a third of the sharder's start, and 9 MiB."""
    program = "import sys, sharder.service; sys.exit(bool({'fastapi', 'starlette.routing'} & {*sys.modules}))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)
FIELDS = ["uid", "resource", "object", "oldObject", "operation", "namespace", "name", "dryRun", "subResource"]
META_FIELDS = ["name", "namespace", "labels", "ownerReferences", "generateName", "uid"]


def harmless(reply: Reply) -> None:
    """Nothing that we answer may deny a request, and nothing of ours may break."""
    assert reply.status == 200 or 400 <= reply.status < 500
    if reply.status == 200:
        assert reply.response["allowed"] is True
        assert set(reply.response) <= {"uid", "allowed", "patch", "patchType"}


@given(body=st.binary(max_size=500), path=st.sampled_from([PATH, "/webhooks/sharder/clusterring/other", "/x"]))
@settings(deadline=None)
async def test_garbage_denies_nothing(body: bytes, path: str) -> None:
    harmless(await Setting().call(body, path=path))


@given(changes=st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=3))
@settings(deadline=None)
async def test_reviews_with_odd_fields_deny_nothing(changes: dict[str, Any]) -> None:
    harmless(await Setting().call(review() | {"request": review()["request"] | changes}))


@given(
    changes=st.dictionaries(st.sampled_from(META_FIELDS), JSON, max_size=3),
    operation=st.sampled_from(["CREATE", "UPDATE", "DELETE", "", "odd"]),
    resource=st.sampled_from([SECRETS, CONFIGMAPS]),
)
@settings(deadline=None)
async def test_objects_with_odd_metadata_deny_nothing(
    changes: dict[str, Any], operation: str, resource: Resource
) -> None:
    harmless(await Setting().call(review(resource, child() | changes, operation=operation, old=child() | changes)))


@pytest.mark.parametrize("where", ["uid", "name", "label"])
async def test_half_a_surrogate_pair_denies_nothing(where: str) -> None:
    half = {"uid": b"11111111", "name": b'"one"', "label": b'"default"'}[where]
    body = msgspec.json.encode(review()).replace(half, b"\\ud800" if where == "uid" else b'"\\ud800"')
    harmless(await Setting().call(body))

"""Whatever is posted: a review is answered with a review that allows, anything else with a 4xx; nothing is raised."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sharder.core.admission import MAX_UID_LENGTH
from sharder.webhook.app import OUTCOMES, Limits, build_app
from shardsdk.errors import ConnectionFailed, Forbidden
from shardsdk.kube.api import Api
from shardsdk.protocol.objects import ObjectMeta, PartialObject
from tests.fuzz.hostile_values import examples, mutated, texts, values
from tests.unit.sharder.webhook.reviews import CONFIGMAPS, LABELS, PATH, SECRETS, Reply, call, child, review, view
from tests.unit.shardsdk.serving.manual_clock import ManualClock

labels = st.dictionaries(
    st.sampled_from(["app", LABELS.shard, LABELS.drain]) | texts,
    st.sampled_from(["shard-0", "gone", "", "true"]) | texts,
)
metadata = st.fixed_dictionaries(
    {"name": st.sampled_from(["one", ""]) | texts, "namespace": st.sampled_from(["default", ""]) | texts},
    optional={"labels": labels, "annotations": labels, "uid": texts, "generateName": texts},
) | st.just(child())
reviews = st.builds(
    lambda resource, new, old, operation, more: review(resource, new, old=old, operation=operation, **more),
    st.sampled_from([SECRETS, CONFIGMAPS]),
    metadata,
    st.none() | metadata,
    st.sampled_from(["CREATE", "UPDATE", "DELETE", "CONNECT"]),
    st.fixed_dictionaries(
        {},
        optional={
            "dryRun": st.booleans(),
            "subResource": st.sampled_from(["", "status"]),
            "userInfo": st.fixed_dictionaries({"username": st.sampled_from(["sharder", "somebody"]) | texts}),
            "options": values,
        },
    ),
)
#: Half a body, a body and a half, bytes flipped on their way.
broken = st.builds(
    lambda made, cut, more: json.dumps(made).encode()[:cut] + more,
    reviews,
    st.integers(0, 600),
    st.binary(max_size=20),
)
bodies = st.one_of(
    reviews.map(lambda made: json.dumps(made).encode()),
    mutated(reviews).map(lambda made: json.dumps(made).encode()),
    mutated(reviews).map(lambda made: json.dumps(made).encode()),
    broken,
    values.map(lambda made: json.dumps(made).encode()),
    st.binary(max_size=200),
)
OWNERS = (
    None,
    ConnectionFailed("no answer"),
    Forbidden("no", status=403),
    *(PartialObject(ObjectMeta(name="one", namespace="default", uid="u-one", labels={LABELS.shard: name}))
      for name in ("shard-1", "gone", "\x1b[31m")),
)  # fmt: skip


class Errors(logging.Handler):
    """What a test must not find in the log, with the facts of the line."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture(scope="module")
def errors() -> Iterator[Errors]:
    handler = Errors()
    logging.getLogger().addHandler(handler)
    yield handler
    logging.getLogger().removeHandler(handler)


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as made:
        yield made


def post(runner: asyncio.Runner, pieces: bytes | list[bytes], owner: Any = None, **given_more: Any) -> Reply:
    outcomes: list[str] = []

    async def find(*_: Any) -> Any:
        if isinstance(owner, Exception):
            raise owner
        return owner

    app = build_app(
        {"checksum": view(stale=given_more.pop("stale", False))}.get,
        cast(Api, SimpleNamespace(find=find)),
        clock=ManualClock(),
        on_outcome=lambda ring, outcome, seconds: outcomes.append(outcome),
        account=lambda: "sharder",
        limits=Limits(review_bytes=1 << 16),
    )
    reply = runner.run(call(app, pieces, **given_more))
    assert set(outcomes) <= set(OUTCOMES)
    return reply


def uid_of(body: bytes) -> str | None:
    """The uid of what an API server may have sent; `None` for anything else."""
    try:
        made = json.loads(body)
        uid = made["request"]["uid"]
        uid.encode()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return uid if 0 < len(uid) <= MAX_UID_LENGTH else None


def judge(reply: Reply, body: bytes, errors: Errors) -> None:
    assert not errors.records, vars(errors.records[0])
    if reply.status != 200:
        assert 400 <= reply.status < 500
        # A review whose text no JSON can be, or with fields twice, is none; what Python reads in it does not count.
        return
    answer = json.loads(reply.body)
    response = answer["response"]
    assert (answer["kind"], response["allowed"]) == ("AdmissionReview", True)
    assert set(response) <= {"uid", "allowed", "patch", "patchType", "warnings"}
    assert all(len(each) <= 256 for each in response.get("warnings", []))
    assert isinstance(answer["apiVersion"], str)
    if (uid := uid_of(body)) is not None:
        assert response["uid"] == uid
    if "patch" in response:
        assert response["patchType"] == "JSONPatch"
        for operation in json.loads(base64.b64decode(response["patch"], validate=True)):
            assert operation["op"] in ("add", "remove", "replace", "test")
            assert operation["path"].startswith("/metadata/labels")


@given(bodies, st.sampled_from(OWNERS), st.booleans())
@examples(300)
@example(b'{"request":' * 20_000, None, False)
@example(b"[" * 60_000, None, False)
@example(b'{"request":{"uid":"1","object":{"metadata":{"labels":' + b'{"a":' * 9000, None, False)
def test_every_body_gets_an_answer_that_allows_or_a_4xx(
    runner: asyncio.Runner, errors: Errors, body: bytes, owner: Any, stale: bool
) -> None:
    judge(post(runner, body, owner, stale=stale), body, errors)


@given(reviews, st.sampled_from(OWNERS))
@examples(100)
def test_every_review_of_an_api_server_is_answered(
    runner: asyncio.Runner, errors: Errors, made: dict[str, Any], owner: Any
) -> None:
    body = json.dumps(made).encode()
    reply = post(runner, body, owner)
    assert reply.status == 200
    assert reply.response["uid"] == made["request"]["uid"]
    judge(reply, body, errors)


@given(
    st.lists(st.binary(max_size=40), min_size=1, max_size=5),
    st.sampled_from([PATH, "/", "/webhooks/sharder/clusterring/", "/webhooks/sharder/clusterring/%2e", "//"]) | texts,
    st.sampled_from(["POST", "GET", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "X"]),
    st.lists(
        st.tuples(
            st.sampled_from([b"content-length", b"content-type", b"content-encoding", b"x"]),
            st.sampled_from([b"-1", b"9" * 40, b"1_0", b"\xff", b"gzip", b""]),
        ),
        max_size=3,
    ),
    st.sampled_from(["ends", "leaves"]),
)
@examples(100)
def test_every_request_gets_an_answer_or_a_4xx(
    runner: asyncio.Runner, errors: Errors, pieces: list[bytes], path: str, method: str, headers: Any, manner: str
) -> None:
    path = path.encode("ascii", "ignore").decode() or "/"
    leaves = manner == "leaves"
    reply = post(runner, pieces, path=path, method=method, headers=headers, ends=not leaves, leaves=leaves)
    judge(reply, b"".join(pieces), errors)

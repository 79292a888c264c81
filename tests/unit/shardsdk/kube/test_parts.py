"""The small parts: selectors, store, backoff, pace, errors, the system's clock."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from datetime import UTC

import pytest

from shardsdk import errors
from shardsdk.errors import RetryRule
from shardsdk.kube import selectors
from shardsdk.kube.answers import MESSAGE_MAX_CHARACTERS, Target, explain
from shardsdk.kube.backoff import Backoff, double
from shardsdk.kube.clock import SystemClock
from shardsdk.kube.pace import Pace
from shardsdk.kube.selectors import Selector
from shardsdk.kube.store import Key, Store
from shardsdk.protocol.objects import PartialObject
from tests.kube_fakes import InstantClock, thing


def test_selectors_are_written_as_the_api_server_reads_them() -> None:
    terms = [
        selectors.exists("a/b"),
        selectors.absent("c"),
        selectors.equals("d", "e"),
        selectors.differs("metadata.namespace", "kube-system"),
        selectors.within("f", ["2", "1", "2"]),
        selectors.not_in("g", {"3"}),
        "",
    ]
    assert selectors.join(*terms) == "a/b,!c,d=e,metadata.namespace!=kube-system,f in (1,2),g notin (3)"
    assert str(Selector("x", "y")) == "x and y"
    assert str(Selector()) == "everything"


@pytest.mark.parametrize(
    ("name", "written"),
    [("a,b", r"a\,b"), ("c=d", r"c\=d"), (r"e\f", r"e\\f"), ("n!=o", r"n!\=o"), (r"\,", r"\\\,"), ("a:x", "a:x")],
)
def test_what_a_name_has_of_a_selectors_own_characters_is_escaped(name: str, written: str) -> None:
    """A Role may be called like that."""
    assert selectors.equals("metadata.name", name) == f"metadata.name={written}"
    assert selectors.differs("metadata.name", name) == f"metadata.name!={written}"


def test_a_set_without_values_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        selectors.not_in("a", [])
    with pytest.raises(ValueError, match="at least one"):
        selectors.within("a", [])


def owner(each: PartialObject) -> list[str]:
    label = each.metadata.label("owner")
    return [label] if label else []


def test_an_index_that_gives_one_text_is_refused_rather_than_read_letter_by_letter() -> None:
    store = Store[str]({"owner": lambda thing: thing})
    with pytest.raises(TypeError, match="index 'owner' gave a str: return a list of values"):
        store.put(Key("default", "a"), "ab")
    assert not store.view


def test_a_store_is_read_by_key_and_by_index() -> None:
    store: Store[PartialObject] = Store({"owner": owner})
    first, second = thing("a", 1, labels={"owner": "x"}), thing("b", 2, labels={"owner": "x"})
    assert store.put(Key("default", "a"), first) is None
    store.put(Key("default", "b"), second)
    assert store.get("default", "a") is first
    assert ("default", "b") in store
    assert store.by_index("owner", "x") == [first, second]
    moved = thing("a", 3, labels={"owner": "y"})
    assert store.put(Key("default", "a"), moved) is first
    assert store.by_index("owner", "x") == [second]
    assert store.by_index("owner", "y") == [moved]
    assert store.drop(Key("default", "b")) is second
    assert store.by_index("owner", "x") == []
    assert store.index_values("owner") == ["y"]
    assert store.drop(Key("default", "b")) is None
    assert len(store) == 1
    assert list(store) == [moved]


def test_a_stores_view_cannot_be_written() -> None:
    store: Store[PartialObject] = Store()
    store.put(Key("", "a"), thing("a", 1))
    with pytest.raises(TypeError):
        store.view[Key("", "b")] = thing("b", 1)  # type: ignore[index]
    with pytest.raises(KeyError):
        store.by_index("nope", "x")
    assert [str(key) for key in store.view] == ["a"]
    assert str(Key("n", "a")) == "n/a"


def test_pauses_double_up_to_their_limit_with_jitter() -> None:
    backoff = Backoff(random.Random(1), first_seconds=0.2, max_seconds=5.0)
    for span in (0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0):
        assert span / 2 <= backoff.next() <= span
    assert backoff.failures == 7
    backoff.reset()
    assert backoff.next() <= 0.2
    for _ in range(2_000):
        assert backoff.next() <= 5.0


@pytest.mark.parametrize("times", [9, 1_023, 1_024, 10**6])
def test_what_fails_for_hours_still_has_a_pause(times: int) -> None:
    """A float ends at 2**1024, which a pause of ten seconds has reached after three hours."""
    assert double(0.05, times, 10.0) == 10.0


async def test_a_pace_lets_bursts_pass_and_then_counts() -> None:
    clock = InstantClock()
    pace = Pace(clock, qps=10, burst=2)
    for _ in range(6):
        await pace.wait()
    assert clock.pauses == [pytest.approx(0.1)] * 4
    clock.at += 100
    clock.pauses.clear()
    for _ in range(2):
        await pace.wait()
    assert clock.pauses == []


async def test_no_pace_means_no_limit() -> None:
    clock = InstantClock()
    for qps in (None, -1.0):
        pace = Pace(clock, qps=qps)
        for _ in range(100):
            await pace.wait()
    assert clock.pauses == []


def test_a_pace_that_lets_nothing_pass_is_refused() -> None:
    with pytest.raises(errors.ConfigurationError, match="qps -1"):
        Pace(InstantClock(), qps=0)
    with pytest.raises(errors.ConfigurationError):
        Pace(InstantClock(), qps=5, burst=0)


@pytest.mark.parametrize(
    ("status", "reason", "leaf"),
    [
        (400, "BadRequest", errors.BadRequest),
        (401, "Unauthorized", errors.Unauthorized),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (405, "MethodNotAllowed", errors.MethodNotAllowed),
        (409, "AlreadyExists", errors.AlreadyExists),
        (409, "Conflict", errors.Conflict),
        (410, "Gone", errors.Gone),
        (410, "Expired", errors.Gone),
        (413, "RequestEntityTooLarge", errors.BadRequest),
        (415, "UnsupportedMediaType", errors.BadRequest),
        (422, "Invalid", errors.Invalid),
        (429, "TooManyRequests", errors.TooManyRequests),
        (500, "InternalError", errors.ServerError),
        (503, "ServiceUnavailable", errors.ServerError),
        (504, "Timeout", errors.ServerError),
        (302, "", errors.ServerError),
    ],
)
def test_each_answer_has_its_leaf(status: int, reason: str, leaf: type[errors.ApiError]) -> None:
    body = f'{{"kind":"Status","reason":"{reason}","message":"because","code":{status},"details":null}}'.encode()
    error = explain(Target("patch", "apps", "deployments", "n", "d"), status, body, {})
    assert type(error) is leaf
    assert (error.status, error.reason) == (status, reason)
    assert str(error).startswith("patch deployments.apps n/d: ")
    assert "because" in str(error)


@pytest.mark.parametrize(
    "said",
    [
        "etcdserver: request is too large",
        "rpc error: code = ResourceExhausted desc = trying to send message larger than max (2097413 vs. 2097152)",
    ],
)
def test_what_etcd_finds_too_large_is_refused_for_good(said: str) -> None:
    body = f'{{"kind":"Status","message":"{said}","code":500}}'.encode()
    error = explain(Target("patch", "example.com", "widgets", "n", "a"), 500, body, {})
    assert type(error) is errors.BadRequest
    assert not errors.may_be_executed(error)


#: What to do about each error.  Whoever changes this changes what users' loops do.
RULES: dict[RetryRule, list[type[errors.ShardingError]]] = {
    RetryRule.NEVER: [
        errors.ShardingError,
        errors.ConfigurationError,
        errors.InvalidRingName,
        errors.RingChanged,
        errors.ApiError,
        errors.BadRequest,
        errors.NotFound,
        errors.NotServed,
        errors.MethodNotAllowed,
        errors.Invalid,
        errors.AlreadyOwned,
        errors.FenceClosed,
        errors.LeaseLost,
        errors.TerminalError,
    ],
    RetryRule.REFRESH: [errors.AlreadyExists, errors.Conflict, errors.Gone],
    RetryRule.BACKOFF: [
        errors.FieldConflict,
        errors.Unauthorized,
        errors.Forbidden,
        errors.TooManyRequests,
        errors.ServerError,
        errors.ConnectionFailed,
        errors.StreamInterrupted,
        errors.TooManyWrites,
    ],
}


def test_each_error_carries_its_retry_rule() -> None:
    classes_of_it = [each for each in vars(errors).values() if isinstance(each, type)]
    defined = [each for each in classes_of_it if issubclass(each, errors.ShardingError)]
    assert {rule: {each for each in defined if each.retry is rule} for rule in RetryRule} == {
        rule: set(classes) for rule, classes in RULES.items()
    }


def test_the_tree_of_errors_is_drawn_as_it_is() -> None:
    drawn = dict(re.findall(r"── (\w+) .* (NEVER|REFRESH|BACKOFF)$", errors.__doc__ or "", re.MULTILINE))
    roots = {errors.ShardingError, errors.ApiError}
    assert drawn == {
        each.__name__: rule.name for rule, classes in RULES.items() for each in classes if each not in roots
    }


def test_an_answer_that_is_no_status_is_quoted_and_cut() -> None:
    error = explain(Target("GET", name="/x"), 502, b"<html>" + b"x" * 10_000, {})
    assert type(error) is errors.ServerError
    assert str(error).startswith("GET /x: 502 without reason: <html>")
    assert len(str(error)) < MESSAGE_MAX_CHARACTERS + 100


@pytest.mark.parametrize(
    ("body", "unserved"),
    [
        (b"404 page not found\n", True),
        (b'{"reason": "NotFound", "message": "the server could not find the requested resource"}', True),
        (b'{"reason": "NotFound", "message": "clusterrings.sharding.timebertt.dev \\"x\\" not found"}', False),
    ],
)
def test_a_type_that_is_not_served_is_told_from_an_object_that_is_not_there(body: bytes, unserved: bool) -> None:
    error = explain(Target("watch", "sharding.timebertt.dev", "clusterrings"), 404, body, {})
    assert type(error) is (errors.NotServed if unserved else errors.NotFound)
    assert ("install its CustomResourceDefinition" in str(error)) is unserved


def test_a_proxys_own_404_says_nothing_of_the_object_nor_of_its_type() -> None:
    error = explain(Target("patch", "example.com", "widgets", "n", "a"), 404, b"<h1>404 Not Found</h1>", {})
    assert type(error) is errors.NotServed
    assert "CustomResourceDefinition" not in str(error)


@pytest.mark.parametrize("reason", ["", "NotFound"])
@pytest.mark.parametrize("said", [b'configmaps \\"b\\" not found', b"the server could not find the requested resource"])
def test_a_denial_with_404_says_nothing_of_the_object_nor_of_its_type(said: bytes, reason: str) -> None:
    """As `admission.Errored(http.StatusNotFound, err)` of controller-runtime makes one, or a validator that hands on
    what it was answered itself."""
    denial = b'"message":"admission webhook \\"a.example.com\\" denied the request: %s"' % said
    body = b'{"kind":"Status","status":"Failure",%s,"reason":"%s","code":404}' % (denial, reason.encode())
    error = explain(Target("patch", "example.com", "widgets", "n", "a"), 404, body, {})
    assert type(error) is errors.Forbidden
    assert (error.status, error.reason) == (404, reason)
    assert "CustomResourceDefinition" not in str(error)


def absent(kind: str, name: str) -> tuple[int, bytes, dict[str, str]]:
    """As the API server says that an object is not there."""
    said, details = f'{kind} \\"{name}\\" not found', f'{{"name":"{name}","kind":"{kind}"}}'
    text = f'{{"kind":"Status","reason":"NotFound","message":"{said}","details":{details},"code":404}}'
    return 404, text.encode(), {}


@pytest.mark.parametrize("verb", ["patch", "update"])
@pytest.mark.parametrize(
    ("group", "kind", "named", "remedy"),
    [
        ("rbac.authorization.k8s.io", "rolebindings", "rolebindings", "the role that it names is not, as a rule"),
        ("rbac.authorization.k8s.io", "rolebindings", "roles", "the role that it names is not, as a rule"),
        ("example.com", "widgets", "parts", "without which this one may not be written: create it"),
    ],
)
def test_a_404_that_names_another_object_does_not_say_that_this_one_is_gone(
    verb: str, group: str, kind: str, named: str, remedy: str
) -> None:
    """Of the role that a RoleBinding names the API server itself speaks as of a RoleBinding."""
    error = explain(Target(verb, group, kind, "n", "b"), *absent(named, "else"))
    assert type(error) is errors.Forbidden
    assert f'{named} "else" not found' in str(error)
    assert remedy in str(error)


@pytest.mark.parametrize("verb", ["get", "patch", "update", "delete"])
@pytest.mark.parametrize(
    ("resource", "kind", "name"),
    [
        ("widgets", "widgets", "a"),
        ("widgets/status", "widgets", "a"),
        ("widgets/scale", "widgets/scale", "a"),
        ("widgets", "Widget", "a"),
        ("widgets", "widget", "a"),
        ("widgets", "widgets.example.com", "a"),
        ("widgets", "widgets", "n/a"),
        ("widgets", "", ""),
        ("widgets", "namespaces", "n"),
        ("widgets", "namespace", "n"),
    ],
)
def test_a_404_that_names_the_object_or_its_namespace_says_that_it_is_gone(
    verb: str, resource: str, kind: str, name: str
) -> None:
    """However an aggregated API server words it."""
    error = explain(Target(verb, "example.com", resource, "n", "a"), *absent(kind, name))
    assert type(error) is errors.NotFound


def test_what_is_deleted_needs_no_other_object() -> None:
    assert type(explain(Target("delete", "example.com", "widgets", "n", "a"), *absent("w", "x"))) is errors.NotFound


def test_of_what_is_created_the_namespace_may_be_what_is_not_there() -> None:
    assert type(explain(Target("create", "", "pods", "n", "a"), *absent("namespaces", "n"))) is errors.NotFound


def test_a_status_that_is_not_there_may_be_one_that_its_kind_does_not_have() -> None:
    body = b'{"kind":"Status","reason":"NotFound","message":"widgets.example.com \\"a\\" not found","code":404}'
    error = explain(Target("patch", "example.com", "widgets/status", "n", "a"), 404, body, {})
    assert type(error) is errors.NotFound
    assert "subresources: {status: {}}" in str(error)
    assert "subresource" not in str(explain(Target("patch", "example.com", "widgets", "n", "a"), 404, body, {}))


@pytest.mark.parametrize("body", [b'{"error":"upstream connect error"}', b'{"code":413,"detail":"too big"}', b"[]"])
def test_json_that_is_no_status_is_quoted(body: bytes) -> None:
    error = explain(Target("list", "", "pods"), 502, body, {})
    assert str(error) == f"list pods: 502 without reason: {body.decode()}"


def test_the_pause_that_is_asked_for_is_read_from_header_and_body() -> None:
    body = b'{"kind":"Status","message":"slow","details":{"retryAfterSeconds":4}}'
    target = Target("list", "", "pods")
    assert explain(target, 429, body, {}).retry_after_seconds == 4
    assert explain(target, 429, body, {"Retry-After": "2"}).retry_after_seconds == 2
    assert explain(target, 429, b"", {"Retry-After": "soon"}).retry_after_seconds is None


@pytest.mark.parametrize("asked", ["inf", "-inf", "nan", "-1", "9" * 400, "Wed, 21 Oct 2015 07:28:00 GMT", ""])
def test_a_pause_without_an_end_is_none(asked: str) -> None:
    """A load balancer may answer for the API server, and a pause that never ends would stop whoever obeys it."""
    assert explain(Target("list", "", "pods"), 503, b"", {"Retry-After": asked}).retry_after_seconds is None


def test_a_pause_that_lies_before_now_is_none_in_a_body_either() -> None:
    body = b'{"kind":"Status","message":"slow","details":{"retryAfterSeconds":-4}}'
    assert explain(Target("list", "", "pods"), 429, body, {}).retry_after_seconds is None


async def test_the_systems_clock_goes_forward() -> None:
    clock = SystemClock()
    before = clock.monotonic()
    await clock.sleep(-1)
    await clock.sleep(0.001)
    assert clock.monotonic() > before
    assert clock.now().tzinfo is UTC


def test_importing_the_client_does_not_import_what_is_not_needed() -> None:
    code = (
        "import sys, shardsdk.kube.client, shardsdk.kube.reflector, shardsdk.kube.access;"
        "print([name for name in ('kubernetes', 'pydantic', 'yaml') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"

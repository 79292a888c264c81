"""What an API server says of a refusal: without the object, with the reason, and for good where it is so."""

from __future__ import annotations

import json

import pytest

from shardsdk.errors import (
    ApiError,
    BadRequest,
    Conflict,
    FieldConflict,
    Forbidden,
    Invalid,
    ServerError,
    may_be_executed,
)
from shardsdk.kube.answers import MESSAGE_MAX_CHARACTERS, SAID_MAX_CHARACTERS, Status, Target, explain, explain_status

PATCH = Target("patch", resource="secrets", namespace="n", name="s")
SECRET = {"data": {"p": "aHVudGVyMg==", "q": 'not "base64\\'}, "kind": "Secret", "metadata": {"labels": {"a": "{}"}}}
#: As Go's %q writes it.
QUOTED = json.dumps(json.dumps(SECRET, separators=(",", ":")))
UNTYPED = "failed to create typed patch object (n/s; /v1, Kind=Secret): "


def explained(message: str, code: int = 422, reason: str = "Invalid") -> ApiError:
    return explain_status(PATCH, Status(code, reason, message))


@pytest.mark.parametrize(
    "reason",
    [
        "illegal base64 data at input byte 3",
        "json: cannot unmarshal number into Go struct field Secret.data of type []uint8",
        'strict decoding error: unknown field "dota"',
    ],
)
def test_an_object_that_a_patch_would_make_is_not_repeated_and_the_reason_is(reason: str) -> None:
    error = explained(f' "" is invalid: patch: Invalid value: {QUOTED}: {reason}')
    assert error.said == f' "" is invalid: patch: Invalid value: (the object): {reason}'
    assert str(error) == f"patch secrets n/s: 422 Invalid: {error.said}"


def test_nor_is_a_strategic_merge_patch() -> None:
    error = explained('  "" is invalid: patch: Invalid value: "map[data:map[p:hunter2 q:\\"]]": illegal base64 data')
    assert error.said == '  "" is invalid: patch: Invalid value: (the object): illegal base64 data'


def test_an_object_that_has_lost_its_end_is_not_repeated_either() -> None:
    assert explained(f"patch: Invalid value: {QUOTED[:50]}").said == "patch: Invalid value: (the object)"


@pytest.mark.parametrize(
    "value",
    [
        '&value.valueUnstructured{Value:map[string]interface {}{"token":"hunter2"}}',
        "&{hunter2\nhunter2}",
        "&{[hunter2]}",
    ],
)
def test_a_value_that_does_not_fit_a_schema_is_not_repeated(value: str) -> None:
    one = explained(f"{UNTYPED}.data.q: expected string, got {value}", 500, "")
    assert one.said == f"{UNTYPED}.data.q: expected string, got another value"
    wrong = f"  .data.q: expected string, got {value}\n  .dota: field not declared in schema"
    several = explained(f"{UNTYPED}errors:\n{wrong}", 500, "")
    assert str(several).endswith("  .data.q: expected string, got another value\n  .dota: field not declared in schema")


@pytest.mark.parametrize(
    "said",
    [
        'Secret "s" is invalid: type: Invalid value: "foo": field is immutable',
        'Deployment.apps "d" is invalid: spec.selector: Invalid value: {"matchLabels":{"a":"c"}}: field is immutable',
        'Secret "s" is invalid: data[a/b]: Invalid value: "a/b": a valid config key must consist of',
    ],
)
def test_a_single_value_is_repeated(said: str) -> None:
    assert said in str(explained(said))


def test_a_long_message_is_cut_in_the_middle_and_its_reason_stands_last() -> None:
    long = f"spec.selector: Invalid value: {{{'x' * 5_000}}}: field is immutable"
    error = explained(long)
    assert error.said == long
    assert len(str(error)) < MESSAGE_MAX_CHARACTERS + 100
    assert str(error).startswith("patch secrets n/s: 422 Invalid: spec.selector: Invalid value: {xxx")
    assert str(error).endswith("xxx}: field is immutable")
    assert " […] " in str(error)


def test_what_an_error_carries_of_it_is_bounded() -> None:
    error = explained(f"begin{'x' * 3_000_000}end")
    assert SAID_MAX_CHARACTERS < len(error.said) < SAID_MAX_CHARACTERS + 10
    assert error.said.startswith("beginx")
    assert error.said.endswith("xend")


def test_what_the_api_server_said_is_the_message_where_it_said_nothing_else() -> None:
    assert Conflict("because").said == "because"
    assert (ApiError.said, Conflict("a", said="b").said) == ("", "b")


@pytest.mark.parametrize(
    "said",
    [
        f"{UNTYPED}.dota: field not declared in schema",
        "failed to convert new object (/z; /v1, Kind=Secret) to proper version: unable to convert unstructured object",
        "failed to convert new object (/z; a.b/v1, Kind=Z) to proper version: conversion webhook for a.b failed: EOF",
    ],
)
def test_an_apply_that_does_not_fit_is_refused_and_was_not_executed(said: str) -> None:
    error = explained(said, 500, "")
    assert type(error) is BadRequest
    assert not may_be_executed(error)


@pytest.mark.parametrize(
    "said",
    [
        "failed to convert live object (n/s; example.com/v1, Kind=Bag) to proper version: conversion webhook failed",
        f"Internal error occurred: {UNTYPED}",
        "failed to convert new object: it may be stored",
        "etcdserver: request timed out",
    ],
)
def test_another_500_may_have_been_executed(said: str) -> None:
    error = explained(said, 500, "")
    assert type(error) is ServerError
    assert may_be_executed(error)


def test_one_that_is_no_500_is_taken_by_its_code() -> None:
    assert type(explained(UNTYPED, 422)) is Invalid


@pytest.mark.parametrize(("cause", "namespace"), [("NamespaceTerminating", "n"), ("FieldValueInvalid", "")])
def test_of_a_namespace_that_is_being_deleted_it_is_said_which_one(cause: str, namespace: str) -> None:
    details = {"name": "s", "kind": "secrets", "causes": [{"reason": cause, "field": "metadata.namespace"}]}
    body = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no new content", "details": details}
    error = explain(Target("create", resource="secrets", namespace="n"), 403, json.dumps(body).encode(), {})
    assert isinstance(error, Forbidden)
    assert error.terminating == namespace


def test_fields_of_another_owner_are_no_newer_version() -> None:
    """As kube-apiserver 1.36 answers an apply without `force`."""
    cause = {"reason": "FieldManagerConflict", "message": 'conflict with "kubectl-create"', "field": ".data.n"}
    status = {"kind": "Status", "reason": "Conflict", "code": 409, "message": "Apply failed with 1 conflict"}
    refusal = explain(PATCH, 409, json.dumps({**status, "details": {"causes": [cause]}}).encode(), {})
    assert type(refusal) is FieldConflict
    assert type(explain(PATCH, 409, json.dumps(status).encode(), {})) is Conflict

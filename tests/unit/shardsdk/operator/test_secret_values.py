"""What is secret in an object that was returned by mistake comes into no message: those are Events, logs, answers."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from shardsdk import Context, Operator
from shardsdk.cache.objects import Request
from shardsdk.kinds import Secret
from shardsdk.kube.identity import describe_given
from shardsdk.kube.store import Store
from shardsdk.protocol.objects import ObjectMeta, PartialObject
from shardsdk.queueing.sources import as_request
from shardsdk.queueing.workers import checked
from shardsdk.testing import Rig, drive
from tests.unit.shardsdk.operator.websites import Website, publish, site

VALUE = "s3cret"
SECRET = Secret(ObjectMeta(name="login", namespace="default"), data={"password": VALUE.encode()})
GIVEN = [VALUE, VALUE.encode(), [VALUE], {"password": VALUE}, SECRET, [SECRET], (VALUE,)]


@pytest.mark.parametrize("given", GIVEN)
def test_what_a_function_returns_is_told_by_its_type(given: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    operator = Operator("websites")
    website = operator.reconcile(Website)(lambda ctx: given)
    website.finalize(lambda ctx: given)

    async def story(rig: Rig) -> None:
        rig.delete(Website, "home")
        await rig.settle()

    rig = drive(operator, [site()], story, raises=False)
    assert any("the reconcile of" in str(each) for each in rig.failures)
    assert any("the clean-up of" in str(each) for each in rig.failures)
    assert VALUE not in f"{rig.failures} {rig.events} {caplog.text}"


@pytest.mark.parametrize("given", [given for given in GIVEN if not isinstance(given, list)])
def test_what_a_mapping_gives_is_told_by_its_type(given: Any, caplog: pytest.LogCaptureFixture) -> None:
    operator = Operator("websites")
    operator.reconcile(Website)(publish).watches(Secret, to=lambda secret: given if given == VALUE else [given])
    drive(operator, [site(), SECRET], raises=False)
    assert "TypeError" in caplog.text or isinstance(given, Secret)
    assert VALUE not in caplog.text


def test_so_is_what_other_functions_give() -> None:
    store = Store[Any]({"value": lambda thing: VALUE})
    for function in (
        lambda: store.put(Request("default", "login"), SECRET),
        lambda: checked({"password": VALUE}, "secrets"),
        lambda: as_request((VALUE, VALUE), "push takes a request"),
    ):
        with pytest.raises(TypeError) as raised:
            function()
        assert VALUE not in str(raised.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "None"),
        (False, "False"),
        (3, "3"),
        ("a", "a str"),
        (OSError("a"), "an OSError"),
        (ValueError, "the class ValueError"),
        (SECRET, "a Secret (default/login)"),
        (Secret(), "a Secret"),
        (PartialObject(metadata=ObjectMeta(name="a")), "a PartialObject (a)"),
    ],
)
def test_a_message_says_what_it_was(given: object, said: str) -> None:
    assert describe_given(given) == said


def returns_itself(ctx: Context[Secret]) -> Any:
    return ctx.object


def test_a_secret_that_is_returned_is_named() -> None:
    operator = Operator("secrets")
    operator.reconcile(Secret)(returns_itself)
    rig = drive(operator, [SECRET], raises=False)
    assert "returned a Secret (default/login), but Secret has no status" in str(rig.failures[0])

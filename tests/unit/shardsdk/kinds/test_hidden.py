"""Fields that are secret: no `repr` shows their values."""

from __future__ import annotations

from typing import Any

import pytest

from shardsdk import ConfigurationError, CustomResource, Model, ObjectMeta, PartialObject
from shardsdk.kinds import ConfigMap, Secret, body_of, generate
from shardsdk.protocol.objects import LAST_APPLIED

APPLIED = {LAST_APPLIED: '{"stringData": {"password": "s3cret"}}'}
META = ObjectMeta(name="login", namespace="default", annotations=APPLIED)
SECRET = Secret(META, data={"password": b"s3cret"}, string_data={"pin": "s3cret"}, type="Opaque")


class Login(Model, hidden=["password"]):
    """Who somebody is."""

    user: str
    password: str = ""


class Renewed(Login, hidden=["former"]):
    """And was."""

    former: list[str] = []


class Loud(Login):
    """With a text of its own."""

    def __repr__(self) -> str:
        return f"{self.user}!"


class Checked(Model, frozen=True, hidden=["password"]):
    """Of what has to be a text."""

    password: str = ""

    def __post_init__(self) -> None:
        self.password.encode()


class Session(CustomResource[Login], group="example.com", version="v1", hidden=["spec"]):
    """Of which nothing is shown."""


def test_a_secret_shows_its_keys() -> None:
    shown = f"Secret(metadata={META!r}, data={{'password': Ellipsis}}, string_data={{'pin': Ellipsis}}, type='Opaque')"
    assert repr(SECRET) == shown
    assert f"{[SECRET]}" == f"[{shown}]"
    many: Any = SECRET
    assert "s3cret" not in repr(dict(many.__rich_repr__()))
    assert repr(Secret()) == "Secret()"
    assert body_of(SECRET)["stringData"] == {"pin": "s3cret"}


def test_what_kubectl_has_applied_is_not_shown_of_any_object() -> None:
    assert repr(META) == f"ObjectMeta(name='login', namespace='default', annotations={{'{LAST_APPLIED}': '...'}})"
    for thing in (ConfigMap(META), PartialObject(META), META):
        shown: Any = thing
        assert "s3cret" not in f"{shown!r} {list(shown.__rich_repr__())}"
    other = ObjectMeta(name="a", annotations={"a": "b"})
    assert repr(other) == "ObjectMeta(name='a', annotations={'a': 'b'})"
    assert META.annotations == APPLIED


def test_a_class_of_ones_own_says_which_of_its_fields_are_hidden() -> None:
    assert repr(Login("ada", "s3cret")) == "Login(user='ada', password=Ellipsis)"
    assert repr(Login("ada")) == "Login(user='ada')"
    assert repr(Renewed("ada", "s3cret", ["s3cret"])) == "Renewed(user='ada', password=Ellipsis, former=Ellipsis)"
    assert "__repr__" not in vars(Renewed)
    assert repr(Loud("ada", "s3cret")) == "ada!"
    secret = Login("ada", "s3cret")
    assert (repr(secret), secret.password) == ("Login(user='ada', password=Ellipsis)", "s3cret")
    assert Login("ada", "s3cret") == Login("ada", "s3cret") != Login("ada", "other")


def test_so_does_a_class_that_looks_at_its_values_and_a_custom_resource() -> None:
    assert repr(Checked("s3cret")) == "Checked(password=Ellipsis)"
    assert repr(Session("a", Login("ada", "s3cret"))) == "Session(metadata=ObjectMeta(name='a'), spec=Ellipsis)"


def test_a_field_that_there_is_not_is_told() -> None:
    with pytest.raises(ConfigurationError, match="Misspelt has no field 'pasword' to be hidden; it has password"):

        class Misspelt(Model, hidden=["pasword"]):
            """Would show it."""

            password: str = ""

    with pytest.raises(ConfigurationError, match=r"Single: hidden is a list of fields; write hidden=\['password'\]"):

        class Single(Model, hidden="password"):
            """Would be taken for letters."""

            password: str = ""


def test_a_generated_secret_hides_what_it_holds() -> None:
    named = {"group": "", "version": "v1", "kind": "Secret"}
    entries = {"type": "object", "additionalProperties": {"type": "string", "format": "byte"}}
    document = {
        "components": {"schemas": {"io.Secret": {
            "type": "object", "x-kubernetes-group-version-kind": [named], "properties": {"data": entries},
        }}},
        "paths": {"/api/v1/namespaces/{namespace}/secrets/{name}": {
            "get": {"x-kubernetes-action": "get", "x-kubernetes-group-version-kind": named},
        }},
    }  # fmt: skip
    assert 'class Secret(Kind, kw_only=True, hidden=["data"]):' in generate([document], "", "v1")

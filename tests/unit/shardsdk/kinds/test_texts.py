"""Texts where a class has bytes are refused before they are sent: they would be taken for base64, and others stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import pydantic
import pytest

from shardsdk import ConfigurationError, Context, CustomResource, Model, Operator, Resource
from shardsdk.admission import Review
from shardsdk.kinds import ConfigMap, Kind, Secret, body_of, merge_patch_of
from shardsdk.testing import Rig, drive

#: Base64 of other bytes.
TEXT: Any = "deadbeef"
SENT = "ZGVhZGJlZWY="


@dataclass
class Plain:
    """A dataclass."""

    key: bytes


class Foreign(pydantic.BaseModel):
    """Of pydantic, which has its own words for bytes."""

    key: bytes = b""


class Bundle(Model):
    """Bytes wherever they may be."""

    ca_bundle: bytes | None = None
    described: Annotated[bytes, msgspec.Meta(description="as it is told")] = b""
    keys: dict[str, list[bytes]] = {}
    plain: tuple[Plain, ...] = ()
    inner: dict[str, Plain] = {}
    foreign: Foreign | None = None
    said: str = ""
    anything: Any = None


class Chest(CustomResource[Bundle, Bundle], group="example.com", version="v1"):
    """Has them in spec and status."""


class Raw(Kind):
    resource = Resource("example.com", "v1", "raws", "Raw")
    spec: Bundle = msgspec.field(default_factory=Bundle)


PLACES: dict[str, Bundle] = {
    "spec.caBundle": Bundle(TEXT),
    "spec.described": Bundle(described=TEXT),
    r"spec.keys.a\[\]": Bundle(keys={"a": [b"x", TEXT]}),
    r"spec.plain\[\].key": Bundle(plain=(Plain(TEXT),)),
    "spec.inner.a.key": Bundle(inner={"a": Plain(TEXT)}),
}


DECODED = r"base64\.b64decode\(text\)"


@pytest.mark.parametrize(("place", "spec"), PLACES.items(), ids=PLACES)
def test_a_text_is_refused_with_its_place_and_not_its_words(place: str, spec: Bundle) -> None:
    for thing in (Chest("a", spec), Raw("a", spec)):
        with pytest.raises(
            ConfigurationError,
            match=rf"^{place} of \w+ is a str.* write bytes, .*encode\(\), or, if it is base64 already, {DECODED}$",
        ) as raised:
            body_of(thing)
        assert TEXT not in str(raised.value)
    with pytest.raises(ConfigurationError, match=rf"^{place.removeprefix('spec.')} of Bundle is a str"):
        merge_patch_of(spec)


def test_of_a_secret_it_says_where_texts_belong() -> None:
    with pytest.raises(ConfigurationError, match=rf"^data\.token of Secret .* or use string_data=, or, .* {DECODED}$"):
        body_of(Secret("a", data={"token": TEXT}))
    with pytest.raises(ConfigurationError, match=r"^binaryData\.logo of ConfigMap is a str, .*encode\(\), or, if"):
        body_of(ConfigMap("a", binary_data={"logo": TEXT}))


def test_bytes_and_texts_where_they_belong_are_sent() -> None:
    foreign = Foreign(key=b"x")
    spec = Bundle(b"deadbeef", b"x", {"a": [b"x"]}, (Plain(b"x"),), {"a": Plain(b"x")}, foreign, TEXT)
    assert body_of(Chest("a", spec))["spec"]["caBundle"] == SENT
    assert body_of(Secret("a", data={"token": b"deadbeef"}, string_data={"pin": TEXT}))["data"] == {"token": SENT}
    assert body_of(ConfigMap("a", data={"a": TEXT}))["data"] == {"a": TEXT}
    as_on_the_wire: Any = {"caBundle": SENT, "plain": [{"key": SENT}]}
    assert body_of(Chest("a", as_on_the_wire))["spec"] == as_on_the_wire
    assert body_of(Chest("a", Bundle(anything={"caBundle": SENT})))["spec"] == {"anything": {"caBundle": SENT}}


def told(function: Callable[[Context[Chest]], Any]) -> list[str]:
    """What fails of a reconcile."""
    operator = Operator("chests")
    operator.reconcile(Chest, owns=[Secret])(function)
    return [str(each) for each in drive(operator, [Chest("a", Bundle(b"x"))], raises=False).failures]


def test_so_it_is_in_a_rig() -> None:
    async def applying(ctx: Context[Chest]) -> None:
        await ctx.apply(Secret(data={"token": TEXT}))

    (failure,) = set(told(applying))
    assert "data.token of Secret is a str" in failure


def test_so_it_is_in_a_status() -> None:
    def measuring(ctx: Context[Chest]) -> Bundle:
        return Bundle(TEXT)

    (failure,) = set(told(measuring))
    assert "caBundle of Bundle is a str" in failure


def test_what_was_read_is_sent_back() -> None:
    def as_it_was(ctx: Context[Chest]) -> Bundle:
        return ctx.object.spec

    assert told(as_it_was) == []


def test_so_it_is_in_a_mutation() -> None:
    operator = Operator("chests")

    @operator.mutate(Secret)
    def fill_in(review: Review[Secret]) -> None:
        review.object.data = {**review.object.data, "added": TEXT if review.name == "changed" else b"deadbeef"}

    async def story(rig: Rig) -> None:
        rig.create(Secret("kept", data={"token": b"x"}))
        with pytest.raises(Exception, match=r"data\.added of Secret is a str"):
            rig.create(Secret("changed", data={"token": b"x"}))

    rig = drive(operator, [], story)
    assert rig.get(Secret, "kept").data == {"token": b"x", "added": b"deadbeef"}

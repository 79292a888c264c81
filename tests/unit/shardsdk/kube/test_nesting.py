"""One object that is nested deeper than can be decoded keeps nobody from the others."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import msgspec
import pytest

from shardsdk.kinds import Kind
from shardsdk.kube import decoding
from shardsdk.kube.answers import Target
from shardsdk.kube.api import Unfit, WatchKind
from shardsdk.kube.decoding import codec_of, decode_large_page, decode_raw_page
from shardsdk.kube.nesting import CUT, DEPTH_MAX, TOO_DEEP, cut_nested
from shardsdk.protocol.objects import PartialObject, Resource

TARGET = Target("list", "example.com", "widgets")
#: API servers take ten thousand levels.
DEEP = b'{"f:a":' * 9000 + b"{}" + b"}" * 9000
META = b'"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"%s","managedFields":[{"fieldsV1":%s}]}'
HOSTILE = b"{" + META % (b"deep", DEEP) + b',"spec":' + DEEP + b"}"
OTHER = b"{" + META % (b"other", b"{}") + b',"spec":{"a":1}}'
PAGE = b'{"metadata":{"resourceVersion":"7"},"items":[' + HOSTILE + b"," + OTHER + b"]}"


class Widget(Kind):
    resource = Resource("example.com", "v1", "widgets", "Widget")
    spec: dict[str, object] = {}


def line(thing: bytes) -> bytes:
    return b'{"type":"MODIFIED","object":' + thing + b"}"


def test_metadata_is_read_of_an_object_whatever_is_in_it() -> None:
    codec = codec_of(PartialObject)
    assert [each.metadata.name for each in codec.decode_page(TARGET, PAGE).items or ()] == ["deep", "other"]
    assert codec.decode(TARGET, HOSTILE).metadata.name == "deep"
    event = codec.decode_line(TARGET, line(HOSTILE))
    assert event is not None
    assert (event.kind, event.object and event.object.metadata.name) == (WatchKind.MODIFIED, "deep")


@pytest.mark.parametrize("model", [Widget, dict, dict[str, Any]])
def test_who_would_read_what_is_too_deep_goes_on_with_the_others(model: Any) -> None:
    codec, unfit = codec_of(model), list[Unfit]()
    page = codec.decode_page(TARGET, cut_nested(PAGE), unfit.append)
    assert len(page.items or ()) == 1
    assert [(each.metadata.name, each.error) for each in unfit] == [("deep", TOO_DEEP)]


@pytest.mark.parametrize("model", [Widget, dict, dict[str, Any]])
def test_it_ends_nobody(model: Any) -> None:
    """Whether so many levels are too many is Python's matter: of some versions it is not."""
    codec = codec_of(model)
    assert len(codec.decode_page(TARGET, PAGE).items or ()) >= 1
    event = codec.decode_line(TARGET, line(HOSTILE))
    assert event is not None
    assert event.unfit is None or (event.unfit.metadata.name, event.unfit.error) == ("deep", TOO_DEEP)
    assert len(decode_raw_page(TARGET, PAGE).items or ()) == 2


async def test_nobody_waits_while_a_large_page_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    others_ran = threading.Event()

    def cut(text: bytes) -> bytes:
        assert others_ran.wait(10)
        return cut_nested(text)

    monkeypatch.setattr(decoding, "cut_nested", cut)
    asyncio.get_running_loop().call_later(0.01, others_ran.set)
    assert len((await decode_large_page(TARGET, PAGE)).items or ()) == 2


def test_a_text_that_looks_like_what_is_cut_is_a_text() -> None:
    said = b'{"metadata":{"name":"a","namespace":null,"annotations":{"a":"%s"}},"spec":%s}'
    assert codec_of(Widget).read(said % (CUT, b"{}")).metadata.name == "a"
    with pytest.raises(msgspec.ValidationError, match=TOO_DEEP):
        codec_of(Widget).read(said % (b"", b'{"a":' + CUT + b"}"))


def test_a_field_of_any_type_holds_whatever_there_is() -> None:
    widget = codec_of(Widget).decode(TARGET, b'{"metadata":{"name":"a"},"spec":{"a":[1,{"b":null}]}}')
    assert widget.spec == {"a": [1, {"b": None}]}


def test_what_is_not_too_deep_stays_as_it_is() -> None:
    text = json.dumps({"a": ['"[{\\', {"b": "]" * 3 * DEPTH_MAX, "c": "[" * 3 * DEPTH_MAX}]}).encode()
    assert cut_nested(text) == text
    most = b"[" * DEPTH_MAX + b"]" * DEPTH_MAX
    assert cut_nested(most) == most
    assert cut_nested(b"[" + most + b"," + most + b"]").count(CUT) == 2
    for broken in (b"[" * 2 * DEPTH_MAX, b"]" * 2 * DEPTH_MAX, b'"' + b"[" * 2 * DEPTH_MAX):
        with pytest.raises(msgspec.DecodeError):
            msgspec.json.decode(cut_nested(broken))

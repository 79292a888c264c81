"""What an API server warns of is in the log: once, with the request that it is about."""

from __future__ import annotations

import logging

import pytest

from shardsdk.kube import warnings
from shardsdk.kube.answers import Target
from shardsdk.kube.warnings import Warnings
from shardsdk.protocol.objects import Resource
from tests.kube_server import config_map, says, talking

CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")
PRUNED = '299 - "unknown field \\"status.redy\\""'


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(vars(each)["request"], vars(each)["warning"]) for each in caplog.records if "warning" in vars(each)]


async def test_a_field_that_was_dropped_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    async with talking(says(config_map("a"), Warning=PRUNED)) as (client, _):
        for name in ("a", "b"):
            await client.patch(CONFIGMAPS, name, "default", {"status": {"redy": True}}, subresource="status")
    assert told(caplog) == [("patch configmaps/status default/a", 'unknown field "status.redy"')]


async def test_what_can_do_nothing_about_warnings_is_spared_them(caplog: pytest.LogCaptureFixture) -> None:
    async with talking(says(config_map("a"), Warning=PRUNED), heed_warnings=False) as (client, _):
        await client.patch(CONFIGMAPS, "a", "default", {"status": {"redy": True}}, subresource="status")
    assert told(caplog) == []


def test_another_warning_and_another_kind_of_request_are_told_as_well(caplog: pytest.LogCaptureFixture) -> None:
    heard = Warnings()
    heard.tell(Target("list", "flow", "schemas"), ['299 - "v1beta1 goes", 299 - "use v1"'])
    heard.tell(Target("watch", "flow", "schemas"), ['299 - "use v1"'])
    heard.tell(Target("watch", "flow", "schemas"), ['110 - "stale"', "299 -", '299 - ""', "nonsense"])
    assert told(caplog) == [
        ("list schemas.flow", "v1beta1 goes"),
        ("list schemas.flow", "use v1"),
        ("watch schemas.flow", "use v1"),
    ]


def test_a_field_that_every_entry_of_a_list_has_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    heard, target = Warnings(), Target("patch", "", "configmaps")
    for at in (0, 17, 18):
        heard.tell(target, [f'299 - "unknown field \\"spec.ranges[{at}].{name}\\""' for name in ("from", "to")])
    names = ("from", "to")
    assert [text for _, text in told(caplog)] == [f'unknown field "spec.ranges[0].{name}"' for name in names]


def test_what_is_remembered_has_a_limit(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warnings, "MAX_REMEMBERED", 2)
    caplog.set_level(logging.WARNING)
    heard, target = Warnings(), Target("list", "", "pods")
    for text in ("one", "two", "two", "three", "one"):
        heard.tell(target, [f'299 - "{text}"'])
    assert [text for _, text in told(caplog)] == ["one", "two", "three", "one"]

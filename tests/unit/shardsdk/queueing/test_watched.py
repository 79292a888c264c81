"""What a mapping may give, and what becomes of a change for which it gives something else."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from shardsdk import ConfigurationError, controller_for
from shardsdk.cache.cache import Cache
from shardsdk.cache.objects import Request
from shardsdk.kube.reflector import Delta, EventKind
from shardsdk.protocol.objects import ObjectMeta, PartialObject
from shardsdk.queueing.sources import Watched
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock
from tests.shard_rig import CONFIGMAPS, SECRETS

HOME = Request("default", "home")


def found(given: Any) -> list[Request]:
    """The requests of a change for which a mapping gives this."""
    clock = VirtualClock()
    cache: Cache[Any] = Cache(MemoryApi(MemoryServer(), clock), CONFIGMAPS, clock=clock, rng=Random(1))
    thing = PartialObject(ObjectMeta(name="any", namespace="default"))
    return Watched(cache, lambda _: given).requests(Delta(EventKind.ADDED, thing, None, initial=False))


def test_requests_are_given_on_each_once(caplog: pytest.LogCaptureFixture) -> None:
    assert found([HOME, HOME, Request("", "node")]) == [HOME, Request("", "node")]
    assert found(()) == []
    assert caplog.records == []


@pytest.mark.parametrize("wrong", ["home", [("default", "home")], ["home"], [None], None])
def test_what_names_no_object_is_told(wrong: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert found(wrong) == []
    (line,) = caplog.records
    assert line.msg == "A mapping raised"
    assert line.__dict__["object"] == "any"


def test_a_mapping_that_nobody_would_await_is_refused() -> None:
    async def mapping(_: object) -> list[Request]:
        return []

    with pytest.raises(ConfigurationError, match="plain function"):
        controller_for(SECRETS).watches(CONFIGMAPS, mapping)  # type: ignore[arg-type]

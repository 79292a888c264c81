"""Which requests share connections."""

from __future__ import annotations

import pytest

from shardsdk.kube.answers import Target
from shardsdk.kube.sessions import Call, Lane
from shardsdk.protocol.objects import LEASES


@pytest.mark.parametrize(
    ("call", "lane"),
    [
        (Call(Target("list", "", "secrets"), "GET", "/"), Lane.READS),
        (Call(Target("list", "", "secrets"), "GET", "/", page=True), Lane.PAGES),
        (Call(Target("patch", "", "secrets"), "PATCH", "/", fences=()), Lane.WRITES),
        (Call(Target("list", LEASES.group, LEASES.plural), "GET", "/", page=True), Lane.LEASES),
    ],
)
def test_pages_have_connections_of_their_own_and_leases_always_have(call: Call, lane: Lane) -> None:
    assert call.lane is lane

"""The webhook's own limits lie within the time that API servers wait for it: nobody's request waits for more."""

from __future__ import annotations

import pytest

from sharder.webhook.app import Limits


@pytest.mark.parametrize(("timeout_seconds", "body", "owner"), [(1.0, 1.0, 0.5), (3.0, 3.0, 1.5), (30.0, 5.0, 2.0)])
def test_it_waits_no_longer_than_api_servers_do(timeout_seconds: float, body: float, owner: float) -> None:
    limits = Limits.within(timeout_seconds)
    assert (limits.body_seconds, limits.owner_seconds) == (body, owner)

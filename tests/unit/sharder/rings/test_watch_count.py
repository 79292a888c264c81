"""The watches of all rings of a leader, counted as each ring has its turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import pytest

from sharder.cache.rings import RingCache
from sharder.core.streams import OWN_STREAMS
from sharder.rings.watch_count import WatchCount
from shardsdk.kube.sessions import CONNECTIONS, Lane

ROOM = 10


@dataclass(frozen=True)
class Ring:
    """Whatever it lists is not known yet: only what it has beside counts."""

    name: str
    resolved: None = None


class Rings:
    """Those that there are."""

    def __init__(self, *names: str) -> None:
        self.rings = [Ring(name) for name in names]

    def all(self) -> list[Ring]:
        return self.rings


@pytest.fixture(autouse=True)
def _room_for_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CONNECTIONS, Lane.STREAMS, OWN_STREAMS + ROOM)


def test_what_one_ring_has_beside_counts_for_the_others() -> None:
    count = WatchCount(cast(RingCache, Rings("one", "two")))
    assert count.judge("one", ROOM) is None
    assert f"take {OWN_STREAMS + ROOM + 1} watches" in str(count.judge("two", 1))


def test_what_a_ring_had_that_is_deleted_counts_no_longer() -> None:
    rings = Rings("one", "two")
    count = WatchCount(cast(RingCache, rings))
    count.judge("one", ROOM)
    rings.rings.pop(0)
    assert count.judge("two", ROOM) is None

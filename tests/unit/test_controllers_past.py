"""What a leader remembers of owners: forgetting is always safe, remembering wrongly never happens."""

from __future__ import annotations

import pytest

from sharder.controllers import past
from sharder.controllers.past import Past


def test_a_group_that_went_elsewhere_goes_where_it_went_last() -> None:
    memory = Past()
    assert memory.target("a") is None
    memory.began("a", "two")
    memory.began("a", "three")
    assert memory.target("a") == "three"
    memory.ended("a")
    assert memory.target("a") is None


def test_what_is_forgotten_counts_as_never_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "MAX_REMEMBERED", 2)
    memory = Past()
    for uid in ("a", "b", "c"):
        memory.began(uid, "two")
    assert [memory.target(uid) for uid in ("a", "b", "c")] == [None, "two", "two"]


def test_a_doubt_stays_until_the_owner_was_read() -> None:
    memory = Past()
    memory.doubt("a")
    assert memory.is_doubtful("a")
    assert memory.is_doubtful("a")
    memory.clear_doubt("a")
    assert not memory.is_doubtful("a")

"""What a leader remembers of owners: forgetting is always safe, remembering wrongly never happens."""

from __future__ import annotations

import pytest

from sharder.controllers import past
from sharder.controllers.past import Past


def test_children_are_where_the_owner_was_asked_to_go_from() -> None:
    memory = Past()
    assert memory.source("a") is None
    memory.drained("a", "one")
    memory.began("a", "two")
    assert (memory.source("a"), memory.target("a")) == ("one", "two")
    memory.ended("a")
    assert (memory.source("a"), memory.target("a")) == (None, None)


def test_a_group_that_went_elsewhere_before_may_have_children_anywhere() -> None:
    memory = Past()
    memory.drained("a", "one")
    memory.began("a", "two")
    memory.began("a", "two")
    assert memory.source("a") == "one"
    memory.began("a", "three")
    assert memory.source("a") is None


def test_a_target_that_is_forgotten_takes_the_source_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "MAX_REMEMBERED", 2)
    memory = Past()
    for uid in ("a", "b"):
        memory.drained(uid, "one")
        memory.began(uid, "two")
    memory.began("c", "two")
    assert (memory.source("a"), memory.target("a")) == (None, None)
    assert (memory.source("b"), memory.target("b")) == ("one", "two")


def test_a_doubt_is_cleared_by_who_asks() -> None:
    memory = Past()
    memory.doubt("a")
    assert memory.take_doubt("a")
    assert not memory.take_doubt("a")

"""What a leader remembers of owners: forgetting is always safe, remembering wrongly never happens."""

from __future__ import annotations

import pytest

from sharder.placement import expectations
from sharder.placement.expectations import Expectations
from shardsdk.protocol.objects import SlimMeta


def test_a_group_that_went_elsewhere_goes_where_it_went_last() -> None:
    memory = Expectations()
    assert memory.target("a") is None
    memory.began("a", "two")
    memory.began("a", "three")
    assert memory.target("a") == "three"
    memory.ended("a")
    assert memory.target("a") is None


def test_what_is_forgotten_counts_as_never_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expectations, "MAX_REMEMBERED", 2)
    memory = Expectations()
    for uid in ("a", "b", "c"):
        memory.began(uid, "two")
    assert [memory.target(uid) for uid in ("a", "b", "c")] == [None, "two", "two"]


def test_a_doubt_stays_until_the_owner_was_read() -> None:
    memory = Expectations()
    memory.note_unread("a")
    assert memory.is_unread("a")
    assert memory.is_unread("a")
    memory.note_read("a")
    assert not memory.is_unread("a")


def test_what_is_older_than_our_own_write_begins_no_group() -> None:
    """A watch shows it that lags; the children have moved since, and their new shard may work on them."""
    memory = Expectations()
    memory.wrote(SlimMeta(name="a", uid="a", resource_version="100"), now=10.0)
    assert memory.is_stale(SlimMeta(name="a", uid="a", resource_version="99"), now=10.1)
    assert memory.is_stale(SlimMeta(name="a", uid="a", resource_version="99"), now=9.9 + expectations.MAX_LAG_SECONDS)
    for version in ("100", "101"):
        assert not memory.is_stale(SlimMeta(name="a", uid="a", resource_version=version), now=10.1)
    assert not memory.is_unread("a")


def test_what_stays_older_than_our_own_write_is_read_before_it_begins_a_group() -> None:
    memory = Expectations()
    memory.wrote(SlimMeta(name="a", uid="a", resource_version="100"), now=10.0)
    assert not memory.is_stale(
        SlimMeta(name="a", uid="a", resource_version="99"), now=10.0 + expectations.MAX_LAG_SECONDS
    )
    assert memory.is_unread("a")

"""What a leader remembers of owners: what is forgotten is doubted, and nothing is remembered wrongly."""

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


def test_while_a_watch_may_be_behind_a_forgotten_write_owners_are_read_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its children went along with it, and a family begun by what was before would take them back."""
    monkeypatch.setattr(expectations, "MAX_REMEMBERED", 1)
    memory = Expectations()
    memory.wrote(SlimMeta(name="a", uid="a", resource_version="100"), now=10.0)
    assert not memory.is_stale(SlimMeta(name="c", uid="c", resource_version="1"), now=10.1)
    assert not memory.is_unread("c"), "nothing was forgotten yet"
    memory.wrote(SlimMeta(name="b", uid="b", resource_version="101"), now=11.0)
    assert not memory.is_stale(SlimMeta(name="a", uid="a", resource_version="99"), now=12.0)
    assert memory.is_unread("a")
    memory.note_read("a")
    memory.is_stale(SlimMeta(name="a", uid="a", resource_version="99"), now=10.0 + expectations.MAX_LAG_SECONDS)
    assert not memory.is_unread("a"), "no watch is as far behind any more"


def test_what_stays_older_than_our_own_write_is_read_before_it_begins_a_group() -> None:
    memory = Expectations()
    memory.wrote(SlimMeta(name="a", uid="a", resource_version="100"), now=10.0)
    assert not memory.is_stale(
        SlimMeta(name="a", uid="a", resource_version="99"), now=10.0 + expectations.MAX_LAG_SECONDS
    )
    assert memory.is_unread("a")

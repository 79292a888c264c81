"""What is remembered of leases, by the names of their shards."""

from __future__ import annotations

import pytest

from sharder.takeover.records import Records
from shardsdk.testing.virtual import VirtualClock


@pytest.mark.parametrize("asked", ["", "one", "two"])
def test_a_lease_that_was_made_a_moment_ago_is_on_its_way_into_the_cache_until_it_is_forgotten(asked: str) -> None:
    records = Records(VirtualClock())
    made, other = records.of(("one", "shard")), records.of(("one", "another"))
    for record in (made, other):
        record.held, record.wrote_at = True, 10.0
    records.of(("", "shard"))
    assert records.lags((asked, "shard"), None, 9.0) is (asked in ("", "one"))
    assert not records.lags((asked, "shard"), None, 11.0)
    assert not records.lags((asked, "nobody"), None, 9.0)
    records.forget(("one", "shard"))
    assert not records.lags((asked, "shard"), None, 9.0)
    assert records.lags(("", "another"), None, 9.0)


def test_nothing_is_kept_of_names_that_are_forgotten() -> None:
    records = Records(VirtualClock())
    for namespace in ("", "one"):
        records.of((namespace, "shard"))
    records.forget_all()
    assert not records._where


class Counted(dict[tuple[str, str], object]):
    """Nobody goes through all of them."""

    def items(self) -> object:  # type: ignore[override]
        raise AssertionError("with very many names, each look at one would go through all")


def test_a_look_at_one_name_goes_through_no_others() -> None:
    records = Records(VirtualClock())
    records._each = Counted()  # type: ignore[assignment]
    records.of(("one", "shard"))
    assert not records.lags(("", "shard"), None, 0.0)

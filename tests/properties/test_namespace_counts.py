"""Whatever counts do within a step, what a shard tells stays, so nothing is cut anew."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sharder.core.cutting import cut
from shardsdk.protocol.ranges import (
    EVERYWHERE,
    NAMESPACE_COUNTS_ANNOTATION,
    HashBy,
    Named,
    read_counts,
)
from shardsdk.ranges.counts import NamespaceCounts

COUNTS = st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.integers(8, 200), min_size=1, max_size=12)


@given(COUNTS, st.lists(st.floats(0.86, 1.18), max_size=8), st.integers(1, 5))
def test_counts_that_fluctuate_move_nothing(counts: dict[str, int], factors: list[float], size: int) -> None:
    shards = [f"s{number}" for number in range(size)]
    told = NamespaceCounts()
    told.count([], EVERYWHERE)

    def tell(by: float) -> str:
        there = {name: each + int(each * (by - 1)) for name, each in counts.items()}
        return told.count((name for name, each in there.items() for _ in range(each)), EVERYWHERE)

    def cut_by(named: Named, text: str) -> Named:
        return cut(named, shards, read_counts({NAMESPACE_COUNTS_ANNOTATION: text}))

    first = tell(1.0)
    named = cut_by(Named(HashBy.NAMESPACE, {}), first)
    for by in factors:
        text = tell(by)
        assert text == first
        assert cut_by(named, text) == named

"""Whatever is named, wanted and held: what the sharder writes next takes nothing from anybody who may work on it.

The tests draw cells of a small space instead of ranges, so that sets of cells say what ranges mean.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sharder.core.ranges import granted, holdings, next_named, rebuilt, revoked
from shardsdk.protocol.leases import Lease, LeaseSpec
from shardsdk.protocol.objects import ObjectMeta
from shardsdk.protocol.ranges import HELD_RANGES_ANNOTATION, NOWHERE, SPACE, HashBy, HashRanges, Named

CELLS = 8
WIDTH = SPACE // CELLS
SHARDS = ("a", "b", "c")

owners = st.lists(st.sampled_from([*SHARDS, None]), min_size=CELLS, max_size=CELLS)
holders = st.fixed_dictionaries({name: st.sets(st.integers(0, CELLS - 1)) for name in SHARDS})


def ranges(cells: set[int]) -> HashRanges:
    return HashRanges.of(*((cell * WIDTH, (cell + 1) * WIDTH) for cell in cells))


def cells(part: HashRanges) -> set[int]:
    return {cell for cell in range(CELLS) if cell * WIDTH in part}


def named(owner: list[str | None]) -> Named:
    whole = {name: ranges({cell for cell in range(CELLS) if owner[cell] == name}) for name in SHARDS}
    return Named(HashBy.UID, {name: part for name, part in whole.items() if part})


@given(owners, owners, holders)
def test_each_cell_is_kept_revoked_granted_or_waits(
    now: list[str | None], then: list[str | None], held: dict[str, set[int]]
) -> None:
    before, wanted = named(now), named(then)
    after = next_named(before, wanted, {name: ranges(theirs) for name, theirs in held.items()})
    for cell in range(CELLS):
        owner = after.shard_at(cell * WIDTH)
        if now[cell] is not None:
            # Nobody is named in place of another in one write, and who shall keep it keeps it.
            assert owner == (now[cell] if now[cell] == then[cell] else None)
        elif then[cell] is None or any(cell in theirs for name, theirs in held.items() if name != then[cell]):
            assert owner is None
        else:
            assert owner == then[cell]


@given(owners, owners, holders)
def test_what_is_told_is_what_is_written(
    now: list[str | None], then: list[str | None], held: dict[str, set[int]]
) -> None:
    before, wanted = named(now), named(then)
    after = next_named(before, wanted, {name: ranges(theirs) for name, theirs in held.items()})
    lost, gained = cells(revoked(before, after)), cells(granted(before, after))
    assert not lost & gained
    for cell in range(CELLS):
        owner = after.shard_at(cell * WIDTH)
        assert (cell in lost) == (now[cell] is not None and owner is None)
        assert (cell in gained) == (now[cell] is None and owner is not None)


@given(owners, owners)
def test_it_is_all_done_in_two_writes_once_everybody_lets_go(now: list[str | None], then: list[str | None]) -> None:
    wanted = named(then)
    first = next_named(named(now), wanted, {name: named(now).of(name) for name in SHARDS})
    # Each shard sees the first write, and holds what it is named for.
    second = next_named(first, wanted, {name: first.of(name) for name in SHARDS})
    assert second == wanted
    assert next_named(second, wanted, {name: second.of(name) for name in SHARDS}) == second


@given(holders)
def test_an_assignment_that_is_gone_is_rebuilt_from_what_is_held(held: dict[str, set[int]]) -> None:
    after = rebuilt(HashBy.UID, {name: ranges(theirs) for name, theirs in held.items()})
    for cell in range(CELLS):
        claims = [name for name, theirs in held.items() if cell in theirs]
        assert after.shard_at(cell * WIDTH) == (claims[0] if len(claims) == 1 else None)


@given(holders, st.sets(st.sampled_from(SHARDS)))
def test_what_nobody_knows_of_some_takes_nothing_from_those_that_say_what_they_hold(
    held: dict[str, set[int]], presumed: set[str]
) -> None:
    everything = set(range(CELLS))
    after = rebuilt(
        HashBy.UID,
        {name: ranges(everything if name in presumed else theirs) for name, theirs in held.items()},
        presumed,
    )
    for cell in range(CELLS):
        claims = [name for name, theirs in held.items() if name not in presumed and cell in theirs] or sorted(presumed)
        assert after.shard_at(cell * WIDTH) == (claims[0] if len(claims) == 1 else None)


def lease(name: str, holder: str, held: HashRanges, namespace: str = "default") -> Lease:
    annotations = {HELD_RANGES_ANNOTATION: str(held)}
    return Lease(ObjectMeta(name=name, namespace=namespace, annotations=annotations), LeaseSpec(holder_identity=holder))


def test_a_lease_holds_while_its_own_shard_holds_it() -> None:
    first, second = ranges({0, 1}), ranges({5})
    leases = [
        lease("a", "a", first),
        lease("a", "a", second, "elsewhere"),
        lease("b", "shardlease-controller", first),
        lease("c", "", second),
        lease("d", "d", NOWHERE),
    ]
    assert holdings(leases) == {"a": first | second, "d": NOWHERE}

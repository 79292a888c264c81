"""The ring is a function of the set of shards, frozen, balanced, and moves no more than it must."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh64_hexdigest, xxh64_intdigest

from sharder.core.hashring import TOKENS_PER_SHARD, HashRing

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "hashring.json").read_text())
KEYS = [f"/ConfigMap/namespace-{index % 7}/object-{index}" for index in range(2000)]

shard_names = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,20}[a-z0-9])?", fullmatch=True)
sets_of_shards = st.sets(shard_names, min_size=1, max_size=8)


def naive_owner(names: set[str], key: str, tokens: int) -> str:
    """What the ring means, written the slow way."""
    placed = sorted((xxh64_intdigest(f"{name}/{index}".encode()), name) for name in names for index in range(tokens))
    hashed = xxh64_intdigest(key.encode())
    return next((name for position, name in placed if position >= hashed), placed[0][1])


@pytest.mark.parametrize("ring", VECTORS["rings"], ids=lambda ring: f"{len(ring['shards'])} shards")
def test_recorded_keys_belong_to_their_recorded_shards_for_ever(ring: dict[str, Any]) -> None:
    built = HashRing(ring["shards"], ring["tokens"])
    assert ring["tokens"] == TOKENS_PER_SHARD
    assert {key: built.owner(key) for key in ring["owners"]} == ring["owners"]


def test_recorded_hashes_stay() -> None:
    assert {text: xxh64_hexdigest(text.encode()) for text in VECTORS["hashes"]} == VECTORS["hashes"]


@given(sets_of_shards, st.text(max_size=40), st.sampled_from([1, 3, 16]))
@settings(max_examples=200)
def test_agrees_with_the_naive_ring(names: set[str], key: str, tokens: int) -> None:
    assert HashRing(names, tokens).owner(key) == naive_owner(names, key, tokens)


@given(st.lists(shard_names, min_size=1, max_size=6), st.randoms(use_true_random=False))
@settings(max_examples=30)
def test_order_and_repetition_of_names_do_not_matter(names: list[str], rng: Any) -> None:
    shuffled = names + names[:2]
    rng.shuffle(shuffled)
    first, second = HashRing(names, 64), HashRing(shuffled, 64)
    assert first == second
    assert hash(first) == hash(second)
    assert [first.owner(key) for key in KEYS[:200]] == [second.owner(key) for key in KEYS[:200]]


@given(st.sets(shard_names, min_size=2, max_size=6), st.data())
@settings(max_examples=30)
def test_when_a_shard_leaves_only_its_keys_move(names: set[str], data: st.DataObject) -> None:
    lost = data.draw(st.sampled_from(sorted(names)))
    before, after = HashRing(names, 64), HashRing(names - {lost}, 64)
    for key in KEYS[:300]:
        assert after.owner(key) == before.owner(key) or before.owner(key) == lost


@given(sets_of_shards, shard_names)
@settings(max_examples=30)
def test_when_a_shard_joins_keys_move_only_to_it(names: set[str], joined: str) -> None:
    before, after = HashRing(names, 64), HashRing(names | {joined}, 64)
    for key in KEYS[:300]:
        assert after.owner(key) == before.owner(key) or after.owner(key) == joined


@pytest.mark.parametrize(("shards", "bound"), [(2, 1.10), (3, 1.10), (10, 1.12), (50, 1.20)])
def test_the_fullest_shard_is_near_the_mean(shards: int, bound: float) -> None:
    # The part of the hash space that a shard owns, not a sample of keys.
    ring = HashRing(f"shard-{index}" for index in range(shards))
    shares: Counter[str] = Counter()
    hashes, owners = ring._places()
    previous = hashes[-1] - 2**64
    for position, owner in zip(hashes, owners, strict=True):
        shares[owner] += position - previous
        previous = position
    assert sum(shares.values()) == 2**64
    assert max(shares.values()) * shards / 2**64 < bound


def test_an_empty_ring_owns_nothing() -> None:
    assert HashRing(()).owner("/ConfigMap/default/a") is None
    assert len(HashRing(())) == 0


def test_of_equal_hashes_the_smaller_name_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sharder.core.hashring.xxh64_intdigest", lambda _: 7)
    ring = HashRing(["collide-b", "collide-a", "collide-c"], tokens=2)
    assert ring.owner("anything") == "collide-a"


def test_text_and_bytes_are_the_same_key() -> None:
    ring = HashRing(["a", "b", "c"])
    assert all(ring.owner(key) == ring.owner(key.encode()) for key in KEYS[:100])

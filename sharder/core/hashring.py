"""The hash ring: which shard a ring key belongs to.

Does: consistent hashing over xxHash64 tokens.  The ring is a function of the
*set* of names: when a shard leaves, only its keys move; when one joins, keys
move only to it.  Refuses: to know shards, leases or objects; it maps strings.

Hash, tokens and tie-break are frozen: changing them moves every object of every
ring (docs/decisions/0003, tests/vectors/hashring.json).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from xxhash import xxh64_intdigest

#: Tokens a shard has on the ring. Measured with many objects: the fullest shard holds 1.03 (3 shards), 1.05 (10),
#: 1.10 (50) times the mean; docs/concepts.md has it for fewer. 50 shards build in 40 ms, half of it when one joins.
TOKENS_PER_SHARD: Final = 1024
#: Shards whose tokens are remembered (8 KiB each), so that a join or leave hashes only the newcomer.  Of more all are
#: hashed each time: names that are asked for in turn push each other out.
CACHED_SHARDS: Final = 1024


class HashRing:
    """An immutable ring over shard names; equal when made of the same names and tokens."""

    __slots__ = ("_built", "names", "tokens")

    def __init__(self, names: Iterable[str], tokens: int = TOKENS_PER_SHARD) -> None:
        self.names: Final = frozenset(names)
        self.tokens: Final = tokens
        #: The tokens in order, and the shard of each; made when somebody asks for the first time, since leases come by
        #: the hundred, each makes another ring, and most of these nobody asks.
        self._built: tuple[array[int], list[str]] | None = None

    def owner(self, key: str | bytes) -> str | None:
        """The shard of `key`: that of the first token at or after its hash; `None` when the ring is empty."""
        hashes, owners = self._places()
        if not owners:
            return None
        position = bisect_left(hashes, xxh64_intdigest(key.encode() if isinstance(key, str) else key))
        return owners[position if position < len(owners) else 0]

    def _places(self) -> tuple[array[int], list[str]]:
        if self._built is None:
            self._built = _build(self.names, self.tokens)
        return self._built

    def __len__(self) -> int:
        return len(self.names)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HashRing) and (self.names, self.tokens) == (other.names, other.tokens)

    def __hash__(self) -> int:
        return hash((self.names, self.tokens))

    def __repr__(self) -> str:
        return f"HashRing({sorted(self.names)}, tokens={self.tokens})"


def _build(names: frozenset[str], tokens: int) -> tuple[array[int], list[str]]:
    by_hash: dict[int, str] = {}
    hashes: list[int] = []
    # Backwards, so that of two equal hashes the smaller name stays.
    for name in sorted(names, reverse=True):
        shard_hashes = _token_hashes(name, tokens)
        by_hash.update(dict.fromkeys(shard_hashes, name))
        hashes += shard_hashes
    # Sorting sorted runs is a merge. Equal hashes stay twice, with one owner.
    hashes.sort()
    ordered = array("Q", hashes)
    return ordered, [by_hash[value] for value in ordered]


@lru_cache(maxsize=CACHED_SHARDS)
def _token_hashes(name: str, tokens: int) -> array[int]:
    """Where the shard's tokens `<name>/<i>` lie on the ring, ascending."""
    prefix = f"{name}/".encode()
    return array("Q", sorted([xxh64_intdigest(prefix + index) for index in _decimals(tokens)]))


@lru_cache(maxsize=4)
def _decimals(count: int) -> tuple[bytes, ...]:
    return tuple(str(index).encode() for index in range(count))

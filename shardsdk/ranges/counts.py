"""How many objects lie in each namespace, as a shard tells the sharder, which cuts ranges evenly by it.

Guarantees (tests/unit/shardsdk/ranges/test_counts.py): of what was gained a moment ago
nothing is told, since its list may be under way; a count that hardly changes changes
nothing that is told, on whichever side of a step it lies; and a namespace that was told
of and is empty now is told to be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import log2
from typing import Final

from shardsdk.protocol.ranges import MAX_COUNTS, NOWHERE, HashRanges, point_of, render_counts

#: Between two counts; the wire contract has them told at most once a minute.
COUNT_SECONDS: Final = 60.0
#: A count is told anew once it is so many doublings away from what was told: a step of what is written.
_NOTABLE: Final = 0.25


class NamespaceCounts:
    """Of one shard, while it holds its lease; `count` every `COUNT_SECONDS`."""

    def __init__(self) -> None:
        self._told: dict[str, int] = {}
        self._worked = NOWHERE

    def count(self, namespaces: Iterable[str], working: HashRanges) -> str:
        """What the Lease is to say.

        `namespaces` has the namespace of each object, "" for one of none, and `working`
        is where the shard works; told is what it has worked on since the last count.
        """
        settled, self._worked = working & self._worked, working
        counts = {name: each for name, each in Counter(namespaces).items() if name and point_of(name) in settled}
        largest = sorted(self._told, key=lambda name: (-self._told[name], name))[:MAX_COUNTS]
        emptied = {name: 1 for name in largest if name not in counts and point_of(name) in settled}
        self._told = {name: self._steady(name, each) for name, each in (emptied | counts).items()}
        return render_counts(self._told)

    def _steady(self, name: str, count: int) -> int:
        told = self._told.get(name)
        return told if told is not None and abs(log2(count / told)) < _NOTABLE else count

"""How many objects lie in each namespace, as a shard tells the sharder, which cuts ranges evenly by it.

Guarantees (tests/unit/shardsdk/ranges/test_counts.py): of what was gained a moment ago
nothing is told, since its list may be under way; a count that hardly changes changes
nothing that is told, on whichever side of a step it lies; and a namespace that was told
of and is empty now, or has fewer objects, is told to be: before others, if not all go into
the Lease, since what was told last is believed until something else is.
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
        self._counts: dict[str, int] = {}
        #: What was told last of each namespace, also before the last count.
        self._told: dict[str, int] = {}
        self._worked = NOWHERE

    def count(self, namespaces: Iterable[str], working: HashRanges) -> str:
        """What the Lease is to say.

        `namespaces` has the namespace of each object, "" for one of none, and `working`
        is where the shard works; told is what it has worked on since the last count.
        """
        settled, self._worked = working & self._worked, working
        counts = {name: each for name, each in Counter(namespaces).items() if name and point_of(name) in settled}
        told = {name: each for name, each in self._told.items() if point_of(name) in settled}
        emptied = {name: 1 for name in told if name not in counts}
        self._counts = {name: self._steady(name, each) for name, each in (emptied | counts).items()}
        shrunk = {name: each for name, each in told.items() if self._counts[name] < each}
        order = sorted(self._counts, key=lambda name: (-shrunk.get(name, 0), -self._counts[name], name))
        telling = {name: self._counts[name] for name in order[:MAX_COUNTS]}
        # What is believed to be empty, and is not told any more, needs not be remembered.
        self._told = {name: each for name, each in (told | telling).items() if each > 1 or name in telling}
        return render_counts(telling)

    def _steady(self, name: str, count: int) -> int:
        before = self._counts.get(name)
        return before if before is not None and abs(log2(count / before)) < _NOTABLE else count

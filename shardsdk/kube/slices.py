"""Which part of a resource a reflector shows, by hash, where the API server may filter or may not.

    wanted ──list begins──> shown ──> not wanted any more: forgotten at once

The API server is asked for these ranges alone (`shardSelector`), and whatever it
answers is looked at again here: an older one ignores the wish without a word, and
so does one of several behind one address.

What is gained while a watch goes on is listed by itself, and the watch begins again
where it was, for all ranges: what it then tells of the gained ones is older than
their list up to that list's version, and is left out.  By uid, an object may have
been made again in a gained range under the name of one that was shown: what the
watch then tells of the former is past, and the mirror leaves it out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from shardsdk.kube.identity import Identity, identify
from shardsdk.kube.mirror import is_newer
from shardsdk.kube.selectors import Selector
from shardsdk.protocol.objects import SlimMeta
from shardsdk.protocol.ranges import NOWHERE, HashBy, HashRanges


class Slice:
    """The ranges of one reflector's objects, hashed `by` namespace or uid; none at first."""

    def __init__(self, by: HashBy) -> None:
        self.by: Final = by
        #: What is to be shown.
        self.wanted: HashRanges = NOWHERE
        #: What lists have shown, or are about to, and news is taken of.
        self.shown: HashRanges = NOWHERE
        #: Not `shown` yet, though the store may have some of it: a list beside the watch was begun.
        self.begun: HashRanges = NOWHERE
        #: What the API server was asked for.
        self.asked: HashRanges = NOWHERE
        #: Whether it sent anything else since; `None`: nothing was asked yet.
        self.filtered: bool | None = None
        #: What was listed beside the watch, and at which version.
        self._listed: list[tuple[HashRanges, str]] = []

    @property
    def missing(self) -> HashRanges:
        """What no list has shown yet."""
        return self.wanted - self.shown

    @property
    def lags(self) -> bool:
        """Whether something is shown, and something is missing."""
        return bool(self.shown and self.missing)

    def begin(self) -> None:
        """A list of all that is wanted begins."""
        self.shown, self.begun = self.wanted, NOWHERE
        self._listed.clear()

    def listed(self, ranges: HashRanges, version: str) -> None:
        """These were listed, beside the watch."""
        self.shown |= ranges & self.wanted
        self.begun -= ranges
        self._listed.append((ranges, version))

    def want(self, ranges: HashRanges) -> HashRanges:
        """From now on, show these alone; what is to be forgotten."""
        gone = (self.shown | self.begun) - ranges
        self.wanted = ranges
        self.shown &= ranges
        self.begun &= ranges
        self._listed = [(part & ranges, version) for part, version in self._listed if part & ranges]
        return gone

    def ask(self, selector: Selector, ranges: HashRanges) -> Selector:
        """`selector`, of these ranges alone.  Raises: ValueError for none."""
        self.asked = ranges
        self.filtered = True
        return replace(selector, shards=ranges.selector(self.by))

    def has(self, thing: object, ranges: HashRanges) -> bool:
        """Whether an object lies in these."""
        return self._point(identify(thing)) in ranges

    def takes(self, who: Identity, version: str) -> bool:
        """Whether an event at `version` is about an object that is shown, and newer than what was listed."""
        point = self._point(who)
        if point not in self.asked:
            self.filtered = False
        # News comes in order: once it is newer than the last list, none is older than any.
        if self._listed and is_newer(version, self._listed[-1][1]):
            self._listed.clear()
        return point in self.shown and all(
            point not in ranges or is_newer(version, listed) for ranges, listed in self._listed
        )

    def _point(self, who: Identity) -> int:
        return self.by.point(SlimMeta(namespace=who.namespace, uid=who.uid))

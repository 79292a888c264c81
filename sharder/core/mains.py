"""Which shards reconcile what as main: those that say so, and those that did when they went.

A shard that is restarted is away for some seconds, and is mostly the same program when it is back.
"""

from __future__ import annotations

import math
from typing import Final

from sharder.core.membership import Membership
from shardsdk.protocol.objects import GroupResource

#: For so long what a shard said last is taken for what it will say when it is back: a restart, also where an image has
#: to be fetched or a node to be found, takes less.
AWAY_SECONDS: Final = 300.0


class Mains:
    """What shards of one ring have said, as far as it has been seen."""

    def __init__(self) -> None:
        #: Until when it counts that a shard has said it; infinite while it says so.
        self._until: dict[tuple[GroupResource, str], float] = {}

    def see(self, membership: Membership, now: float) -> None:
        """This is the ring's newest membership; `now` is monotonic."""
        self._until |= dict.fromkeys(membership.as_main, math.inf)
        for said, until in [each for each in self._until.items() if each[0] not in membership.as_main]:
            _, shard = said
            if shard in membership.held or until <= now:
                del self._until[said]  # it is another program now, or is not expected any more
            elif until == math.inf:
                self._until[said] = now + AWAY_SECONDS

    def shards(self, resource: GroupResource, now: float) -> tuple[str, ...]:
        """The shards that reconcile `resource` as a main one, or did when they went, not long before `now`."""
        return tuple(sorted(shard for (each, shard), until in self._until.items() if each == resource and now < until))

"""Who this process is: which shard of which ring."""

from __future__ import annotations

from dataclasses import dataclass

from shardsdk.core.guard import Verdict, judge
from shardsdk.kube.selectors import Selector, equals, join
from shardsdk.protocol.labels import RingLabels
from shardsdk.runtime.objects import metadata_of


@dataclass(frozen=True, slots=True)
class ShardIdentity:
    """The shard called `shard` of a ring."""

    ring: RingLabels
    shard: str

    def judge(self, thing: object) -> Verdict:
        """What this shard does with an object."""
        return judge(metadata_of(thing).labels, self.ring, self.shard)

    def selector(self, own: Selector | None = None) -> Selector:
        """This shard's objects, of those that `own` selects."""
        mine = equals(self.ring.shard, self.shard)
        return Selector(mine) if own is None else Selector(join(mine, own.labels), own.fields)

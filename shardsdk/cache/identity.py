"""Which objects a shard works on: those that name it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shardsdk.cache.objects import metadata_of
from shardsdk.kube.selectors import Selector, absent, equals, join
from shardsdk.protocol.labels import RingLabels
from shardsdk.protocol.verdict import Verdict, judge


@dataclass(frozen=True, slots=True)
class ShardIdentity:
    """The shard called `shard` of a ring."""

    ring: RingLabels
    shard: str

    @property
    def labels(self) -> Mapping[str, str]:
        """What makes a child this shard's."""
        return {self.ring.shard: self.shard}

    def judge(self, thing: object) -> Verdict:
        """What this shard does with an object."""
        return judge(metadata_of(thing).labels, self.ring, self.shard)

    def selector(self, own: Selector | None = None) -> Selector:
        """This shard's objects, of those that `own` selects."""
        mine = equals(self.ring.shard, self.shard)
        return Selector(mine) if own is None else Selector(join(mine, own.labels), own.fields)

    def unassigned(self, own: Selector | None = None) -> Selector:
        """What no shard has yet, of what `own` selects."""
        nobodys = absent(self.ring.shard)
        return Selector(nobodys) if own is None else Selector(join(nobodys, own.labels), own.fields)

"""Which objects a process works on: those of one shard of a ring, or all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from shardsdk.cache.objects import metadata_of
from shardsdk.kube.selectors import Selector, absent, equals, join
from shardsdk.protocol.labels import RingLabels
from shardsdk.protocol.verdict import Verdict, judge


class Identity(Protocol):
    """Who works; `ShardIdentity` and `Unsharded` are the two there are."""

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of children that it makes."""
        ...

    def judge(self, thing: object) -> Verdict:
        """What is done with an object."""
        ...

    def selector(self, own: Selector | None = None) -> Selector:
        """Its objects, of those that `own` selects."""
        ...


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


@dataclass(frozen=True, slots=True)
class Unsharded:
    """A process that works on every object, whatever its labels say."""

    @property
    def labels(self) -> Mapping[str, str]:
        """None: whoever shards the children labels them."""
        return {}

    def judge(self, thing: object) -> Verdict:
        """Every object is reconciled."""
        return Verdict.RECONCILE

    def selector(self, own: Selector | None = None) -> Selector:
        """Just what `own` selects."""
        return own or Selector()

"""Counts a ring's objects while they stream by.

Per resource and shard, and those that are not where they should be by the sharder's
own decision.  Objects are not kept.  Where a controlled object should be depends on
its owner's label, so owners that are not where the hash puts them are remembered; those
are few (at most MAX_DISPLACED, beyond that misplaced children are not counted).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from sharder.core.decisions import Desired, Facts, Target, decide, desire_controlled, desire_main, is_misplaced
from sharder.core.membership import Membership
from sharder.core.ringspec import Role, Subject
from shardsdk.kube.store import Key
from shardsdk.protocol.labels import RingLabels
from shardsdk.protocol.objects import SlimMeta

#: Owners away from their place that are remembered, at some 200 bytes each.
MAX_DISPLACED: Final = 100_000
#: Objects that are named for each trouble; the rest is only counted.
MAX_EXAMPLES: Final = 3

#: Whether objects of a namespace (empty: cluster-scoped) belong to the ring; None: nobody knows.
Covers = Callable[[str], bool | None]


class Trouble(StrEnum):
    """What can be wrong with where an object is."""

    UNASSIGNED = "unassigned"
    STRANDED = "stranded"
    DRAINING = "draining"
    MISPLACED = "misplaced"
    LEAVING = "leaving"


@dataclass(slots=True)
class Tally:
    """What was counted of one resource.

    `by_shard`: objects by shard label, draining ones included.  `unjudged`: without
    label, in a namespace of which nobody knows whether it belongs to the ring.
    `removed`: the ring lists the resource no longer.
    """

    subject: Subject
    removed: bool = False
    by_shard: Counter[str] = field(default_factory=Counter)
    draining: Counter[str] = field(default_factory=Counter)
    troubles: Counter[Trouble] = field(default_factory=Counter)
    examples: dict[Trouble, list[str]] = field(default_factory=dict)
    unjudged: int = 0

    def note(self, trouble: Trouble, meta: SlimMeta) -> None:
        """Count an object that is in trouble, and name some."""
        self.troubles[trouble] += 1
        named = self.examples.setdefault(trouble, [])
        if len(named) < MAX_EXAMPLES:
            named.append(str(Key(meta.namespace, meta.name)))


@dataclass(slots=True)
class Census:
    """Counts the objects of one ring; give main resources before those they control.

    `membership` None: nothing is known of the shards, so nothing is judged by them.
    """

    labels: RingLabels
    membership: Membership | None
    covers: Covers
    #: Ring key -> label of owners that are not where the hash puts them.
    _displaced: dict[str, str | None] = field(default_factory=dict)
    _uncounted: bool = False

    @property
    def overfull(self) -> bool:
        """Whether so much is displaced that misplaced children were not counted."""
        return self._uncounted

    def add(self, tally: Tally, meta: SlimMeta) -> None:
        """Count one object into `tally`."""
        labels = meta.labels or {}
        shard = labels.get(self.labels.shard)
        if shard is not None:
            tally.by_shard[shard] += 1
            # Children follow their owners; the label alone, as copies of owners' labels are, asks for nothing.
            if self.labels.drain in labels and tally.subject.role is Role.MAIN:
                tally.draining[shard] += 1
                tally.note(Trouble.DRAINING, meta)
        key = tally.subject.key_of(meta)
        covered = tally.subject.owners_stay or self.covers(meta.namespace)
        if tally.removed or key is None or covered is False:
            if shard is not None:
                tally.note(Trouble.LEAVING, meta)
            return
        if covered is None and shard is None:
            tally.unjudged += 1
            return
        self._judge(tally, meta, key, shard)

    def _judge(self, tally: Tally, meta: SlimMeta, key: str, shard: str | None) -> None:
        if shard is None:
            tally.note(Trouble.UNASSIGNED, meta)
        membership, role = self.membership, tally.subject.role
        if membership is None:
            return
        if shard is not None and shard not in membership.available | membership.untouched:
            tally.note(Trouble.STRANDED, meta)
        draining = self.labels.drain in (meta.labels or {})
        desired = self._desire(role, key, shard, membership)
        facts = Facts(role, shard, draining, True, desired, membership)
        if is_misplaced(facts, decide(facts)) and not (role is Role.CONTROLLED and self._uncounted):
            tally.note(Trouble.MISPLACED, meta)

    def _desire(self, role: Role, key: str, shard: str | None, membership: Membership) -> Desired:
        """Where the object should be; of owners it is known where those are that are not on the hash's shard."""
        if role is Role.CONTROLLED and key in self._displaced:
            owner_label = self._displaced[key]
            return desire_controlled(key, membership, owner_exists=True, owner_label=owner_label, owner_moves=False)
        desired = desire_main(key, membership)
        if role is Role.MAIN and shard != (desired.name if isinstance(desired, Target) else None):
            self._remember(key, shard)
        return desired

    def _remember(self, key: str, shard: str | None) -> None:
        if len(self._displaced) < MAX_DISPLACED:
            self._displaced[key] = shard
        else:
            self._uncounted = True

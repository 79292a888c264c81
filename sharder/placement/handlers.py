"""What one ring's informers tell, and whom it concerns besides the backlog.

Does: keep count of what is in transit, and let the resync know when objects begin
and cease to move.  Refuses: to decide, and to wait.
"""

from __future__ import annotations

from sharder.backlog.backlog import Backlog
from sharder.backlog.objects import ItemKey
from sharder.backlog.scope import Members, RingScope
from sharder.core.ringspec import Role
from sharder.core.summary import Pending
from sharder.placement.resync import Resync
from sharder.placement.transit import Transit
from shardsdk.protocol.objects import SlimMeta, SlimObject


class EventHandler:
    """Handles the events of one ring's backlog, once it is subscribed there."""

    def __init__(
        self,
        scope: RingScope,
        members: Members,
        backlog: Backlog,
        *,
        transit: Transit,
        resync: Resync,
    ) -> None:
        self._scope = scope
        self._members = members
        self._informers = backlog.informers
        self._transit = transit
        self._resync = resync

    def on_event(self, key: ItemKey, kind: Pending, obj: SlimObject, *, gone: bool) -> None:
        """An object came into an informer, changed there or left it."""
        match kind:
            case Pending.DRAINING if gone:
                self._drains_no_more(key)
            case Pending.DRAINING:
                self._drains(key, obj.metadata)
            case Pending.UNASSIGNED | Pending.STRANDED if gone:
                self._placed(key, kind)
            case Pending.UNASSIGNED | Pending.STRANDED:
                self._to_place(key, kind)

    def on_synced(self) -> None:
        """An informer is complete."""
        self._resync.emptied()
        for number in self._scope.resources:
            informers = [self._informers.get(number, kind) for kind in (Pending.DRAINING, Pending.UNASSIGNED)]
            if all(each is None or each.synced for each in informers):
                self._transit.open(number)

    def look_at_drains(self) -> None:
        """Count what drains by the shards that there are now."""
        for number, informer in self._informers.of(Pending.DRAINING):
            for obj in informer.values():
                self._drains(ItemKey(number, obj.metadata.namespace, obj.metadata.name), obj.metadata)

    def _to_place(self, key: ItemKey, kind: Pending) -> None:
        if kind is Pending.STRANDED:
            self._resync.moving()
        elif self._scope.resources[key.resource].subject.role is Role.MAIN:
            self._transit.let_go(key, seen=True)

    def _placed(self, key: ItemKey, kind: Pending) -> None:
        if kind is Pending.UNASSIGNED:
            self._transit.leave(key)
        if not self._informers.count(kind):
            self._resync.emptied()

    def _drains(self, key: ItemKey, meta: SlimMeta) -> None:
        shard, removed = meta.label(self._scope.labels.shard), self._scope.resources[key.resource].removed
        if shard in self._members.membership.available and not removed and self._scope.covers(meta.namespace):
            self._transit.drains(key, shard)
        self._resync.moving()

    def _drains_no_more(self, key: ItemKey) -> None:
        # Without children the webhook has answered with the new shard, as a rule; what it missed is unassigned.
        unassigned = self._informers.get(key.resource, Pending.UNASSIGNED)
        seen = unassigned is not None and unassigned.get(key.namespace, key.name) is not None
        if seen or self._scope.resources[key.resource].controls_others:
            self._transit.let_go(key, seen=seen)
        else:
            self._transit.leave(key)
        self._resync.emptied()

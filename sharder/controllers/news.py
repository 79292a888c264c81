"""What one placer's watches tell, and whom it concerns.

Does: offer what has to be placed to the workers, keep count of what is in
transit, and let the leases' side and the resync know when shards begin or cease
to have objects.  Refuses: to decide, and to wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sharder.controllers.seen import ItemKey, SeenMeta, SeenObject
from sharder.controllers.selections import Kind
from sharder.core.ringspec import Role
from shardsdk.kube.reflector import Delta, EventKind

if TYPE_CHECKING:
    from sharder.controllers.placer import Placer


class News:
    """Takes what the selections of one placer tell."""

    def __init__(self, placer: Placer) -> None:
        self._placer = placer

    def on_event(self, index: int, kind: Kind, delta: Delta[SeenObject]) -> None:
        """An object came into a selection of resource `index`, changed in it or left it."""
        meta = delta.object.metadata
        key = ItemKey(index, meta.namespace, meta.name)
        gone = delta.kind is EventKind.DELETED
        match kind:
            case Kind.DRAINING if gone:
                self._drains_no_more(key)
            case Kind.DRAINING:
                self._drains(key, meta)
            case Kind.UNASSIGNED | Kind.STRANDED if gone:
                self._placed(key, kind, meta)
            case Kind.UNASSIGNED | Kind.STRANDED:
                self._to_place(key, kind, delta.object)

    def on_synced(self) -> None:
        """A selection is complete: the leases' side waits to hear which shards have objects, and which have none."""
        placer = self._placer
        placer.around.holds.refresh(placer.name)
        for shard in placer.stranded_shards():
            placer.around.holds.look_at(placer.name, shard)
        placer.resync.emptied()
        for index in range(len(placer.placed)):
            selections = [placer.selection(index, kind) for kind in (Kind.DRAINING, Kind.UNASSIGNED)]
            if all(each is None or each.synced for each in selections):
                placer.transit.open(index)

    def look_at_drains(self) -> None:
        """Count what drains by the shards that there are now."""
        for (index, kind), selection in self._placer.selections.items():
            for obj in selection.values() if kind is Kind.DRAINING else ():
                self._drains(ItemKey(index, obj.metadata.namespace, obj.metadata.name), obj.metadata)

    def _to_place(self, key: ItemKey, kind: Kind, obj: SeenObject) -> None:
        placer = self._placer
        placer.sweep.has_news()
        if kind is Kind.STRANDED:
            placer.resync.moving()
            shard = obj.metadata.label(placer.labels.shard)
            if shard is not None and placer.around.holds.hold(placer.name, shard) is None:
                placer.around.holds.look_at(placer.name, shard)
        elif placer.placed[key.resource].subject.role is Role.MAIN:
            placer.transit.let_go(key, seen=True)
        placer.offer(key.resource, obj)

    def _placed(self, key: ItemKey, kind: Kind, meta: SeenMeta) -> None:
        placer = self._placer
        placer.waiting.end(key)
        shard = meta.label(placer.labels.shard)
        if kind is Kind.UNASSIGNED:
            placer.transit.leave(key)
        elif shard is not None and not len(placer.selections[key.resource, kind]):
            placer.around.holds.look_at(placer.name, shard)
        if not placer.count(kind):
            placer.resync.emptied()

    def _drains(self, key: ItemKey, meta: SeenMeta) -> None:
        placer = self._placer
        shard, retired = meta.label(placer.labels.shard), placer.placed[key.resource].retired
        if shard in placer.membership.available and not retired and placer.in_scope(meta):
            placer.transit.drains(key, shard)
        placer.drains_since.setdefault(key, placer.around.clock.monotonic())
        placer.resync.moving()

    def _drains_no_more(self, key: ItemKey) -> None:
        placer = self._placer
        placer.drains_since.pop(key, None)
        # Without children the webhook has answered with the new shard, as a rule; what it missed is unassigned.
        unassigned = placer.selection(key.resource, Kind.UNASSIGNED)
        seen = unassigned is not None and unassigned.get(key.namespace, key.name) is not None
        if seen or placer.placed[key.resource].grouped:
            placer.transit.let_go(key, seen=seen)
        else:
            placer.transit.leave(key)
        placer.resync.emptied()

"""Has the leases of those shards looked at that are gone and have objects."""

from __future__ import annotations

from sharder.backlog.backlog import Backlog
from sharder.backlog.objects import ItemKey
from sharder.core.summary import Pending
from sharder.takeover.controller import TakeoverController
from shardsdk.protocol.objects import SlimObject


class StrandedHandler:
    """Follows a backlog for whoever takes over leases."""

    def __init__(self, backlog: Backlog, takeover: TakeoverController) -> None:
        self._backlog = backlog
        self._takeover = takeover

    def on_event(self, key: ItemKey, kind: Pending, obj: SlimObject, *, gone: bool) -> None:
        """A shard that is gone has one object more, or may have none any more."""
        if kind is not Pending.STRANDED:
            return
        backlog, takeover = self._backlog, self._takeover
        shard = obj.metadata.label(backlog.labels.shard)
        if shard is None:
            return
        if not backlog.informers.get(key.resource, kind) if gone else not takeover.fence_for(shard):
            takeover.enqueue(shard)

    def on_synced(self) -> None:
        """It is known which shards have objects, and which have none."""
        self._takeover.enqueue_all()
        for shard in self._backlog.informers.stranded_shards():
            self._takeover.enqueue(shard)

"""The log of a server in memory: what each step says to whom."""

from __future__ import annotations

import copy
from dataclasses import dataclass

from shardsdk.kube.api import WatchKind
from shardsdk.kube.selectors import Selector
from shardsdk.protocol.objects import GroupResource
from shardsdk.testing.selecting import matches
from shardsdk.testing.strategies import Object


@dataclass(frozen=True, slots=True)
class Change:
    """One step of the log; `old` or `new` is `None` for a creation or deletion.

    Of a deletion `old` carries the deletion's own version.
    """

    version: int
    resource: GroupResource
    old: Object | None
    new: Object | None

    def seen_by(self, namespace: str | None, selector: Selector) -> tuple[WatchKind, Object] | None:
        """What a watch of this selection tells; `None`: nothing."""
        before = self.old is not None and matches(self.old, namespace, selector)
        after = self.new is not None and matches(self.new, namespace, selector)
        if after and self.new is not None:
            return (WatchKind.MODIFIED if before else WatchKind.ADDED), self.new
        if before and self.old is not None:
            gone = copy.deepcopy(self.old)
            gone["metadata"]["resourceVersion"] = str(self.version)
            return WatchKind.DELETED, gone
        return None

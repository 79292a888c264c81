"""What a ring's controller knows of the way in which its objects are assigned to shards.

`sharder.placement` assigns by labels (`LabelAssignment`), `sharder.ranges` by ranges of
hashes (`RangeAssignment`).  Another way is a package beside them that satisfies
`Assignment`, a line in `sharder.replica`, and a word in a ring's spec (`AssignBy`) with
an answer wherever that is asked for besides: whoever reads, judges or shows a ring.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from sharder.backlog.scope import Wanted
from sharder.cache.namespaces import Namespaces
from sharder.core.ringspec import LetGo
from sharder.core.summary import Refused, Summary
from sharder.takeover.controller import TakeoverController
from sharder.takeover.leadership import Leadership
from shardsdk.protocol.objects import SlimMeta


class Assignment(Protocol):
    """Gives the objects of one ring to its shards, while one replica leads."""

    #: Told whenever what `summarize` says may be another than before; often, so be quick.
    when_changed: list[Callable[[], None]]
    #: What is to be assigned; `None`: nothing.
    wanted: Wanted | None

    def place(self, wanted: Wanted | None) -> None:
        """Have this assigned from now on, and nothing else; it is written down in the ring's status already."""

    def membership_changed(self) -> None:
        """Other shards are there, or ready, than before."""

    def namespace_changed(self, name: str, before: SlimMeta | None, after: SlimMeta | None) -> None:
        """A namespace came, changed its labels or went."""

    def restart_watches(self) -> None:
        """Begin every watch anew: an API server may hang, and say nothing of it."""

    def summarize(self) -> Summary:
        """What the ring waits for."""

    @property
    def removed_clean(self) -> frozenset[LetGo]:
        """Resources of which no shard has any more what it had of them by the ring as it was.

        No object at all of those that are removed, and as a main object none of those that are controlled now.
        """

    def take_refused(self) -> Refused | None:
        """News of objects that the API server lets nobody assign, if there are any and it is time to tell them."""

    async def run(self) -> None:
        """Assign until cancelled."""


#: Makes the assignment of the ring of this name.
Assign = Callable[[str, Leadership, Namespaces, TakeoverController], Assignment]

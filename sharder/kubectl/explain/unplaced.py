"""What can be said of an object that has to do with a ring, and about which nothing can be decided by it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sharder.core.problems import some
from sharder.core.ringspec import Role
from sharder.kubectl.explain.explanation import REMOVED, Explanation
from shardsdk.protocol.labels import RingLabels
from shardsdk.protocol.objects import GroupResource, ObjectMeta


@dataclass(frozen=True, slots=True)
class Unplaced:
    """One object and the ring; `labels` None: the ring's objects have none."""

    ring: str
    labels: RingLabels | None
    role: Role
    meta: ObjectMeta

    @property
    def shard(self) -> str | None:
        """The shard that its label names."""
        return self.meta.label(self.labels.shard) if self.labels is not None else None

    @property
    def draining(self) -> bool:
        """Whether it is asked for."""
        return self.labels is not None and self.meta.label(self.labels.drain) is not None

    def unread(self, names: Iterable[GroupResource]) -> Explanation:
        """While the API server cannot tell how it serves `names`, resources of the ring."""
        because = (f"whether the API server serves {name} could not be read" for name in names)
        return self._explain(because, "not known: not everything could be read")

    def unserved(self, names: Sequence[GroupResource]) -> Explanation:
        """While the API server does not serve `names`, or not so that their objects can be assigned."""
        listed = some(map(str, names))
        return self._explain(
            (f"the API server does not serve {name}" for name in names),
            f"it stays as it is until {listed} is served",
            f"{listed}: install its CustomResourceDefinition, or take it off the ring",
        )

    def forgotten(self, why: str) -> Explanation:
        """The ring lists its resource no longer, and no sharder looks for its labels: `why`."""
        return self._explain(
            (REMOVED,),
            f"it keeps the labels: {why}",
            "somebody who takes the labels off: list the resource once more, and take it off while a sharder leads",
        )

    def invalid(self, problems: Iterable[object]) -> Explanation:
        """The ring cannot be used as it is written."""
        return self._explain(
            map(str, problems),
            "not known: the sharder does not go by a ring that is invalid",
            f"a ring that can be used: correct ClusterRing {self.ring}",
        )

    def _explain(self, because: Iterable[str], then: str, missing: str = "") -> Explanation:
        """`missing` empty: nobody can tell whether something has to happen."""
        return Explanation(
            ring=self.ring,
            role=self.role,
            key=None,
            current=self.shard,
            draining=self.draining,
            shard_status="",
            desired=None,
            outcome=None,
            because=tuple(because),
            then=then,
            missing=(missing,) if missing else (),
            in_place=False if missing else None,
        )

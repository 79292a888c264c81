"""Two shards of one name in two namespaces, and how whoever judges a run tells them apart.

To the product both have the same name.  Here the one that is not where its name would have it is called otherwise, and
judges are told of Leases and RingAssignments as if these called it so, too.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any, Final

from shardsdk.kube.store import Key
from shardsdk.protocol.objects import LEASES
from shardsdk.protocol.ranges import RING_ASSIGNMENTS
from tests.simulation.schedule import Plan
from tests.simulation.storage import Commit, Doc, Version
from tests.simulation.vocabulary import SHARDS_NAMESPACES, namespace_of_shard

#: What the name of such a shard ends with here.
_SECOND: Final = "-second"


class Names:
    """Of the shards of one run; without twins everything is told as it is."""

    def __init__(self, plan: Plan) -> None:
        self._twins = plan.twins
        self._together = plan.ranges and not plan.spread
        #: Whether each name is one shard's from now on.
        self.unique = False
        self._told: dict[Version, Version] = {}

    @staticmethod
    def twin(name: str) -> str:
        """What the other shard of that name is called."""
        return name.removesuffix(_SECOND) if name.endswith(_SECOND) else name + _SECOND

    @staticmethod
    def in_product(name: str) -> str:
        """What a shard calls itself."""
        return name.removesuffix(_SECOND)

    def barring(self, name: str, foreign: Container[str]) -> set[str]:
        """What shards are called while one of which none of this name is started."""
        return ({name} if name in foreign else set()) | ({self.twin(name)} if self.unique else set())

    def namespace_of(self, name: str) -> str:
        """Where the lease of a shard is; shards that look at each other's leases have them in one namespace."""
        first = SHARDS_NAMESPACES[0] if self._together else namespace_of_shard(self.in_product(name))
        return first if not name.endswith(_SECOND) else next(each for each in SHARDS_NAMESPACES if each != first)

    def of(self, name: str, namespace: str) -> str:
        """What the shard is called whose lease has this name in this namespace."""
        elsewhere = self._twins and namespace in SHARDS_NAMESPACES and namespace != self.namespace_of(name)
        return self.twin(name) if elsewhere else name

    # -- what judges are told ------------------------------------------------

    def to(self, judge: Callable[[Commit], None]) -> Callable[[Commit], None]:
        """Told of a write, has `judge` know of it."""
        return (lambda commit: judge(self.commit(commit))) if self._twins else judge

    def commit(self, commit: Commit) -> Commit:
        """A write, as judges are told of it."""
        if commit.resource not in (LEASES, RING_ASSIGNMENTS):
            return commit
        tell = self.lease if commit.resource == LEASES else self._assignment
        before, after = (each and tell(each) for each in (commit.before, commit.after))
        latest = after or before
        assert latest is not None
        return commit._replace(key=Key(*latest.key), before=before, after=after)

    def lease(self, version: Version) -> Version:
        """A lease, as judges are told of it."""
        name, spec = version.key.name, version.doc.get("spec") or {}
        called = self.of(name, version.key.namespace)
        if called == name:
            return version
        held = spec | ({"holderIdentity": called} if spec.get("holderIdentity") == name else {})
        return self._remember(version, {"metadata": version.doc["metadata"] | {"name": called}, "spec": held})

    def _assignment(self, version: Version) -> Version:
        spec: dict[str, Any] = version.doc.get("spec") or {}
        ranges = [
            {**each, "shard": self.of(each["shard"], each.get("namespace", ""))} if each.get("shard") else each
            for each in spec.get("ranges") or ()
        ]
        return version if not self._twins else self._remember(version, {"spec": spec | {"ranges": ranges}})

    def _remember(self, version: Version, said: Doc) -> Version:
        """The same version each time: judges know what they have seen by that."""
        if version not in self._told:
            self._told[version] = Version(version.doc | said)
        return self._told[version]

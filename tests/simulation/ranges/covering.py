"""Which namespaces rings by ranges cover, and who may end because that is another than when it started."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from shardsdk.kube.store import Key
from shardsdk.protocol.labels import RingLabels
from shardsdk.protocol.namespaces import LEFT_OUT, NAME_LABEL, CoveredNamespaces, unnamed
from shardsdk.protocol.objects import CLUSTERRINGS
from tests.simulation.storage import Commit

if TYPE_CHECKING:
    from tests.simulation.world import World

#: A namespace that is there, and in which nobody makes anything: no object's owner depends on whether it is covered.
IDLE: Final = "idle"


class Covering:
    """Knows each change, whoever makes it; a restored backup may be one."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._changes = Counter[str]()
        self._covered: dict[str, CoveredNamespaces] = {}
        if world.plan.ranges:  # others select namespaces by any label, and end for none of them
            world.storage.on_commit.append(self._on_commit)
            world.storage.on_set_back.append(self._on_set_back)

    def changes(self, ring: RingLabels) -> int:
        """How often it has come to cover other namespaces; a process may end that has seen fewer."""
        return self._changes[ring.ring]

    def covers(self, ring: str, namespace: str) -> bool:
        """Whether it covers a namespace now."""
        return self._covered.get(ring, CoveredNamespaces()).covers(namespace)

    def in_other_words(self, ring: RingLabels) -> dict[str, Any] | None:
        """A selector that says the same as the ring's, written in another way."""
        found, covered = self._selector_of(ring), self._of(ring)
        if found is None:
            return _without(LEFT_OUT)
        if covered == CoveredNamespaces():
            return None
        together = len(found.get("matchExpressions", ())) > 1
        return _without(covered.without) if together else _without(*([name] for name in sorted(covered.without)))

    def otherwise(self, ring: RingLabels) -> dict[str, Any] | None:
        """A selector that covers the idle namespace, if the ring's does not, and else leaves it out."""
        return _without(LEFT_OUT | {IDLE}) if self._of(ring).covers(IDLE) else None

    def tells(self, ring: RingLabels) -> bool:
        """Whether shards can tell by names what the ring's selector covers."""
        return unnamed(self._selector_of(ring) or {}) is None

    def _of(self, ring: RingLabels) -> CoveredNamespaces:
        return self._covered.get(ring.ring, CoveredNamespaces())

    def _selector_of(self, ring: RingLabels) -> dict[str, Any] | None:
        found = self._world.storage.demand(CLUSTERRINGS, Key("", ring.ring))
        selector: dict[str, Any] | None = found.doc["spec"].get("namespaceSelector")
        return selector

    def _on_commit(self, commit: Commit) -> None:
        if commit.resource == CLUSTERRINGS and commit.after is not None:
            spec, status = commit.after.doc["spec"], commit.after.doc.get("status") or {}
            name, says = commit.key.name, [each.get("namespaceSelector") for each in (spec, status)]
            # What names do not tell is not in force: whoever starts goes by what the ring covered before.
            said = next((each for each in says if each is not None and unnamed(each) is None), None)
            covered = CoveredNamespaces.parse(said)
            self._changes[name] += self._covered.get(name, covered) != covered
            self._covered[name] = covered

    def _on_set_back(self, commits: list[Commit]) -> None:
        for each in commits:
            self._on_commit(each)


def _without(*names: Iterable[str]) -> dict[str, Any]:
    """All namespaces but these, each collection in an expression of its own."""
    return {"matchExpressions": [{"key": NAME_LABEL, "operator": "NotIn", "values": sorted(each)} for each in names]}

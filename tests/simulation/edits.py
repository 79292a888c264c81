"""What people and their tools do to rings and to what the API server knows."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from shardsdk.kube.store import Key
from shardsdk.protocol.labels import RingLabels
from shardsdk.protocol.objects import CLUSTERRINGS
from tests.simulation.storage import Author
from tests.simulation.vocabulary import FAMILY, IN_RING, RINGS, WORKS, ring_object, selector_of

if TYPE_CHECKING:
    from tests.simulation.world import World


class Edits:
    """Changes rings, each at once."""

    def __init__(self, world: World) -> None:
        self._world = world

    def change_ring(self, ring: RingLabels) -> None:
        """Write the ring's spec in another way; it says the same."""
        world = self._world
        world.note(f"user changes ring {ring.ring}")
        spec = dict(world.storage.demand(CLUSTERRINGS, Key("", ring.ring)).doc["spec"])
        if world.plan.ranges:
            self._select(spec, world.covering.in_other_words(ring))
        elif "matchLabels" in (spec.get("namespaceSelector") or {}):
            spec["namespaceSelector"] = {"matchExpressions": selector_of(spec["namespaceSelector"]["matchLabels"])}
        else:
            labels = {IN_RING: "yes"} if world.plan.select_namespaces else {}
            spec["namespaceSelector"] = {"matchLabels": labels}
        self._write(ring, spec)

    def cover_others(self, ring: RingLabels) -> None:
        """Have a ring by ranges cover one namespace more, or one less: its shards end, and are started anew."""
        world = self._world
        world.note(f"user has ring {ring.ring} cover other namespaces")
        spec = dict(world.storage.demand(CLUSTERRINGS, Key("", ring.ring)).doc["spec"])
        self._select(spec, world.covering.otherwise(ring))
        self._write(ring, spec)

    def cover_by_labels(self, ring: RingLabels) -> None:
        """Have a ring by ranges select namespaces by labels, of which its shards know nothing: nothing is to change."""
        world = self._world
        world.note(f"user has ring {ring.ring} select namespaces by labels")
        spec = dict(world.storage.demand(CLUSTERRINGS, Key("", ring.ring)).doc["spec"])
        self._select(spec, {"matchLabels": {IN_RING: "yes"}})
        self._write(ring, spec)

    def mend(self) -> None:
        """Have no ring by ranges select namespaces by labels any more."""
        for ring in RINGS.values():
            if self._world.plan.ranges and not self._world.covering.tells(ring):
                self.change_ring(ring)

    def list_works(self, listed: bool) -> None:
        """Take works, and with them their pieces, off their ring's list, or put them back."""
        world = self._world
        world.note(f"user {'puts works on' if listed else 'takes works off'} the list of ring {FAMILY.ring}")
        resources = ring_object(FAMILY.ring, select_namespaces=False)["spec"]["resources"] if listed else []
        world.works_listed = listed
        world.liveness.disturb()
        spec = world.storage.demand(CLUSTERRINGS, Key("", FAMILY.ring)).doc["spec"]
        self._write(FAMILY, {**spec, "resources": resources})

    def serve_works(self, served: bool) -> None:
        """Have the API server know the type of works, or not; somebody writes the ring, so that it is looked up."""
        world = self._world
        world.note(f"works are {'served' if served else 'not served'}")
        if served:
            world.server.served[WORKS.group, WORKS.plural] = WORKS
        else:
            world.server.served.pop((WORKS.group, WORKS.plural), None)
        self.change_ring(FAMILY)

    @staticmethod
    def _select(spec: dict[str, Any], selector: dict[str, Any] | None) -> None:
        spec.pop("namespaceSelector", None)
        if selector is not None:
            spec["namespaceSelector"] = selector

    def _write(self, ring: RingLabels, spec: dict[str, Any]) -> None:
        world = self._world
        found = world.storage.demand(CLUSTERRINGS, Key("", ring.ring))
        world.storage.replace(CLUSTERRINGS, found, {**deepcopy(found.doc), "spec": spec}, Author("user"))
        world.calm_from(world.now)
        world.hindrances.hinder(ring.ring)

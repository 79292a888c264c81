"""Which namespaces are in a ring's scope, as the leader's watch of namespaces tells.

Refuses: to judge a namespace that it has not seen yet where a ring selects by
label: nothing is placed there, and nothing taken away.  Its event comes, and
then the namespace is gone through.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from sharder.core.ringspec import ResolvedRing
from sharder.core.selectors import NAMESPACE_NAME_LABEL, Operator
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock
from shardsdk.kube.reflector import Delta, EventKind, Reflector
from shardsdk.protocol.objects import NAMESPACES, SlimMeta, SlimObject


class Namespaces:
    """Labels of all namespaces; `on_change(name, before, after)` gives `None` for one that is not there."""

    def __init__(
        self,
        api: Api,
        *,
        clock: Clock,
        rng: Random,
        on_change: Callable[[str, SlimMeta | None, SlimMeta | None], None],
    ) -> None:
        self._on_change = on_change
        self.reflector: Reflector[SlimObject] = Reflector(
            api, NAMESPACES, model=SlimObject, metadata_only=True,
            handler=self._handle, name="namespaces", clock=clock, rng=rng,
        )  # fmt: skip

    async def run(self) -> None:
        """Watch until cancelled."""
        await self.reflector.run()

    def covers(self, ring: ResolvedRing, namespace: str, *, unseen: bool = False) -> bool:
        """Whether objects of `namespace` (empty: cluster-scoped) are in the ring's scope; `unseen`: nobody knows."""
        if not namespace or excluded_by_name(ring) is not None:
            return ring.in_scope(namespace)
        known = self.reflector.store.get("", namespace)
        return unseen if known is None else ring.in_scope(namespace, known.metadata.labels)

    def in_scope(self, ring: ResolvedRing) -> tuple[str, ...] | None:
        """The namespaces in the ring's scope that have been seen, in order; `None`: all but those excluded by name."""
        if excluded_by_name(ring) is not None:
            return None
        return tuple(sorted(each.metadata.name for each in self.reflector.store if self.covered(ring, each.metadata)))

    def covered(self, ring: ResolvedRing, meta: SlimMeta | None) -> bool:
        """The same for a namespace as it was or is, whatever the cache says now."""
        return meta is not None and ring.in_scope(meta.name, meta.labels)

    def _handle(self, delta: Delta[SlimObject]) -> None:
        before = delta.old.metadata if delta.old is not None else None
        after = None if delta.kind is EventKind.DELETED else delta.object.metadata
        self._on_change(delta.object.metadata.name, before, after)


def excluded_by_name(ring: ResolvedRing) -> tuple[str, ...] | None:
    """The namespaces outside the ring's scope, where names alone decide; `None`: labels do."""
    selector = ring.namespace_selector
    if selector.match_labels:
        return None
    excluded: list[str] = []
    for term in selector.match_expressions:
        if term.key != NAMESPACE_NAME_LABEL or term.operator is not Operator.NOT_IN:
            return None
        excluded.extend(term.values)
    return tuple(excluded)

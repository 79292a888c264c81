"""Owners that are about to change hands, and reading their children.

Does: one consistent read per controlled resource for a whole batch of owners,
narrowed by namespace, and by where they are to go.  Refuses: to narrow by where
they are believed to be.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from sharder.backlog.lists import read_all
from sharder.backlog.objects import ItemKey, RingResource, controls, slim
from sharder.backlog.scope import RingScope
from sharder.core.ringspec import ResolvedMain, Role
from shardsdk.kube.api import Api
from shardsdk.kube.selectors import Selector, not_in
from shardsdk.protocol.labels import RingLabels
from shardsdk.protocol.objects import Resource, SlimMeta

#: Children are read by namespace while a batch spans no more than this many.
MAX_NAMESPACES: Final = 3


@dataclass(slots=True)
class Family:
    """An owner on its way; `shard` is the one that is gone (`None`: nobody has the owner).

    `let_go`: nobody works on it from here on, as long as its labels stay.
    `target`: where it goes, `chosen_among` these; `children`: those that are not there (`None`: not
    known yet), `since` when the watches were asked for them; `gathered`: all are there, and only the owner is left;
    `refused`: a patch was, for good, when it was tried last.
    """

    key: ItemKey
    resource: RingResource
    meta: SlimMeta
    shard: str | None
    let_go: bool = False
    target: str | None = None
    chosen_among: frozenset[str] = frozenset()
    children: list[tuple[RingResource, SlimMeta]] | None = None
    since: float = 0.0
    gathered: bool = False
    refused: bool = False


async def read_children(
    api: Api, scope: RingScope, main: ResolvedMain, families: Sequence[Family], *, busy: bool
) -> None:
    """Set `children` of each family, whose owner is `main`'s, to those that are not where it goes.

    `busy`: much is written meanwhile.
    """
    by_uid = {family.meta.uid: family for family in families}
    selector = select_children(scope.labels, (family.target for family in families))
    namespaces = {family.meta.namespace for family in families}
    found: dict[str, dict[tuple[RingResource, str, str], SlimMeta]] = {uid: {} for uid in by_uid}
    async for child, meta in _read(api, scope, main, selector, namespaces, busy=busy):
        reference = meta.controller
        family = by_uid.get(reference.uid) if reference is not None else None
        if family is not None and controls(main, family.meta, child, meta):
            found[family.meta.uid][child, meta.namespace, meta.name] = slim(meta, scope.labels)
    for uid, family in by_uid.items():
        family.children = [(child, meta) for (child, _, _), meta in found[uid].items()]


async def _read(
    api: Api, scope: RingScope, main: ResolvedMain, selector: Selector, namespaces: set[str], *, busy: bool
) -> AsyncIterator[tuple[RingResource, SlimMeta]]:
    for child in scope.resources.values():
        subject = child.subject
        if child.removed or subject.role is not Role.CONTROLLED or subject.main.resource != main.resource:
            continue
        for namespace in _narrow(namespaces, subject.resource):
            async for objects in read_all(api, subject.resource, namespace, selector, busy=busy):
                for obj in objects:
                    yield child, obj.metadata


def select_children(labels: RingLabels, targets: Iterable[str | None]) -> Selector:
    """Children that are not where their owners go: on whatever shard, or without one.

    Nothing else is known of where they are: they may have been adopted, restored, or
    labelled by a webhook's answer that their owner's move overtook.  What another
    owner's children cost is decoding them.
    """
    different = set(targets)
    target = different.pop() if len(different) == 1 else None
    return Selector(labels=not_in(labels.shard, {target})) if target is not None else Selector()


def _narrow(names: set[str], resource: Resource) -> list[str | None]:
    if not resource.namespaced or len(names) > MAX_NAMESPACES or "" in names:
        return [None]
    return [*sorted(names)]

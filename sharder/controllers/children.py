"""Reading the children of owners that are about to change hands.

Does: one consistent read per controlled resource for a whole batch of owners,
narrowed by namespace, and by where they are to go.  Refuses: to narrow by where
they are believed to be.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Final

from sharder.controllers.reading import read_all
from sharder.controllers.seen import Placed, SeenMeta
from sharder.core.ringspec import ResolvedMain, Role
from shardsdk.kube.api import Api
from shardsdk.kube.selectors import Selector, not_in
from shardsdk.protocol.labels import RingLabels
from shardsdk.protocol.objects import Resource

#: Children are read by namespace while a batch spans no more than this many.
MAX_NAMESPACES: Final = 3


async def read_children(
    api: Api,
    placed: Iterable[Placed],
    main: ResolvedMain,
    selector: Selector,
    namespaces: Iterable[str],
    *,
    busy: bool,
) -> AsyncIterator[tuple[Placed, SeenMeta]]:
    """Every object of the resources that `main` controls; `namespaces` are those of the owners.

    One may be shown twice, the latest state last.
    """
    wanted = set(namespaces)
    for child in placed:
        subject = child.subject
        if child.retired or subject.role is not Role.CONTROLLED or subject.main.resource != main.resource:
            continue
        for namespace in _narrow(wanted, subject.resource):
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

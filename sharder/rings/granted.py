"""Which of a ring's resources come into force: those on which the sharder may do what takes a label off again.

What is listed by mistake, and without rights, is so never written down as labelled: once the list
is corrected nothing is left of it, and nobody has to grant rights on it for the ring to be ready.

Only what is surely new waits.  Where the status says nothing of what was in force (a ring of the Go sharder,
or one made again), objects are asked for labels, and a family that may have one goes on whole: nobody else
would move its objects off a dead shard, or see that a shard's lease is still needed.

A new owner waits with all that it controls, since its children could not be moved along.  A family of which
something was in force before goes on without new children that have to wait, as it did until then.
"""

from __future__ import annotations

from collections.abc import Collection, Container
from dataclasses import replace

from sharder.core.ringspec import ResolvedMain, ResolvedRing
from shardsdk.errors import FenceClosed, ShardingError
from shardsdk.kube.api import Api
from shardsdk.kube.selectors import Selector, exists
from shardsdk.protocol.objects import GroupResource, Resource, SlimObject


def unwritten(ring: ResolvedRing, written: Container[GroupResource]) -> tuple[GroupResource, ...]:
    """What `ring` lists and is not `written` down as perhaps labelled."""
    names = (each.resource.group_resource for each in ring.subjects())
    return tuple(name for name in names if name not in written)


def granted_part(
    ring: ResolvedRing, in_force: Container[GroupResource], denied: Collection[GroupResource]
) -> ResolvedRing:
    """`ring` without what has to wait for rights; `denied`: where they are missing."""
    mains = []
    for main in ring.mains:
        waiting = {each.group_resource for each in _family(main)} & {name for name in denied if name not in in_force}
        if not waiting:
            mains.append(main)
        elif any(each.group_resource in in_force for each in _family(main)):
            controlled = tuple(each for each in main.controlled if each.group_resource not in waiting)
            mains.append(replace(main, controlled=controlled))
    return replace(ring, mains=tuple(mains))


async def find_in_force(
    api: Api, ring: ResolvedRing, written: Collection[GroupResource], denied: Collection[GroupResource]
) -> frozenset[GroupResource]:
    """What of `ring` is `written` down, or may have objects with its label all the same.

    Only families with something `denied` are looked at.  What cannot be read is new where the status says what was in
    force, since nothing gets a label before it is written down; otherwise it may have been.
    """
    found = set(written)
    for main in ring.mains:
        names = {each.group_resource for each in _family(main)}
        if names.isdisjoint(denied):
            continue
        for each in _family(main):
            name = each.group_resource
            if name not in found and await _labelled(api, each, ring.spec.labels.shard, unread=not written):
                found.update({name} if written else names)
    return frozenset(found)


async def _labelled(api: Api, resource: Resource, label: str, *, unread: bool) -> bool:
    """Whether an object carries `label`; `unread`: the answer when nobody can tell."""
    selector = Selector(labels=exists(label))
    try:
        async for page in api.pages(resource, selector=selector, model=SlimObject, metadata_only=True, limit=1):
            if page:
                return True
    except FenceClosed:
        raise
    except ShardingError:
        return unread
    return False


def _family(main: ResolvedMain) -> tuple[Resource, ...]:
    return (main.resource, *main.controlled)

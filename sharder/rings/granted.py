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

from collections.abc import Collection

from sharder.core.granted import family_of
from sharder.core.ringspec import ResolvedRing
from shardsdk.errors import FenceClosed, ShardingError
from shardsdk.kube.api import Api
from shardsdk.kube.selectors import Selector, exists
from shardsdk.protocol.objects import GroupResource, Resource, SlimObject


async def find_in_force(
    api: Api, ring: ResolvedRing, written: Collection[GroupResource], denied: Collection[GroupResource]
) -> frozenset[GroupResource]:
    """What of `ring` is `written` down, or may have objects with its label all the same.

    Only families with something `denied` are looked at.  What cannot be read is new where the status says what was in
    force, since nothing gets a label before it is written down; otherwise it may have been.
    """
    found = set(written)
    for main in ring.mains:
        names = {each.group_resource for each in family_of(main)}
        if names.isdisjoint(denied):
            continue
        for each in family_of(main):
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

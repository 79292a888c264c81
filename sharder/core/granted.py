"""Which part of a ring can be in force, while rights on some of what it lists are missing."""

from __future__ import annotations

from collections.abc import Collection, Container
from dataclasses import replace

from sharder.core.ringspec import ResolvedMain, ResolvedRing
from shardsdk.protocol.objects import GroupResource, Resource


def family_of(main: ResolvedMain) -> tuple[Resource, ...]:
    """A main resource and those that it controls."""
    return (main.resource, *main.controlled)


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
        names = {each.group_resource for each in family_of(main)}
        waiting = {name for name in names.intersection(denied) if name not in in_force}
        if not waiting:
            mains.append(main)
        elif any(name in in_force for name in names):
            controlled = tuple(each for each in main.controlled if each.group_resource not in waiting)
            mains.append(ResolvedMain(main.resource, controlled))
    return ring if tuple(mains) == ring.mains else replace(ring, mains=tuple(mains))

"""Whether one ring can spread what a sharded operator's functions reconcile and own.

A ring lists a resource once.  An object's shard is that of its key: a main object's own, or, of a child, its owner's,
which has to be of the one main resource that the child's is listed under.  A child of any other has no key, and stays
behind when its owner moves.
"""

from __future__ import annotations

from collections.abc import Iterable

from shardsdk.errors import ConfigurationError
from shardsdk.kinds import Kind, resource_of
from shardsdk.operator.declared import Declared
from shardsdk.protocol.objects import GroupResource
from shardsdk.reconcile.spec import Scope


def check_parts(functions: Iterable[Declared]) -> None:
    """Raises: ConfigurationError when a kind has two parts: owned and reconciled, or owned by two kinds."""
    sharded = [each for each in functions if each.scope in (None, Scope.SHARDED)]
    mains = {_group(each.kind) for each in sharded}
    owners: dict[GroupResource, type[Kind]] = {}
    for each in sharded:
        for child in each.owns:
            owner = owners.setdefault(_group(child), each.kind)
            if _group(child) in mains:
                _refuse(child, f"is reconciled, and {each.kind.__qualname__} owns it")
            if _group(owner) != _group(each.kind):
                _refuse(child, f"is owned by {owner.__qualname__} and by {each.kind.__qualname__}")


def _group(kind: type[Kind]) -> GroupResource:
    return resource_of(kind).group_resource


def _refuse(kind: type[Kind], what: str) -> None:
    raise ConfigurationError(
        f"{kind.__qualname__} {what}, but a ring lists a kind once: write two operators, with a ring each, or have one"
        " of them make children of another kind"
    )

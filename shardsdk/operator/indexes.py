"""Indexes of the caches of an operator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from shardsdk.errors import ConfigurationError
from shardsdk.kinds import Kind, resource_of
from shardsdk.operator.reconciler import Reconciler
from shardsdk.protocol.objects import Resource
from shardsdk.queueing.functions import check_plain

#: What gives the values under which an object is found, by the index's name.
Indexes = dict[str, Callable[[Any], Iterable[str]]]


def add_index(indexes: Indexes, kind: type[Kind], name: str, function: Callable[[Any], Iterable[str]]) -> None:
    """Have `indexes`, which are of `kind`, hold one more.

    Raises: ConfigurationError for one that is async, or is called as another one.
    """
    check_plain(function, f"the index {name!r}")
    if indexes.get(name, function) != function:
        raise ConfigurationError(f"two indexes of {kind.__qualname__} are called {name!r}: rename one")
    indexes[name] = function


def indexes_of(own: Mapping[Resource, Indexes], functions: Iterable[Reconciler[Any]]) -> dict[Resource, Indexes]:
    """The operator's `own` and those of its reconcile functions, by what they are of.

    Raises: ConfigurationError when two of one kind have one name.
    """
    found = {resource: dict(indexes) for resource, indexes in own.items()}
    for each in functions:
        indexes = found.setdefault(resource_of(each.declared.kind), {})
        for name, function in each.indexes.items():
            add_index(indexes, each.declared.kind, name, function)
    return {resource: indexes for resource, indexes in found.items() if indexes}

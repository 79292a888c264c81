"""Indexes of the caches of an operator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from shardsdk.errors import ConfigurationError
from shardsdk.kinds import resource_of
from shardsdk.operator.reconciler import Reconciler
from shardsdk.protocol.objects import Resource

#: What gives the values under which an object is found, by the index's name.
Indexes = dict[str, Callable[[Any], Iterable[str]]]


def indexes_of(own: Mapping[Resource, Indexes], functions: Iterable[Reconciler[Any]]) -> dict[Resource, Indexes]:
    """The operator's `own` and those of its reconcile functions, by what they are of.

    Raises: ConfigurationError when two of one kind have one name.
    """
    found = {resource: dict(indexes) for resource, indexes in own.items()}
    for each in functions:
        indexes = found.setdefault(resource_of(each.declared.kind), {})
        for name, function in each.indexes.items():
            if name in indexes:
                raise ConfigurationError(
                    f"two indexes of {each.declared.kind.__qualname__} are called {name!r}: rename one"
                )
            indexes[name] = function
    return {resource: indexes for resource, indexes in found.items() if indexes}

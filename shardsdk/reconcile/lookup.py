"""Which cache a reconcile reads when it names a kind, or what to declare so that there is one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardsdk.cache.cache import Cache
from shardsdk.errors import ConfigurationError
from shardsdk.kinds import Kind, resource_of
from shardsdk.protocol.objects import GroupResource, Resource


def owned_cache(
    caches: Mapping[GroupResource, Cache[Any]],
    kind: type[Kind] | Resource,
    controller: str,
    main: Resource,
    does: str = "reads",
) -> Cache[Any]:
    """The one of a kind (or resource) that `controller`, which is for objects of `main`, owns.

    Raises: ConfigurationError when it was not declared to, or as another class.
    """
    resource = kind if isinstance(kind, Resource) else resource_of(kind)
    if resource.group_resource == main.group_resource and main.group_resource not in caches:  # nor can be declared
        raise ConfigurationError(
            f"controller {controller!r} {does} {resource.kind} objects as children, but is for them, and an object"
            " cannot own itself: it is ctx.object, ctx.patch changes it, and what is returned is its status"
        )
    return find_cache(caches, kind, controller, does, "as one that it owns")


def find_cache(
    caches: Mapping[GroupResource, Cache[Any]],
    kind: type[Kind] | Resource,
    controller: str,
    does: str = "reads",
    declared: str = "among those that it owns or watches",
) -> Cache[Any]:
    """The one of `caches` that is of a kind (or resource).

    Raises: ConfigurationError when `controller` was not declared to look at it, or as another class.
    """
    resource = kind if isinstance(kind, Resource) else resource_of(kind)
    cache = caches.get(resource.group_resource)
    if cache is None:
        raise ConfigurationError(
            f"controller {controller!r} {does} {resource.kind} objects, but was not told of them: declare"
            f" {resource.kind} {declared} (owns=[{resource.kind}], or .owns(…))"
        )
    if not isinstance(kind, Resource) and cache.model is not kind:
        raise ConfigurationError(
            f"controller {controller!r} reads {resource.plural} as {kind.__qualname__}, but has them cached as"
            f" {cache.model.__qualname__}: declare and read them as the same class"
        )
    return cache

"""Objects of kinds, as a rig stores them and shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import msgspec

from shardsdk import kinds
from shardsdk.errors import ConfigurationError
from shardsdk.kinds import CustomResource, Kind, crd_of, resource_of
from shardsdk.kinds.declaration import declaration_of
from shardsdk.kube.decoding import codec_of
from shardsdk.protocol.objects import CLUSTERRINGS, GroupResource, Resource
from shardsdk.reconcile.spec import ControllerSpec
from shardsdk.testing.memory import Object
from shardsdk.testing.strategies import is_builtin


def resource_named(kind: Resource | type[Kind]) -> Resource:
    """Where objects of a kind are."""
    return kind if isinstance(kind, Resource) else resource_of(kind)


def shown_as(kind: Resource | type[Kind], thing: Object) -> Any:
    """An object as it is stored, or as one of a kind."""
    return thing if isinstance(kind, Resource) else codec_of(kind).read(msgspec.json.encode(thing))


def without_status(specs: Iterable[ControllerSpec[Any]]) -> dict[GroupResource, str]:
    """Which custom resources have no status, and the class that says so: one whose objects are reconciled.

    Others may be somebody else's, whose class has what the program needs of them.
    """
    mains = [spec.main for spec in specs]
    classes = {each.resource.group_resource: each.model.__qualname__ for each in mains if _is_without(each.model)}
    return {
        which: name
        for which, name in classes.items()
        if all(_is_without(each.model) for each in mains if each.resource.group_resource == which)
    }


def schemas_of(specs: Iterable[ControllerSpec[Any]]) -> Callable[[Resource], Mapping[str, Any] | None]:
    """What the definitions of custom resources say of their objects, by the classes of what is reconciled and watched.

    Nothing of a class that no definition can be made of: it may be of somebody else's objects.
    """
    sources = [each for spec in specs for each in spec.resources]
    classes = {each.resource.group_resource: each.model for each in sources if _is_custom(each.model)}

    @cache  # it is asked for at each write
    def schema_of(which: GroupResource) -> Mapping[str, Any] | None:
        try:
            model = classes.get(which)
            versions = crd_of(model)["spec"]["versions"] if model else ()
        except ConfigurationError:
            return None
        return next((each["schema"]["openAPIV3Schema"] for each in versions), None)

    return lambda resource: schema_of(resource.group_resource)


def _is_custom(model: Any) -> bool:
    return isinstance(model, type) and issubclass(model, CustomResource)


def _is_without(model: Any) -> bool:
    return _is_custom(model) and "status" not in declaration_of(model).parts


class Served(list[Resource]):
    """What a rig's API server serves: what it is told of, and Kubernetes' own kinds."""

    def has(self, resource: Resource, definitions: Iterable[Object] = ()) -> bool:
        """Whether it is one of them, in any version, or of these CustomResourceDefinitions."""
        told = {each.group_resource for each in super().__iter__()}
        told |= {GroupResource(each["spec"]["group"], each["spec"]["names"]["plural"]) for each in definitions}
        return is_builtin(resource) or resource.group_resource in (*told, CLUSTERRINGS.group_resource)

    def __iter__(self) -> Iterator[Resource]:
        yield from super().__iter__()
        for name in kinds.builtin.__all__:
            found = getattr(kinds, name)
            if isinstance(found, type) and issubclass(found, Kind):
                yield resource_of(found)

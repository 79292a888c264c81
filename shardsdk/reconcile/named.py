"""Which object a verb of `Context` means, by what it was given: a class and a name, or an object."""

from __future__ import annotations

from shardsdk.cache.objects import Request
from shardsdk.errors import ConfigurationError
from shardsdk.kinds import Kind
from shardsdk.protocol.objects import Resource


def namespace_for(resource: Resource, namespace: str, main: Resource, request: Request) -> str | None:
    """Where an object of `resource` is: as said, else where `request`, an object of `main`, is; `None`: in none.

    Raises: ConfigurationError when neither says.
    """
    where = (namespace or request.namespace or None) if resource.namespaced else None
    if where is None and resource.namespaced:  # it would look as if it were gone
        raise ConfigurationError(
            f"{resource.kind} objects are in namespaces and {main.kind} {request.name} is in none: say in which"
            ' one it is, by namespace="…", or of what is applied by ObjectMeta(name="…", namespace="…")'
        )
    return where


def names_of(thing: Kind, name: str, namespace: str, verb: str) -> tuple[str, str]:
    """Name and namespace of an object that `verb` was given; what its metadata does not say may be said besides.

    Raises: ConfigurationError for another name or namespace than its own: nobody knows which of the two is meant.
    """
    said = {"name": (thing.metadata.name, name), "namespace": (thing.metadata.namespace, namespace)}
    for what, (own, given) in said.items():
        if own and given and own != given:
            kind = type(thing).__qualname__
            raise ConfigurationError(
                f"ctx.{verb}(…) was given a {kind} whose {what} is {own!r}, and {what} {given!r}: leave out the latter,"
                f" or name the object by its class, ctx.{verb}({kind}, name, namespace=…)"
            )
    return thing.metadata.name or name, thing.metadata.namespace or namespace


def check_class(kind: object, verb: str) -> None:
    """Raises: ConfigurationError for an object, whose name `verb` would not look at."""
    if isinstance(kind, Kind):
        named = type(kind).__qualname__
        raise ConfigurationError(f"ctx.{verb}(…) was given a {named}: name its class, ctx.{verb}({named}, name, …)")

"""What a custom resource's class says of itself, beside its fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shardsdk.errors import ConfigurationError
from shardsdk.kinds.base import Kind
from shardsdk.kinds.markers import Column, Scale
from shardsdk.protocol.objects import Resource


@dataclass(frozen=True, slots=True)
class Part:
    """`spec` or `status` of a custom resource."""

    model: Any
    #: An object without it cannot be.
    required: bool


@dataclass(frozen=True, slots=True)
class Declaration:
    """What a custom resource's class says of itself, beside its fields; it goes into the CRD."""

    resource: Resource
    parts: Mapping[str, Part]
    singular: str
    short_names: tuple[str, ...]
    categories: tuple[str, ...]
    columns: tuple[Column, ...]
    scale: Scale | None
    storage: bool | None
    served: bool
    deprecated: str | None


def declaration_of(kind: type[Kind]) -> Declaration:
    """What a custom resource's class says of itself.  Raises: ConfigurationError for another kind."""
    found = getattr(kind, "__declaration__", None)
    if isinstance(found, Declaration):
        return found
    raise ConfigurationError(f"{kind.__qualname__} is no custom resource: the API server brings its kind along")

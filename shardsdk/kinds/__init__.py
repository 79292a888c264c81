"""Kinds of Kubernetes objects as Python classes.

    from shardsdk.kinds import CustomResource, Model, body_of

    class WebsiteSpec(Model):
        html: str

    class Website(CustomResource[WebsiteSpec], group="example.com", version="v1"):
        '''A page.'''

    body_of(Website("home", WebsiteSpec("<h1>hi</h1>")))

Names are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from shardsdk.kinds import builtin

if TYPE_CHECKING:
    from shardsdk.kinds.base import Kind, Model, resource_of
    from shardsdk.kinds.builtin import *  # noqa: F403  # its `__all__` is added below
    from shardsdk.kinds.conditions import Condition, ConditionStatus
    from shardsdk.kinds.crd import crd_of, crds_of
    from shardsdk.kinds.custom import CustomResource
    from shardsdk.kinds.generation import generate, openapi_path
    from shardsdk.kinds.markers import (
        Column,
        ColumnType,
        Doc,
        Format,
        Length,
        ListType,
        OneOf,
        Pattern,
        Quantity,
        Range,
        Rule,
        Scale,
    )
    from shardsdk.kinds.wire import body_of, merge_patch_of

__all__ = [
    "Column",
    "ColumnType",
    "Condition",
    "ConditionStatus",
    "CustomResource",
    "Doc",
    "Format",
    "Kind",
    "Length",
    "ListType",
    "Model",
    "OneOf",
    "Pattern",
    "Quantity",
    "Range",
    "Rule",
    "Scale",
    "body_of",
    "crd_of",
    "crds_of",
    "generate",
    "merge_patch_of",
    "openapi_path",
    "resource_of",
]
__all__ += builtin.__all__

#: Where each name is defined; tests hold this against `__all__`.
_HOMES: Final = {
    "base": ("Kind", "Model", "resource_of"),
    "conditions": ("Condition", "ConditionStatus"),
    "crd": ("crd_of", "crds_of"),
    "custom": ("CustomResource",),
    "markers": (
        *("Column", "ColumnType", "Doc", "Format", "Length", "ListType", "OneOf", "Pattern", "Quantity", "Range"),
        *("Rule", "Scale"),
    ),
    "generation": ("generate", "openapi_path"),
    "wire": ("body_of", "merge_patch_of"),
}
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names} | {
    name: f"builtin.{module}" for module, names in builtin.HOMES.items() for name in names.split()
}


if not TYPE_CHECKING:  # else every misspelt name would be `Any`

    def __getattr__(name: str) -> Any:
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)

"""What a function of an operator says that it returns, held against the kind that it is for."""

from __future__ import annotations

from collections.abc import Callable
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from shardsdk.errors import ConfigurationError
from shardsdk.kinds import CustomResource, Kind, Model
from shardsdk.kinds.declaration import declaration_of


def check_returns(function: Callable[..., Any], kind: type[Kind], status: type[Any] | None) -> None:
    """Hold the annotation of `function` against `status`, the class of the status of `kind` (`None`: it has none).

    Raises: ConfigurationError when it returns another `Model`; what has no annotation, or one that cannot be read yet,
    is looked at when it has returned.
    """
    try:
        said = get_type_hints(function).get("return")
    except Exception:  # names under TYPE_CHECKING, classes inside of a function
        return
    for choice in get_args(said) if get_origin(said) in (Union, UnionType) else (said,):
        if not isinstance(choice, type) or not issubclass(choice, Model):
            continue
        if status is None or not issubclass(choice, status):
            called = getattr(function, "__qualname__", repr(function))
            raise ConfigurationError(
                f"{called} returns a {choice.__qualname__}, but {wrong_status(kind, status)}{remedy(kind, choice)}"
            )


def wrong_status(kind: type[Kind], status: type[Any] | None) -> str:
    """What the objects have for a status."""
    return f"{kind.__name__} has no status" if status is None else f"the status of {kind.__name__} is another class"


def remedy(kind: type[Kind], returned: type[Any]) -> str:
    """How a kind of the user's own comes to have `returned` as its status; empty: it is not theirs to change."""
    if not issubclass(kind, CustomResource):
        return ""
    spec = declaration_of(kind).parts.get("spec")
    named = getattr(spec.model, "__name__", "Spec") if spec else "None"
    return f"; write `class {kind.__name__}(CustomResource[{named}, {returned.__name__}], …)`"

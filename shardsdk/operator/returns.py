"""What a function of an operator returns, or says that it does, held against the kind that it is for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from types import NoneType, UnionType
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from shardsdk.cache.objects import Request, metadata_of, request_of
from shardsdk.errors import ConfigurationError
from shardsdk.kinds import CustomResource, Kind, Model
from shardsdk.kinds.declaration import declaration_of
from shardsdk.kube.identity import describe_given
from shardsdk.protocol.objects import Resource


def status_of(kind: type[Kind]) -> type[Any] | None:
    """The class of the objects' status; `None`: they have none."""
    declared = next((each.type for each in msgspec.structs.fields(kind) if each.name == "status"), None)
    choices = [each for each in (get_args(declared) or (declared,)) if each not in (None, NoneType)]
    return cast("type[Any]", choices[0]) if choices else None


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
    if issubclass(returned, Kind):
        return "; an object such as `ctx.apply` gives is no status: leave out the `return`"
    if not issubclass(kind, CustomResource):
        return ""
    spec = declaration_of(kind).parts.get("spec")
    named = getattr(spec.model, "__name__", "Spec") if spec else "None"
    return f"; write `class {kind.__name__}(CustomResource[{named}, {returned.__name__}], …)`"


def instead(returned: object) -> str:
    """What is to be done with something that no function returns; empty: nobody knows."""
    if isinstance(returned, BaseException) or (isinstance(returned, type) and issubclass(returned, BaseException)):
        called = (returned if isinstance(returned, type) else type(returned)).__qualname__
        return f"; an error is raised: `raise {called}(…)`"
    if inspect.isawaitable(returned):
        return "; nothing of what is not awaited has run: write `await` before it"
    return ""


def no_requests(thing: object) -> Iterable[Request]:
    """What a mapping means that an index takes the place of."""
    return ()


def requests_of(
    mapping: Callable[[Any], Iterable[str | Request | Kind]], main: Resource, thing: Any
) -> Iterator[Request]:
    """What a mapping of the user's means; a name is one in the namespace of the object that it was asked about.

    Raises: TypeError for what names no object of `main`, which would wake nobody in silence; what else it gave is
    given before.
    """
    found, namespace = mapping(thing), metadata_of(thing).namespace
    if isinstance(found, str) or not isinstance(found, Iterable):
        raise TypeError(f"a mapping returned {describe_given(found)}: return a list of names, [] for none")
    wrong = ""
    for each in found:
        if isinstance(each, str) and main.namespaced and not namespace:
            wrong = wrong or (
                f"a mapping gave a name in the namespace of {metadata_of(thing).name!r}, which is in none:"
                " give a Request(namespace, name)"
            )
            continue
        request = _as_request(each, namespace if main.namespaced else "")
        if not request.name:
            wrong = wrong or f"a mapping gave {_describe(each)}: give a name, a Request(namespace, name), or an object"
        elif bool(request.namespace) is not main.namespaced:
            where = "namespaces: give a Request(namespace, name)" if main.namespaced else "no namespace: give names"
            wrong = wrong or f"a mapping gave {_describe(each)}, but {main.plural} are in {where}"
        else:
            yield request
    if wrong:
        raise TypeError(wrong)


def _describe(given: object) -> str:
    """What a mapping gave, for a message; a name may be out of a Secret."""
    if given == "":
        return "an empty name"
    return f"Request {given}" if type(given) is Request else describe_given(given)


def _as_request(given: str | Request | Kind, namespace: str) -> Request:
    if isinstance(given, str):
        return Request(namespace, given)
    return given if type(given) is Request else request_of(given)

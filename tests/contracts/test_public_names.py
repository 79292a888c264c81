"""The public names are closed: whatever a public signature names can be imported from a place that is public, too.

And the errors among them cross processes, as from the workers of a pool.
"""

from __future__ import annotations

import ast
import builtins
import copy
import inspect
import pickle
import sys
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any, TypeVar

from shardsdk import Permanent, Retry
from shardsdk.admission import Denied
from shardsdk.errors import ApiError, ShardingError
from shardsdk.protocol.objects import GroupResource
from shardsdk.rbac import Right
from shardsdk.testing import RightsLack

#: Modules whose `__all__` is public; docs/sdk/index.md says so.
PUBLIC = (
    "shardsdk",
    "shardsdk.admission",
    "shardsdk.contrib.kopf",
    "shardsdk.contrib.kubernetes",
    "shardsdk.errors",
    "shardsdk.kinds",
    "shardsdk.kube.selectors",
    "shardsdk.logs",
    "shardsdk.operator",
    "shardsdk.queueing.predicates",
    "shardsdk.testing",
    "shardsdk.types",
)


def public_things() -> Iterator[tuple[str, Any]]:
    for name in PUBLIC:
        module = import_module(name)
        for each in module.__all__:
            yield f"{name}.{each}", getattr(module, each)


def signatures(name: str, thing: Any) -> Iterator[tuple[str, Any]]:
    """What has annotations: a function, a class's own fields, its public methods and properties."""
    yield name, thing
    if not inspect.isclass(thing):
        return
    for each, value in vars(thing).items():
        if each.startswith("_") and each not in ("__init__", "__call__", "__aenter__", "__enter__", "__iter__"):
            continue
        function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if inspect.isfunction(function):
            yield f"{name}.{each}", function


def private_names(name: str, thing: Any, known: set[int]) -> Iterator[str]:
    for place, each in signatures(name, thing):
        for field, annotation in written(each).items():
            if field.startswith("_") or not isinstance(annotation, str):
                continue
            module = sys.modules[each.__module__]
            for node in ast.walk(ast.parse(annotation, mode="eval")):
                if isinstance(node, ast.Name) and is_private(node.id, module, known):
                    yield f"{place}: {node.id}"


def written(thing: Any) -> dict[str, Any]:
    """As they are written; of a class its own alone."""
    own = vars(thing) if inspect.isclass(thing) else {"__annotations__": getattr(thing, "__annotations__", {})}
    return dict(own.get("__annotations__", {}))


def is_private(name: str, module: ModuleType, known: set[int]) -> bool:
    """Whether `name`, as it is written in `module`, is the project's and not public."""
    if hasattr(builtins, name):
        return False
    value = vars(module).get(name)
    if value is None:  # imported for type checkers alone
        value = imported(name, module)
    if isinstance(value, TypeVar) or inspect.ismodule(value) or type(value).__name__ in ("ParamSpec", "TypeVar"):
        return False
    home = getattr(value, "__module__", "")
    if inspect.isclass(value) and not home.startswith("shardsdk"):
        return False
    if home == "typing" and hasattr(sys.modules["typing"], name):
        return False
    return id(value) not in known


def imported(name: str, module: ModuleType) -> Any:
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if (
            isinstance(node, ast.ImportFrom)
            and node.module
            and name in [each.asname or each.name for each in node.names]
        ):
            return getattr(import_module(node.module), name)
        if isinstance(node, ast.Import) and name in [each.asname or each.name for each in node.names]:
            return import_module(name)
    return None


def test_every_name_in_a_public_signature_is_public() -> None:
    things = list(public_things())
    known = {id(thing) for _, thing in things}

    assert sorted({problem for name, thing in things for problem in private_names(name, thing, known)}) == []


class NotIssued(Retry):
    """One of a user's, which is made in another way."""

    def __init__(self, name: str) -> None:
        super().__init__(f"certificate {name} is not issued yet", after=30)


def every_error() -> Iterator[Exception]:
    told: dict[type, dict[str, Any]] = {
        Retry: {"after": 30},
        Denied: {"field": "spec.html"},
        Permanent: {"reason": "UnknownRegion", "condition": "Issued"},
    }
    answered: dict[str, Any] = {"status": 429, "reason": "TooManyRequests", "retry_after_seconds": 1.5, "said": "later"}
    raised: dict[type, Exception] = {RightsLack: RightsLack("pages", [Right("get", GroupResource("", "secrets"))])}
    for _, each in public_things():
        if inspect.isclass(each) and issubclass(each, ShardingError):
            yield each("why", **(answered if issubclass(each, ApiError) else told.get(each, {})))
        elif inspect.isclass(each) and issubclass(each, Exception):
            yield raised[each]
    yield NotIssued("web")


def test_every_public_error_can_be_copied_and_pickled() -> None:
    for error in every_error():
        error.add_note("in a worker")
        for made in (copy.copy(error), copy.deepcopy(error), pickle.loads(pickle.dumps(error))):
            assert (type(made), str(made), made.args, vars(made)) == (type(error), str(error), error.args, vars(error))

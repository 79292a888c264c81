"""What a reconcile function of an operator is declared with; refused, where it is written, if it cannot work."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from shardsdk.errors import ConfigurationError
from shardsdk.kinds import Kind, resource_of
from shardsdk.operator.returns import check_returns, status_of
from shardsdk.queueing.functions import check_no_generator
from shardsdk.queueing.predicates import Predicate, check_predicate
from shardsdk.queueing.queue import RateLimit
from shardsdk.reconcile.spec import Scope

_A_CLASS: Final = "name the class of the objects, such as Secret of shardsdk.kinds or one of your own"


@dataclass(frozen=True, slots=True)
class Settings:
    """How a reconcile function is called; see `ControllerSpec.options`."""

    concurrency: int = 1
    timeout_seconds: float | None = None
    drain_timeout_seconds: float | None = None
    rate_limit: RateLimit | None = None
    max_writes: int | None = None


@dataclass(frozen=True, slots=True)
class Declared:
    """What a reconcile function was declared with.  Raises: ConfigurationError for what is no predicate."""

    kind: type[Kind]
    operator: str
    name: str
    owns: tuple[type[Kind], ...]
    pruned: bool
    scope: Scope | None
    when: Predicate
    settings: Settings
    #: Called with what is declared of it later; raises ConfigurationError where nothing would come of that.
    check: Callable[[str], object] = str

    def __post_init__(self) -> None:
        check_predicate(self.when)


def check_kinds(kind: object, owns: object) -> tuple[type[Kind], ...]:
    """What a function is declared to own.  Raises: ConfigurationError for what is no class of objects."""
    if not isinstance(kind, type):
        if named := getattr(kind, "__name__", ""):
            raise ConfigurationError(
                f"{named} is decorated without a kind: write @operator.reconcile(Secret) above it, with the class of"
                " its objects"
            )
        raise ConfigurationError(f"reconcile({kind!r}): {_A_CLASS}")
    if isinstance(owns, type):
        raise ConfigurationError(f"reconcile({kind.__name__}): write owns=[{owns.__name__}], a list")
    owned: tuple[Any, ...] = tuple(owns) if isinstance(owns, Iterable) else (owns,)
    for each in owned:
        if not isinstance(each, type):
            raise ConfigurationError(f"reconcile({kind.__name__}): owns has {each!r}; {_A_CLASS}")
    resources = [resource_of(each).group_resource for each in owned]
    for each, resource in zip(owned, resources, strict=True):
        if resources.count(resource) > 1:
            raise ConfigurationError(f"reconcile({kind.__name__}): owns has {each.__name__} objects twice: name one")
    return owned


def check_function(function: Callable[..., Any], declared: Declared) -> None:
    """Raises: ConfigurationError."""
    if not callable(function):
        raise ConfigurationError(f"reconcile({declared.kind.__qualname__}) decorates a function, not {function!r}")
    check_takes_context(function, declared.kind)
    for kind in declared.owns:
        if resource_of(kind).group_resource == resource_of(declared.kind).group_resource:
            raise ConfigurationError(f"{kind.__qualname__} objects cannot own one another: take it out of owns=")
    check_returns(function, declared.kind, status_of(declared.kind))


def check_takes_context(function: Callable[..., Any], kind: type[Kind]) -> None:
    """Raises: ConfigurationError."""
    check_no_generator(function)
    name = getattr(function, "__name__", "reconcile")
    try:
        inspect.signature(function).bind(None)
    except ValueError:
        pass  # written in C: nobody knows
    except TypeError as error:
        raise ConfigurationError(
            f"{name} is called with the context alone ({error}): write `def {name}(ctx: Context[{kind.__name__}])`"
        ) from error

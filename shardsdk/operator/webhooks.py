"""The webhooks of an operator: what `validate` and `mutate` were given, checked where it is written, and served."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeVar, get_args

import msgspec

from shardsdk.admission.review import Operation
from shardsdk.admission.settings import Serving, stop_seconds
from shardsdk.admission.webhook import FailurePolicy, Sort, Webhook
from shardsdk.errors import ConfigurationError
from shardsdk.kinds import Kind, resource_of
from shardsdk.operator.declaring import Declaring
from shardsdk.process.manager import Manager
from shardsdk.protocol.labels import is_label_key
from shardsdk.protocol.names import is_dns_label
from shardsdk.protocol.objects import NAMESPACES
from shardsdk.reconcile.spec import Scope

F = TypeVar("F", bound=Callable[..., Any])

#: What is about to be done with an object, as it is written where a webhook is declared.
On = Literal["create", "update", "delete"]
#: What a validating function returns: warnings for whoever asked.
Warnings = str | Sequence[str] | None
Validated = TypeVar("Validated", bound=Warnings | Awaitable[Warnings])
#: What a mutating one returns: an object in place of the one that came, or nothing.
Mutated = TypeVar("Mutated", bound=Kind | Awaitable[Kind | None] | None)

#: What API servers wait by default is 10 s; a person who waits for kubectl is answered sooner.
TIMEOUT_SECONDS: Final = 5
#: Source: admissionregistration/v1, timeoutSeconds and matchConditions.
MAX_TIMEOUT_SECONDS: Final = 30
MAX_CONDITIONS: Final = 62  # two are ours
_NO_LABEL: Final = re.compile(r"[^a-z0-9]+")


class _Term(msgspec.Struct, forbid_unknown_fields=True):
    """One of a LabelSelector's matchExpressions."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: list[str] = []


class _LabelSelector(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """What a selector may have: API servers drop what else is in one, and select everything by what is left."""

    match_labels: dict[str, str] = {}
    match_expressions: list[_Term] = []


class Declarations:
    """Collects webhooks of the operator called `operator`."""

    def __init__(self, operator: str, declaring: Declaring) -> None:
        self.all: Final[list[Webhook]] = []
        self._operator = operator
        self._declaring = declaring

    def add(
        self,
        sort: Sort,
        kind: type[Kind],
        *,
        on: Iterable[On],
        on_failure: FailurePolicy,
        timeout_seconds: int,
        namespace_selector: Mapping[str, Any] | None,
        object_selector: Mapping[str, Any] | None,
        match_conditions: Sequence[str] | Mapping[str, str],
        name: str,
    ) -> Callable[[F], F]:
        """What decorates the function.  Raises: ConfigurationError."""
        resource = resource_of(kind)
        operations = self._operations(sort, kind, on)
        if on_failure not in get_args(FailurePolicy):
            raise ConfigurationError(f'on_failure={on_failure!r} is no failure policy: write "Fail" or "Ignore"')
        if type(timeout_seconds) is not int or not 1 <= timeout_seconds <= MAX_TIMEOUT_SECONDS:
            raise ConfigurationError(
                f"timeout_seconds={timeout_seconds!r} cannot be waited: use 1 to {MAX_TIMEOUT_SECONDS}, in whole"
                " seconds"
            )
        for option, selector in (("namespace_selector", namespace_selector), ("object_selector", object_selector)):
            _check_selector(option, selector or {})
        if namespace_selector and not resource.namespaced and resource.group_resource != NAMESPACES.group_resource:
            raise ConfigurationError(f"{kind.__qualname__} is in no namespace: use object_selector= for its own labels")
        conditions = _conditions(match_conditions)

        def declare(function: F) -> F:
            self._declaring.check(f"{sort.value}({kind.__qualname__})")
            label = name or _NO_LABEL.sub("-", getattr(function, "__name__", "").lower()).strip("-")
            if not is_dns_label(label):
                raise ConfigurationError(
                    f"a webhook cannot be called {label!r}: pass name= with up to 63 lower-case letters, digits and '-'"
                )
            webhook = Webhook(
                sort,
                kind,
                function,
                f"{label}.{resource.plural}.{resource.group or 'core'}",
                operations,
                on_failure,
                timeout_seconds,
                dict(namespace_selector or {}),
                dict(object_selector or {}),
                conditions,
            )
            if any(each.path == webhook.path for each in self.all):
                raise ConfigurationError(
                    f"operator {self._operator!r} has two webhooks called {webhook.name!r}: pass name= to one"
                )
            self.all.append(webhook)
            return function

        return declare

    def serve_by(
        self, manager: Manager, serving: Serving, namespace: str | None, render: Callable[..., list[dict[str, Any]]]
    ) -> None:
        """Have every replica that `manager` runs serve them, whoever leads; `render` gives their configurations."""
        from shardsdk.admission.metrics import WebhookMetrics
        from shardsdk.admission.service import WebhookService  # and what HTTP takes

        service = WebhookService(
            self._operator,
            self.all,
            serving,
            namespace=namespace,
            stopping=manager.stopping,
            metrics=WebhookMetrics(manager.metrics.registry),
            render=lambda where, client, name, bundle: render(
                where, client_config=client, name=name, ca_bundle=bundle, namespaces=manager.watch_namespaces
            ),
        )
        manager.add_ready_check("webhooks", service.check_ready)
        manager.run_task(service.run, name="webhooks", scope=Scope.EVERYWHERE, grace_seconds=stop_seconds(self.all))

    def _operations(self, sort: Sort, kind: type[Kind], on: Iterable[On]) -> tuple[Operation, ...]:
        asked = [on] if isinstance(on, str) else list(on)
        unknown = [each for each in asked if each not in get_args(On)]
        if unknown or not asked:
            raise ConfigurationError(
                f'{sort.value}({kind.__qualname__}, on={asked!r}): name some of "create", "update", "delete"'
            )
        if sort is Sort.MUTATE and "delete" in asked:
            raise ConfigurationError(
                f"{kind.__qualname__}: what is to be deleted cannot be changed; validate its deletion, or write a"
                " finalizer"
            )
        return tuple(Operation[each.upper()] for each in dict.fromkeys(asked))


def _check_selector(option: str, selector: Any) -> None:
    """Raises: ConfigurationError for what is no LabelSelector."""
    try:
        msgspec.convert(selector, _LabelSelector)
    except msgspec.ValidationError as error:
        raise ConfigurationError(
            f"{option}={selector!r} is no LabelSelector: {error}; write labels as in"
            ' {"matchLabels": {"app": "mine"}}, and terms under "matchExpressions"'
        ) from error


def _conditions(given: Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    """The CEL expressions by their names.  Raises: ConfigurationError."""
    named = given if isinstance(given, Mapping) else {f"condition-{at}": each for at, each in enumerate(given, 1)}
    texts = [each for condition in named.items() for each in condition]
    if isinstance(given, str) or len(named) > MAX_CONDITIONS or not all(isinstance(each, str) for each in texts):
        raise ConfigurationError(f"match_conditions= takes a list of up to {MAX_CONDITIONS} CEL expressions")
    if unfit := [name for name in named if not is_label_key(name)]:
        raise ConfigurationError(
            f"match_conditions= has one called {unfit[0]!r}, which none can be: use up to 63 letters, digits, '-', '_'"
            " and '.', beginning and ending with a letter or digit"
        )
    return dict(named)

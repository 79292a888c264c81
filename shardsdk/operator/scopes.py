"""Where the functions of an operator run that say so themselves, and where its others do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from shardsdk.errors import ConfigurationError
from shardsdk.lease.leadership import Election
from shardsdk.reconcile.spec import ControllerSpec, Scope, TaskSpec


def check_scopes(operator: str, specs: Iterable[ControllerSpec[Any]], tasks: Iterable[TaskSpec]) -> None:
    """Raises: ConfigurationError for what is to run on the shards of an operator that is not sharded."""
    named = [*((f"controller {spec.title!r}", spec.scope) for spec in specs)]
    named += [(f"task {task.name!r}", task.scope) for task in tasks]
    for what, scope in named:
        if scope is Scope.SHARDED:
            raise ConfigurationError(
                f"{what} has scope=Scope.SHARDED, but operator {operator!r} is not sharded: pass sharded=True, or leave"
                " out the scope"
            )


def elected(
    operator: str, scopes: Iterable[Scope | None], settings: dict[str, Any], *, sharded: bool
) -> dict[str, Any]:
    """The `settings` of its manager, with an election where something of these scopes runs on the leader."""
    default = Scope.SHARDED if sharded else Scope.LEADER
    if settings.get("election") is not None or Scope.LEADER not in {scope or default for scope in scopes}:
        return settings
    return {**settings, "election": Election(operator, settings.get("namespace"))}

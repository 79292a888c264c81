"""Looks up what the API server calls a ring's resources.

Does: ask for all of them side by side, each for a limited time, and leave out what
nobody can tell at present: an API group that does not answer keeps only those of
the ring's resources from being placed that have to do with it.

Refuses: to place owners while one of the resources that they control cannot be
looked up: their children could not be moved along.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Final

from sharder.core.ringspec import MainSpec, ResolvedRing, RingSpec, resolve
from sharder.core.selectors import LabelSelector
from shardsdk.errors import ConnectionFailed, RetryRule, ShardingError
from shardsdk.kube.api import Api
from shardsdk.protocol.objects import GroupResource, Resource

#: How long an API group may take to say what it serves.
ANSWER_SECONDS: Final = 5.0

#: Resources of which nobody can tell what they are called, and why.
Unanswered = tuple[tuple[GroupResource, str], ...]


class NotLookedUp(ShardingError):
    """None of a ring's main resources can be looked up at present; `unanswered` says why."""

    retry: ClassVar[RetryRule] = RetryRule.BACKOFF

    def __init__(self, unanswered: Unanswered) -> None:
        super().__init__("; ".join(f"{name}: {error}" for name, error in unanswered))
        self.unanswered = unanswered


@dataclass(frozen=True, slots=True)
class Answers:
    """What is `served` (`None`: it is not), and `failures`: of what nobody can tell."""

    served: dict[GroupResource, Resource | None]
    failures: dict[GroupResource, ShardingError]


@dataclass(frozen=True, slots=True)
class Resolution:
    """A ring as far as it could be looked up.

    `unserved`: what the API server does not serve.  `unanswered`: what nobody
    can tell, and why; mains are left out with all that they control.
    """

    ring: ResolvedRing
    unserved: tuple[GroupResource, ...] = ()
    unanswered: Unanswered = ()


@dataclass(frozen=True, slots=True)
class Unresolved:
    """A spec that could not be looked up even once: its generation, who does not answer, and `since` when."""

    generation: int
    unanswered: Unanswered
    since: datetime


async def resolve_ring(
    api: Api, spec: RingSpec, default_scope: LabelSelector, before: ResolvedRing | None = None
) -> Resolution:
    """Look up the ring's resources; what was known `before` still is, where there is no answer.

    Raises: NotLookedUp, where no main resource is left.
    """
    known = {each.resource.group_resource: each.resource for each in before.subjects()} if before is not None else {}
    answers = await look_up(api, spec.named)
    failures = {name: error for name, error in answers.failures.items() if name not in known}
    served = answers.served | {name: known[name] for name in answers.failures if name in known}
    unanswered = tuple((name, str(error)) for name, error in failures.items())
    held_up = [main for main in spec.resources if failures.keys() & _named(main)]
    if failures and len(held_up) == len(spec.resources):
        raise NotLookedUp(unanswered)
    for main in held_up:
        served[main.resource] = None
    ring, missing = resolve(spec, served, default_scope)
    away = {name for main in held_up for name in _named(main)}
    return Resolution(ring, tuple(name for name in missing if name not in away), unanswered)


async def look_up(api: Api, names: Iterable[GroupResource]) -> Answers:
    """Ask for all of them side by side, each for `ANSWER_SECONDS` at most."""
    asked = tuple(dict.fromkeys(names))
    found = Answers({}, {})
    for name, answer in zip(asked, await asyncio.gather(*(_discover(api, name) for name in asked)), strict=True):
        if isinstance(answer, ShardingError):
            found.failures[name] = answer
        else:
            found.served[name] = answer
    return found


def _named(main: MainSpec) -> set[GroupResource]:
    return {main.resource, *main.controlled}


async def _discover(api: Api, name: GroupResource) -> Resource | ShardingError | None:
    """What it is called, `None` if it is not served, or why nobody can tell."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            return await api.discover(name.group, name.resource)
    except TimeoutError:
        return ConnectionFailed(f"looking up {name}: no answer within {ANSWER_SECONDS:g} s")
    except ShardingError as error:
        return error

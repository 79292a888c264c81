"""Looks up what the API server calls a ring's resources.

Does: ask for all of them side by side, and leave out what nobody can tell at
present: an API group that does not answer keeps only those of the ring's
resources from being placed that have to do with it.

Refuses: to place owners while one of the resources that they control cannot be
looked up: their children could not be moved along.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from sharder.core.ringspec import MainSpec, ResolvedRing, RingSpec, resolve
from sharder.core.selectors import LabelSelector
from shardsdk.errors import ConnectionFailed, ShardingError
from shardsdk.kube.api import Api
from shardsdk.protocol.objects import GroupResource, Resource

#: How long an API group may take to say what it serves.
ANSWER_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Resolution:
    """A ring as far as it could be looked up.

    `unserved`: what the API server does not serve.  `unanswered`: what nobody
    can tell, and why; mains are left out with all that they control.
    """

    ring: ResolvedRing
    unserved: tuple[GroupResource, ...] = ()
    unanswered: tuple[tuple[GroupResource, str], ...] = ()


async def resolve_ring(
    api: Api, spec: RingSpec, default_scope: LabelSelector, before: ResolvedRing | None = None
) -> Resolution:
    """Look up the ring's resources; what was known `before` still is, where there is no answer.

    Raises: what the first lookup raised, where no main resource is left.
    """
    known = {each.resource.group_resource: each.resource for each in before.subjects()} if before is not None else {}
    names = tuple(dict.fromkeys(spec.named))
    answers = await asyncio.gather(*(_discover(api, name) for name in names))
    served: dict[GroupResource, Resource | None] = {}
    failures: dict[GroupResource, ShardingError] = {}
    for name, answer in zip(names, answers, strict=True):
        if not isinstance(answer, ShardingError):
            served[name] = answer
        elif name in known:
            served[name] = known[name]
        else:
            failures[name] = answer
    held_up = [main for main in spec.resources if failures.keys() & _named(main)]
    if failures and len(held_up) == len(spec.resources):
        raise next(iter(failures.values()))
    for main in held_up:
        served[main.resource] = None
    ring, missing = resolve(spec, served, default_scope)
    away = {name for main in held_up for name in _named(main)}
    return Resolution(
        ring,
        tuple(name for name in missing if name not in away),
        tuple((name, str(error)) for name, error in failures.items()),
    )


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

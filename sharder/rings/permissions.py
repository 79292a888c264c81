"""Which rights the sharder lacks on the resources of one ring.

Refuses: to grant any, and to infer a right from what has worked: what is needed is asked for by name.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from sharder.core.status import RULES_OF_SCOPE, MissingRule
from sharder.rbac import RING_VERBS
from shardsdk.errors import FenceClosed, ShardingError
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock
from shardsdk.protocol.objects import GroupResource
from shardsdk.protocol.ranges import RING_ASSIGNMENTS

log = logging.getLogger(__name__)

#: Without these nothing of a resource is placed; without `watch` it is, at the pace of resyncs.
NEEDED_VERBS: Final = ("list", "patch")
#: How long granted permissions are believed, and missing ones before they are asked for again.
GRANTED_SECONDS: Final = 60.0
DENIED_SECONDS: Final = 3.0
#: An answer is asked for again no sooner than this, however old the last one is.
MIN_PAUSE_SECONDS: Final = 0.05


def rules_of_labels(resources: Iterable[GroupResource]) -> tuple[MissingRule, ...]:
    """What it takes to label objects of `resources`."""
    rules = (MissingRule(verb, resource) for resource in resources for verb in RING_VERBS)
    return tuple(dict.fromkeys((*rules, *RULES_OF_SCOPE)))  # a ring may list namespaces as well


#: What it takes to assign ranges; nothing of the ring's resources.
RULES_OF_RANGES: Final = (
    *(MissingRule(verb, RING_ASSIGNMENTS.group_resource) for verb in ("get", "list", "watch", "create", "patch")),
    *RULES_OF_SCOPE,
)


class PermissionsCheck:
    """Asks what is missing, and believes an answer for a while; `denied` is what it was last told."""

    def __init__(self, ring: str, api: Api, clock: Clock) -> None:
        self._ring = ring
        self._api = api
        self._clock = clock
        self.denied: tuple[MissingRule, ...] = ()
        self._asked_at = float("-inf")
        self._asked_for: tuple[MissingRule, ...] | None = None

    async def denied_on(self, resources: Iterable[GroupResource]) -> frozenset[GroupResource]:
        """Those of `resources` of which nothing could be placed; where nobody can tell, it is believed that it can."""
        lately = self._clock.monotonic() - self._asked_at < DENIED_SECONDS
        denied = set()
        for resource in resources:
            for verb in NEEDED_VERBS:
                rule = MissingRule(verb, resource)
                if (lately and rule in self.denied) or not await self._may(rule):
                    denied.add(resource)
                    break
        return frozenset(denied)

    async def _may(self, rule: MissingRule) -> bool:
        try:
            return await self._api.allowed(rule.verb, rule.resource)
        except FenceClosed:
            raise
        except ShardingError:
            return True  # `check` asks again, and says why nobody answers

    async def check(self, rules: tuple[MissingRule, ...], *, forbidden: bool) -> float:
        """Ask, unless that was done lately; `forbidden`: a watch has just been forbidden.

        Returns in how many seconds to check again.
        """
        now = self._clock.monotonic()
        believed = DENIED_SECONDS if self.denied or forbidden else GRANTED_SECONDS
        if self._asked_for != rules or now - self._asked_at >= believed:
            denied = [rule for rule in rules if not await self._api.allowed(rule.verb, rule.resource)]
            if self.denied and not denied:
                log.info("permissions granted", extra={"ring": self._ring})
            self.denied, self._asked_at, self._asked_for = tuple(denied), now, rules
            believed = DENIED_SECONDS if denied else GRANTED_SECONDS
        return max(MIN_PAUSE_SECONDS, self._asked_at + believed - now)

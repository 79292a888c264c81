"""Which rights the sharder lacks on the resources of one ring.

Refuses: to grant any, and to infer a right from what has worked: what is needed is asked for by name.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from sharder.core.rights import OWN_RULES, MissingRule
from sharder.rbac import rules_on
from shardsdk.errors import FenceClosed, ShardingError
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock
from shardsdk.protocol.objects import GroupResource
from shardsdk.protocol.ranges import RING_ASSIGNMENTS

log = logging.getLogger(__name__)

#: Without these nothing of a resource is placed; without `watch` it is, at the pace of resyncs.
NEEDED_VERBS: Final = ("list", "patch")
#: How long granted permissions are believed, and missing ones at least, before they are asked for again.
GRANTED_SECONDS: Final = 60.0
DENIED_SECONDS: Final = 3.0
#: What has been missing for long is believed longer, up to GRANTED_SECONDS: this part of the time that it has been.
DENIED_PART: Final = 0.1
#: An answer is asked for again no sooner than this, however old the last one is.
MIN_PAUSE_SECONDS: Final = 0.05


def rules_of_labels(resources: Iterable[GroupResource]) -> tuple[MissingRule, ...]:
    """What it takes to label objects of `resources`."""
    return tuple(dict.fromkeys((*rules_on(resources), *OWN_RULES)))  # a ring may list namespaces or leases as well


#: What it takes to assign ranges; nothing of the ring's resources.
RULES_OF_RANGES: Final = (
    *(MissingRule(verb, RING_ASSIGNMENTS.group_resource) for verb in ("get", "list", "watch", "create", "patch")),
    MissingRule("patch", RING_ASSIGNMENTS.group_resource, "status"),
    *OWN_RULES,
)


class PermissionsCheck:
    """Asks what is missing, and believes an answer for a while; `denied` is what it was last told."""

    def __init__(self, ring: str, api: Api, clock: Clock) -> None:
        self._ring = ring
        self._api = api
        self._clock = clock
        self.denied: tuple[MissingRule, ...] = ()
        self._asked_at = self._asked_all_at = float("-inf")
        #: Since when just that is denied, or watches are forbidden all the same.
        self._since = clock.monotonic()
        self._asked_for: tuple[MissingRule, ...] | None = None
        self._forbidden = False

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
            return await self._allowed(rule)
        except FenceClosed:
            raise
        except ShardingError:
            return True  # `check` asks again, and says why nobody answers

    async def _allowed(self, rule: MissingRule) -> bool:
        return await self._api.allowed(rule.verb, rule.resource, subresource=rule.subresource)

    async def check(self, rules: tuple[MissingRule, ...], *, forbidden: bool) -> float:
        """Ask, unless that was done lately; `forbidden`: a watch has just been forbidden.

        While something is missing, that alone is asked for, and everything as often as when nothing is.
        Returns in how many seconds to check again.
        """
        now = self._clock.monotonic()
        if forbidden and not self._forbidden:
            # Something was taken away: everything is asked for at once, or soon if that was done a moment ago.
            self._asked_all_at -= GRANTED_SECONDS - DENIED_SECONDS
        self._forbidden = forbidden
        if not (self.denied or forbidden):
            self._since = now
        believed = self._believed(now) if self.denied or forbidden else GRANTED_SECONDS
        all_believed = GRANTED_SECONDS if self.denied else believed
        if self._asked_for != rules or now - self._asked_all_at >= all_believed:
            await self._ask(rules, now)
            self._asked_for, self._asked_all_at = rules, now
        elif self.denied and now - self._asked_at >= believed:
            await self._ask(self.denied, now)
        if self._asked_at == now:
            believed = self._believed(now) if self.denied else GRANTED_SECONDS
        due = min(self._asked_at + believed, self._asked_all_at + GRANTED_SECONDS)
        return max(MIN_PAUSE_SECONDS, due - now)

    async def _ask(self, rules: tuple[MissingRule, ...], now: float) -> None:
        denied = tuple([rule for rule in rules if not await self._allowed(rule)])
        if self.denied and not denied:
            log.info("permissions granted", extra={"ring": self._ring})
        if denied != self.denied:
            self._since = now  # whoever has just granted something may be granting more
        self.denied, self._asked_at = denied, now

    def _believed(self, now: float) -> float:
        """How long the last answers are believed while something is missing."""
        return min(max(DENIED_SECONDS, DENIED_PART * (now - self._since)), GRANTED_SECONDS)

"""What the controllers of one leadership work with.

Refuses: to hold code; the process, the watches that all rings share and the metrics bring it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Protocol

from sharder.controllers.crowd import Crowd
from sharder.controllers.holds import CommitProof
from sharder.controllers.namespaces import Namespaces
from sharder.controllers.seen import Placed
from sharder.controllers.webhookconfigurations import WebhookConfigurations
from sharder.core.decisions import Decision
from sharder.core.takeover import Limits
from sharder.core.webhookconfig import WEBHOOK_TIMEOUT_SECONDS
from shardsdk.kube.api import Api, Fence
from shardsdk.kube.clock import Clock
from shardsdk.runtime.events import EventType, Regarding

#: A drain that waits longer than this shows as a condition and an Event.
DRAIN_ALARM_SECONDS: Final = 60.0


class Counters(Protocol):
    """Where it is counted what was done, and shown how a ring is."""

    def placed(self, ring: str, placed: Placed, decision: Decision, seconds: float) -> None:
        """An object changed hands `seconds` after it was first seen to need it."""

    def resynced(self, ring: str, objects: int, misplaced: int, seconds: float) -> None:
        """A resync has gone through everything."""

    def took_over(self, ring: str) -> None:
        """The lease of a shard was acquired."""

    def conditions(self, ring: str, conditions: Mapping[str, bool | None]) -> None:
        """Which conditions hold, as written to the ring's status (`None`: unknown)."""


class Recorder(Protocol):
    """Writes Events."""

    def event(self, regarding: Regarding, event_type: EventType, reason: str, message: str) -> None:
        """Have an Event written; never fails, never waits."""


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """How the API server reaches the webhook, and when.

    `ca_bundle()` is None where it is not ours to inject. `account()` is the user
    name under which the sharder writes, empty while it is not known.
    """

    client_config: Mapping[str, Any]
    annotations: Mapping[str, str]
    ca_bundle: Callable[[], bytes | None]
    account: Callable[[], str] = lambda: ""
    timeout_seconds: int = WEBHOOK_TIMEOUT_SECONDS


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast things are done, and how often; seconds, and numbers of things at once.

    `takeovers` and `rings`: leases, and rings' surroundings, worked on at once, of all rings together.
    """

    concurrent_moves: int
    sync_period_seconds: float
    settle_after_seconds: float
    drain_alarm_seconds: float
    takeovers: asyncio.Semaphore
    rings: asyncio.Semaphore


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the controllers of one leadership work with.

    `leader` is the lead as most writes need it; `confirmed` for those that late would do harm.
    `webhook` None: no webhook configurations; those that are there are removed.
    """

    api: Api
    leader: Fence
    confirmed: Fence
    proof: CommitProof
    limits: Limits
    webhook: WebhookSettings | None
    recorder: Recorder
    counters: Counters
    pace: Pace
    clock: Clock
    rng: Random
    namespaces: Namespaces
    configurations: WebhookConfigurations
    crowd: Crowd

"""What the controllers of one leadership's rings work with.

Refuses: to hold code; the process, and the watches that all rings share, bring it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sharder.cache.namespaces import Namespaces
from sharder.core.ringspec import AssignBy
from sharder.core.takeover import Limits
from sharder.core.webhookconfig import WEBHOOK_TIMEOUT_SECONDS
from sharder.rings.assignment import Assign
from sharder.rings.other_leaders import OtherLeaders
from sharder.rings.watch_count import WatchCount
from sharder.rings.webhook_configurations import WebhookConfigurations
from sharder.takeover.fences import CommitProof
from sharder.takeover.leadership import Leadership
from shardsdk.lease.election import Recorder

#: Rings whose removed resources are looked up side by side.
LOOKUPS_AT_ONCE: Final = 4
#: A drain that waits longer than this shows as a condition and an Event.
DRAIN_ALARM_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """How the API server reaches the webhook, and when.

    `ca_bundle()` is None where it is not ours to inject. `authority_missing()` says
    why it is ours and not known (None: it is known, or not ours; empty: it is being read). `account()` is the
    user name under which the sharder writes, empty while it is not known.
    """

    client_config: Mapping[str, Any]
    annotations: Mapping[str, str]
    ca_bundle: Callable[[], bytes | None]
    account: Callable[[], str] = lambda: ""
    authority_missing: Callable[[], str | None] = lambda: None
    timeout_seconds: int = WEBHOOK_TIMEOUT_SECONDS


@dataclass(frozen=True, slots=True)
class RingSettings:
    """How rings are led.

    `assign` makes what gives a ring's objects to its shards, for each way in which rings may ask for it.
    `takeovers` and `reports`: leases, and rings' reports, worked on at once, of all rings together.
    `webhook` None: no webhook configurations; those that are there are removed.
    """

    limits: Limits
    assign: Mapping[AssignBy, Assign]
    webhook: WebhookSettings | None
    drain_alarm_seconds: float
    takeovers: asyncio.Semaphore
    reports: asyncio.Semaphore


@dataclass(frozen=True, slots=True)
class RingDeps:
    """What the controller of a ring is handed; all but the settings is shared by the rings of one leadership.

    `lookups`: rings whose removed resources are looked up at once.
    `on_settled(ring)` is told when everything has moved that had to.
    """

    leadership: Leadership
    settings: RingSettings
    proof: CommitProof
    recorder: Recorder
    namespaces: Namespaces
    configurations: WebhookConfigurations
    watch_count: WatchCount
    lookups: asyncio.Semaphore
    on_settled: Callable[[str], object]
    others: OtherLeaders

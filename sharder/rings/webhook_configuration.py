"""One ring's MutatingWebhookConfiguration: applied, repaired when somebody changes it, removed with the ring."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from sharder.core.ringspec import ResolvedRing
from sharder.core.webhookconfig import (
    FIELD_MANAGER,
    WEBHOOK_CONFIGURATIONS,
    find_difference,
    find_last_manager,
    find_narrowing,
    render_webhook,
    webhook_name,
    without_additions,
)
from sharder.rings.deps import WebhookSettings
from sharder.rings.webhook_configurations import WebhookConfigurations
from sharder.takeover.leadership import Leadership
from shardsdk.errors import FenceClosed, Forbidden, NotFound, ShardingError
from shardsdk.events.recorder import EventType, Regarding
from shardsdk.kube.api import PatchKind
from shardsdk.kube.backoff import double
from shardsdk.kube.pace import AtMostEvery
from shardsdk.kube.reflector import Delta, EventKind
from shardsdk.lease.election import Recorder
from shardsdk.protocol.objects import CLUSTERRINGS, PartialObject

log = logging.getLogger(__name__)

#: How long somebody else's change of a webhook configuration stays; twice as long each time, where they come one after
#: another: who changes it back each time would keep both of us busy, and every API server that reads it.
REPAIR_SECONDS: Final = 0.5
MAX_REPAIR_SECONDS: Final = 60.0
#: One that was deleted is made anew so soon, for until then nothing calls the webhook; what stays for longer is told.
SOON_SECONDS: Final = 5.0
#: Nobody changes it any more.
CALM_SECONDS: Final = 120.0
#: So many repairs one after another are no accident.
TELL_REPAIRS: Final = 3
#: Between two warnings that somebody adds to it, and that somebody changes it.
TELL_SECONDS: Final = 60.0
TELL_CONTESTED_SECONDS: Final = 600.0
#: While the authority is not known: in how many seconds to look again.
LOOK_SECONDS: Final = 5.0
#: Reason of the Event about somebody who changes it again and again.
CONTESTED: Final = "WebhookContested"
#: While nobody tells of a configuration's changes it is applied again so often.
APPLY_AGAIN_SECONDS: Final = 60.0


class RingWebhook:
    """The configuration of one ring; `settings` None: there is to be none."""

    def __init__(
        self,
        ring: str,
        leadership: Leadership,
        settings: WebhookSettings | None,
        configurations: WebhookConfigurations,
        recorder: Recorder,
    ) -> None:
        self._name = webhook_name(ring)
        self._ring = ring
        self._lead = leadership
        self._settings = settings
        self._configurations = configurations
        self._recorder = recorder
        #: What was applied last, and the version that it became; `None`: something else may be there.
        self._applied: dict[str, Any] | None = None
        self._applied_version = ""
        self._applied_at = float("-inf")
        #: The same, whatever is there.
        self._wanted: dict[str, Any] | None = None
        #: What the watch has told last: the version, and whether that was deleted.
        self._told = ("", True)
        #: When somebody else's change is to be repaired; `None`: there was none.
        self._repair_at: float | None = None
        #: How many were repaired one after another, the last one when.
        self._repairs = 0
        self._repaired_at = float("-inf")
        self._contested_until = float("-inf")
        self._additions = AtMostEvery(TELL_SECONDS)
        #: What was told of an admission plugin that narrows it.
        self._narrowing: list[Any] = []

    @property
    def exists(self) -> bool | None:
        """Whether the watch shows it; `None`: that has shown nothing yet, and may soon."""
        may_soon = not self._configurations.listed and not isinstance(self._configurations.failure, Forbidden)
        return None if may_soon and self._settings is not None else self._configurations.find(self._name) is not None

    @property
    def trouble(self) -> str | None:
        """Why the configuration may be another than the ring asks for; empty: for a moment only. `None`: it is not."""
        if self._settings is None:
            return None
        if (missing := self._settings.authority_missing()) is not None:
            return missing and _render_missing(missing)
        if self._contested:
            return (
                f"somebody changes MutatingWebhookConfiguration {self._name} again and again, so that it may be another"
                f" than the ring asks for, for up to a minute each time; the ring's Event {CONTESTED} says who and what"
            )
        return None

    @property
    def _contested(self) -> bool:
        """Whether somebody's change stays, or the next one would, for longer than a moment."""
        now = self._lead.clock.monotonic()
        waits = self._repair_at is not None and self._repair_at - now > SOON_SECONDS
        return waits or self._repairs_lately(now) > TELL_REPAIRS

    def on_event(self, delta: Delta[PartialObject]) -> float | None:
        """A configuration that concerns the ring has changed: in how many seconds to reconcile; `None`: no need."""
        if delta.object.metadata.name != self._name:
            return 0.0
        self._told = (delta.object.metadata.resource_version, delta.kind is EventKind.DELETED)
        if self._told == (self._applied_version, False):
            return None
        self._applied = None
        now = self._lead.clock.monotonic()
        most = SOON_SECONDS if delta.kind is EventKind.DELETED else MAX_REPAIR_SECONDS
        repair_at = now + double(REPAIR_SECONDS, self._repairs_lately(now), most)
        self._repair_at = repair_at if self._repair_at is None else min(self._repair_at, repair_at)
        return max(self._repair_at - now, 0.0)

    def _repairs_lately(self, now: float) -> int:
        return self._repairs if now - self._repaired_at < CALM_SECONDS else 0

    async def apply(self, resolved: ResolvedRing) -> float | None:
        """Make it as it should be, if it may be otherwise; returns in how many seconds to come again, if need be."""
        settings = self._settings
        if settings is None:
            await self.remove()
            return None
        if settings.authority_missing() is not None:
            # What is there names one, most likely, that others have the certificates of; applied now it would lose it.
            return LOOK_SECONDS
        wanted = render_webhook(
            resolved,
            client_config=settings.client_config,
            ca_bundle=settings.ca_bundle(),
            annotations=settings.annotations,
            account=settings.account(),
            timeout_seconds=settings.timeout_seconds,
        )
        pause = await self._repair(resolved, wanted)
        if pause is None and self._contested:
            pause = self._repaired_at + CALM_SECONDS - self._lead.clock.monotonic()  # it may be over then
        return pause

    async def _repair(self, resolved: ResolvedRing, wanted: dict[str, Any]) -> float | None:
        """Apply what is wanted, if something else may be there; returns in how many seconds, if not yet."""
        now = self._lead.clock.monotonic()
        unwatched = self._configurations.failure is not None and now - self._applied_at >= APPLY_AGAIN_SECONDS
        if wanted == self._applied and not unwatched:
            return None
        repairs = self._repair_at is not None and wanted == self._wanted
        if repairs and self._repair_at is not None and now < self._repair_at:
            return self._repair_at - now
        if repairs and self._repairs_lately(now) >= TELL_REPAIRS and now >= self._contested_until:
            await self._tell_contested(resolved, wanted)
        await self._apply(wanted, repairs=repairs)
        return None

    async def _apply(self, wanted: dict[str, Any], *, repairs: bool) -> None:
        self._repair_at, told_before = None, self._told
        made: dict[str, Any] = await self._lead.api.patch(
            WEBHOOK_CONFIGURATIONS, self._name, None, wanted, kind=PatchKind.APPLY, model=dict,
            field_manager=FIELD_MANAGER, force=True, fences=(self._lead.fence,),
        )  # fmt: skip
        webhooks = without_additions(made, wanted)
        if webhooks is not None:
            made = await self._replace(made, webhooks)
        self._tell_narrowing(find_narrowing(made, wanted))
        self._applied_at = self._lead.clock.monotonic()
        self._applied_version, self._wanted = made["metadata"]["resourceVersion"], wanted
        if self._told == (self._applied_version, False):
            self._repair_at = None  # what was told meanwhile was this
        if repairs and (self._applied_version, False) != told_before:  # else what had changed was nothing of ours
            now = self._lead.clock.monotonic()
            self._repairs, self._repaired_at = self._repairs_lately(now) + 1, now
        # What else the watch has told before the answer came may be newer than ours; a reconcile is on its way.
        self._applied = wanted if self._told in (told_before, (self._applied_version, False)) else None
        log.info("webhook configuration applied", extra={"ring": self._ring})

    def _tell_narrowing(self, added: list[Any]) -> None:
        """Tell once what the answer to our own apply shows beside it, which no repair takes out."""
        if added and added != self._narrowing:
            log.warning(
                "webhook configuration narrowed by an admission plugin",
                extra={"ring": self._ring, "configuration": self._name, "expressions": added},
            )
        self._narrowing = added

    async def _tell_contested(self, resolved: ResolvedRing, wanted: Mapping[str, Any]) -> None:
        """Tell people who has changed it, and what; the answer to a patch of nothing shows that.

        Without an answer the next repair tells; this one does not wait for it.
        """
        try:
            found: dict[str, Any] = await self._lead.api.patch(
                WEBHOOK_CONFIGURATIONS, self._name, None, {}, model=dict,
                field_manager=FIELD_MANAGER, fences=(self._lead.fence,),
            )  # fmt: skip
        except NotFound:
            manager, field = "", "all of it"
        except FenceClosed:
            raise
        except ShardingError:
            return
        else:
            manager, field = find_last_manager(found, FIELD_MANAGER), find_difference(found, wanted) or "part of it"
        self._contested_until = self._lead.clock.monotonic() + TELL_CONTESTED_SECONDS
        log.warning(
            "webhook configuration changed again and again",
            extra={"ring": self._ring, "configuration": self._name, "manager": manager, "field": field},
        )
        ring = Regarding(CLUSTERRINGS.api_version, CLUSTERRINGS.kind, self._ring, uid=resolved.spec.uid)
        message = (
            f"somebody changes MutatingWebhookConfiguration {self._name} again and again, last {field}"
            f" (field manager {manager or 'unknown'}), as a policy of the cluster or another sharder may; have it leave"
            " this configuration alone; until then the sharder changes it back less and less often"
        )
        self._recorder.event(ring, EventType.WARNING, CONTESTED, message)

    async def _replace(self, made: Mapping[str, Any], webhooks: list[dict[str, Any]]) -> dict[str, Any]:
        """Put these webhooks into the place of those that were `made`."""
        body = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "webhooks": webhooks}
        answer: dict[str, Any] = await self._lead.api.patch(
            WEBHOOK_CONFIGURATIONS, self._name, None, body, model=dict,
            field_manager=FIELD_MANAGER, fences=(self._lead.fence,),
        )  # fmt: skip
        if self._additions.passes(self._lead.clock.monotonic()):
            log.warning(
                "webhooks or conditions of others removed", extra={"ring": self._ring, "configuration": self._name}
            )
        return answer

    async def remove(self) -> None:
        """Take it away, if it is there."""
        self._applied = self._wanted = None
        seen, unwatched = self._configurations.find(self._name), self._configurations.failure is not None
        if seen is None and (self._settings is None or not unwatched):
            return  # none of ours, as far as anybody can tell
        uid = seen.metadata.uid if seen is not None and not unwatched else None  # another may be there, or one at all
        try:
            await self._lead.api.delete(WEBHOOK_CONFIGURATIONS, self._name, uid=uid, fences=(self._lead.fence,))
            log.info("webhook configuration removed", extra={"ring": self._ring})
        except NotFound:
            pass
        except Forbidden:
            if seen is not None:  # else there may be none, and the garbage collection takes it with the ring
                raise


def _render_missing(why: str) -> str:
    return (
        f"the authority of the webhook's certificates is not known, so that its configuration stays as it is: {why};"
        " let the sharder read and write that Secret (rbac/sharder.yaml)"
    )

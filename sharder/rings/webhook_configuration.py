"""One ring's MutatingWebhookConfiguration: applied, repaired when somebody changes it, removed with the ring."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from sharder.core.ringspec import ResolvedRing
from sharder.core.webhookconfig import WEBHOOK_CONFIGURATIONS, render_webhook, webhook_name, without_additions
from sharder.rings.deps import WebhookSettings
from sharder.rings.webhook_configurations import WebhookConfigurations
from sharder.takeover.leadership import Leadership
from shardsdk.errors import NotFound
from shardsdk.kube.api import PatchKind
from shardsdk.kube.reflector import Delta, EventKind
from shardsdk.protocol.objects import PartialObject

log = logging.getLogger(__name__)

#: How long somebody else's change of a webhook configuration stays.
REPAIR_SECONDS: Final = 0.5
#: Between two warnings that somebody adds to it.
TELL_SECONDS: Final = 60.0
FIELD_MANAGER: Final = "sharder"


class RingWebhook:
    """The configuration of one ring; `settings` None: there is to be none."""

    def __init__(
        self, ring: str, leadership: Leadership, settings: WebhookSettings | None, configurations: WebhookConfigurations
    ) -> None:
        self._name = webhook_name(ring)
        self._ring = ring
        self._lead = leadership
        self._settings = settings
        self._configurations = configurations
        #: What was applied last, and the version that it became; `None`: something else may be there.
        self._applied: dict[str, Any] | None = None
        self._applied_version = ""
        #: What the watch has told last: the version, and whether that was deleted.
        self._told = ("", True)
        self._quiet_until = float("-inf")

    @property
    def exists(self) -> bool:
        """Whether the watch shows it."""
        return self._configurations.find(self._name) is not None

    def on_event(self, delta: Delta[PartialObject]) -> float | None:
        """A configuration that concerns the ring has changed: in how many seconds to reconcile; `None`: no need."""
        if delta.object.metadata.name != self._name:
            return 0.0
        self._told = (delta.object.metadata.resource_version, delta.kind is EventKind.DELETED)
        if self._told != (self._applied_version, False):
            self._applied = None
            # Not at once: somebody who changes it back each time would keep both of us busy.
            return REPAIR_SECONDS
        return None

    async def apply(self, resolved: ResolvedRing) -> None:
        """Make it as it should be, if it may be otherwise."""
        settings = self._settings
        if settings is None:
            await self.remove()
            return
        wanted = render_webhook(
            resolved,
            client_config=settings.client_config,
            ca_bundle=settings.ca_bundle(),
            annotations=settings.annotations,
            account=settings.account(),
            timeout_seconds=settings.timeout_seconds,
        )
        if wanted == self._applied:
            return
        told_before = self._told
        made: dict[str, Any] = await self._lead.api.patch(
            WEBHOOK_CONFIGURATIONS, self._name, None, wanted, kind=PatchKind.APPLY, model=dict,
            field_manager=FIELD_MANAGER, force=True, fences=(self._lead.fence,),
        )  # fmt: skip
        webhooks = without_additions(made, wanted)
        if webhooks is not None:
            made = await self._replace(made, webhooks)
        self._applied_version = made["metadata"]["resourceVersion"]
        # What else the watch has told before the answer came may be newer than ours; a reconcile is on its way.
        self._applied = wanted if self._told in (told_before, (self._applied_version, False)) else None
        log.info("webhook configuration applied", extra={"ring": self._ring})

    async def _replace(self, made: Mapping[str, Any], webhooks: list[dict[str, Any]]) -> dict[str, Any]:
        """Put these webhooks into the place of those that were `made`."""
        body = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "webhooks": webhooks}
        answer: dict[str, Any] = await self._lead.api.patch(
            WEBHOOK_CONFIGURATIONS, self._name, None, body, model=dict,
            field_manager=FIELD_MANAGER, fences=(self._lead.fence,),
        )  # fmt: skip
        now = self._lead.clock.monotonic()
        if now >= self._quiet_until:
            self._quiet_until = now + TELL_SECONDS
            log.warning(
                "webhooks or conditions of others removed", extra={"ring": self._ring, "configuration": self._name}
            )
        return answer

    async def remove(self) -> None:
        """Take it away, if it is there."""
        self._applied = None
        seen = self._configurations.find(self._name)
        if seen is None:
            return
        meta = seen.metadata
        try:
            await self._lead.api.delete(WEBHOOK_CONFIGURATIONS, meta.name, uid=meta.uid, fences=(self._lead.fence,))
            log.info("webhook configuration removed", extra={"ring": self._ring})
        except NotFound:
            pass

"""Keeps what API servers know of webhooks in step with the certificates that are served.

In a pod the configurations are there already, and get the authority that they
must trust (`inject`).  A process on somebody's machine makes them itself, and
takes them away when it ends (`install`): a webhook that nobody answers refuses
whatever it was to look at.
"""

from __future__ import annotations

import asyncio
import contextlib
from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from shardsdk.admission.configuration import MUTATING, VALIDATING, Manifest
from shardsdk.errors import AlreadyExists, ConfigurationError, Conflict, NotFound, ShardingError
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock
from shardsdk.logs import logger_of
from shardsdk.protocol.objects import ObjectMeta, Resource
from shardsdk.serving.published import Published

log: Final = logger_of(__name__)

#: How long a configuration that somebody has applied anew stays without its authority.
POLL_SECONDS: Final = 10.0
#: First pause after an error; doubles up to POLL_SECONDS.
RETRY_SECONDS: Final = 0.5
_RESOURCES: Final = {each.kind: each for each in (VALIDATING, MUTATING)}


class _Configuration(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    webhooks: list[dict[str, Any]] = []


class Registration:
    """Keeps configurations as they should be; `render(bundle)` gives them.

    `installs`: they are made, and `remove` takes them away; else they are somebody's, and nothing but `caBundle` is
    written.  `api` must not be fenced: every replica does it, and none does harm.
    """

    def __init__(
        self,
        api: Api,
        published: Published,
        render: Callable[[bytes | None], Sequence[Manifest]],
        *,
        installs: bool,
        clock: Clock,
    ) -> None:
        self._api = api
        self._published = published
        self._render = render
        self._installs = installs
        self._clock = clock
        self._changed = asyncio.Event()
        self._failure = ""
        published.on_change(self._changed.set)

    async def run(self) -> None:
        """Keep them current, for ever; errors are logged and tried again."""
        await self._published.loaded.wait()
        pause = POLL_SECONDS
        while True:
            self._changed.clear()
            try:
                await self.refresh()
                pause, self._failure = POLL_SECONDS, ""
            except ShardingError as error:
                pause = RETRY_SECONDS if not self._failure else min(pause * 2, POLL_SECONDS)
                self._complain(str(error))
            await self._until_changed(pause)

    async def refresh(self) -> None:
        """Bring them up to date.  Raises: ShardingError when the API server refuses or does not answer."""
        bundle = self._published.ca_bundle
        if bundle is None and not self._installs:
            return  # whoever made the certificate injects its authority
        for wanted in self._render(bundle):
            resource = _RESOURCES[wanted["kind"]]
            if self._installs:
                await self._install(resource, wanted)
            elif bundle is not None:
                await self._inject(resource, wanted, bundle)

    async def remove(self) -> None:
        """Take away what was installed.  Raises: ShardingError."""
        for wanted in self._render(None) if self._installs else ():
            with contextlib.suppress(NotFound):
                await self._api.delete(_RESOURCES[wanted["kind"]], wanted["metadata"]["name"])

    async def _install(self, resource: Resource, wanted: Manifest) -> None:
        try:
            await self._api.create(resource, wanted)
        except AlreadyExists:
            await self._api.patch(resource, wanted["metadata"]["name"], None, wanted)

    async def _inject(self, resource: Resource, wanted: Manifest, bundle: bytes) -> None:
        name, encoded = wanted["metadata"]["name"], b64encode(bundle).decode()
        ours = {each["name"] for each in wanted["webhooks"]}
        try:
            found = await self._api.get(resource, name, model=_Configuration)
        except NotFound as error:
            raise NotFound(
                f"there is no {resource.kind} {name}, so nobody asks this operator: apply what `shardsdk manifests`"
                " prints",
                status=404,
            ) from error
        _check_whose(found.webhooks, wanted)
        given = [each if each["name"] not in ours else _trusting(each, encoded) for each in found.webhooks]
        if given == found.webhooks:
            return
        body = {"metadata": {"resourceVersion": found.metadata.resource_version}, "webhooks": given}
        try:
            await self._api.patch(resource, name, None, body)
        except Conflict:  # another replica was first, or somebody has changed it
            self._changed.set()
            return
        log.info("Webhook configuration has the authority to trust", extra={"configuration": name})

    async def _until_changed(self, seconds: float) -> None:
        """Return when what is published has changed, or after so many seconds."""
        waits = [asyncio.ensure_future(self._changed.wait()), asyncio.ensure_future(self._clock.sleep(seconds))]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    def _complain(self, failure: str) -> None:
        if failure != self._failure:
            self._failure = failure
            log.warning("Webhook configuration not up to date", extra={"reason": failure})


def _check_whose(found: Sequence[Manifest], wanted: Manifest) -> None:
    """Raises: ConfigurationError when it is of an operator of the same name elsewhere."""
    [ours, *_] = wanted["webhooks"]
    here = ours["clientConfig"].get("service")
    for each in found:
        there = each["clientConfig"].get("service")
        if here and there and there.get("namespace") != here["namespace"]:
            raise ConfigurationError(
                f"{wanted['kind']} {wanted['metadata']['name']} is of an operator in namespace"
                f" {there.get('namespace')}; webhook configurations belong to the whole cluster, so give one of the two"
                " operators another name"
            )


def _trusting(webhook: dict[str, Any], encoded: str) -> dict[str, Any]:
    return {**webhook, "clientConfig": {**webhook["clientConfig"], "caBundle": encoded}}

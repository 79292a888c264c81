"""Keeps what API servers know of webhooks in step with the certificates that are served.

In a pod the configurations are there already, and get the authority that they
must trust (`inject`).  A process on somebody's machine makes them itself, and
takes them away when it ends (`install`): a webhook that nobody answers refuses
whatever it was to look at.  Of several such processes the first is asked; the
others wait until it takes its configurations away, or renews them no more.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from shardsdk.admission.configuration import MUTATING, VALIDATING, Manifest
from shardsdk.errors import ConfigurationError, Conflict, NotFound, ShardingError
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock
from shardsdk.logs import logger_of
from shardsdk.protocol.labels import API_GROUP
from shardsdk.protocol.objects import ObjectMeta, Resource
from shardsdk.serving.published import Published

log: Final = logger_of(__name__)

#: How long a configuration that somebody has applied anew stays without its authority.
POLL_SECONDS: Final = 10.0
#: First pause after an error; doubles up to POLL_SECONDS.
RETRY_SECONDS: Final = 0.5
#: Annotation of a configuration that a process has made, and renews: `<identity>@<time>`.
KEPT_BY_ANNOTATION: Final = f"{API_GROUP}/kept-by"
#: How long one is left alone that its process does not renew.
KEPT_SECONDS: Final = 3 * POLL_SECONDS
#: How often it is tried to take one away that is written at the same time.
REMOVALS: Final = 5
_RESOURCES: Final = {each.kind: each for each in (VALIDATING, MUTATING)}


class _Configuration(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    webhooks: list[dict[str, Any]] = []

    @property
    def keeper(self) -> str:
        """Which process renews it; empty: none."""
        return (self.metadata.annotations or {}).get(KEPT_BY_ANNOTATION, "").rpartition("@")[0]


class Registration:
    """Keeps configurations as they should be; `render(bundle)` gives them.

    `installs`: they are made and renewed by this process, which is called `identity`, and `remove` takes them away;
    else they are somebody's, and nothing but `caBundle` is written.  `api` must not be fenced: every replica does it,
    and none does harm.
    """

    def __init__(
        self,
        api: Api,
        published: Published,
        render: Callable[[bytes | None], Sequence[Manifest]],
        *,
        installs: bool,
        identity: str,
        clock: Clock,
    ) -> None:
        self._api = api
        self._published = published
        self._render = render
        self._installs = installs
        self._identity = identity
        self._clock = clock
        #: Of another's configurations, by kind: the version that was read last, and when it was read first.
        self._observed: dict[str, tuple[str, float]] = {}
        #: The kinds of those that this process may have written last.
        self._written: set[str] = set()
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
        if self._installs:
            await self._install_all(self._render(bundle))
        elif bundle is not None:  # else whoever made the certificate injects its authority
            missing: list[NotFound] = []
            for wanted in self._render(bundle):
                try:
                    await self._inject(_RESOURCES[wanted["kind"]], wanted, bundle)
                except NotFound as error:
                    missing.append(error)  # the other one is called all the same
            if missing:
                raise missing[0]

    async def remove(self) -> None:
        """Take away what this process has installed, and nobody has taken over.  Raises: ShardingError."""
        for wanted in self._render(None) if self._written else ():
            if wanted["kind"] in self._written:
                await self._remove(_RESOURCES[wanted["kind"]], wanted["metadata"]["name"])

    async def _remove(self, resource: Resource, name: str) -> None:
        for _ in range(REMOVALS):
            found = await self._find(resource, name)
            if found is None or found.keeper != self._identity:
                return
            version, uid = found.metadata.resource_version, found.metadata.uid
            try:
                await self._api.delete(resource, name, resource_version=version, uid=uid)
            except Conflict:  # a renewal of ours may just have arrived: look again
                continue
            except NotFound:
                pass
            return

    async def _install_all(self, configurations: Sequence[Manifest]) -> None:
        """Make them, or renew them.

        Raises: ConfigurationError while another process does; AlreadyExists, Conflict when one just has, or somebody
        else has changed them.
        """
        found = [await self._find(_RESOURCES[each["kind"]], each["metadata"]["name"]) for each in configurations]
        both = list(zip(found, configurations, strict=True))
        others = [each["kind"] for there, each in both if there is not None and there.keeper != self._identity]
        self._written.difference_update(others)
        if keepers := [there.keeper for there, wanted in both if there is not None and self._is_kept(there, wanted)]:
            raise ConfigurationError(
                f"another process, {keepers[0]}, serves these webhooks already, and is asked; this one takes its place"
                " when that has ended"
            )
        for there, wanted in both:
            await self._install(_RESOURCES[wanted["kind"]], there, wanted)

    async def _install(self, resource: Resource, found: _Configuration | None, wanted: Manifest) -> None:
        """Make it, or renew it.  Raises: AlreadyExists, Conflict when it is not as `found` any more."""
        metadata = wanted["metadata"]
        kept = {KEPT_BY_ANNOTATION: f"{self._identity}@{self._clock.now().isoformat()}"}
        metadata = {**metadata, "annotations": {**metadata.get("annotations", {}), **kept}}
        self._written.add(resource.kind)  # even if no answer says so
        if found is None:
            await self._api.create(resource, {**wanted, "metadata": metadata})
        else:
            metadata["resourceVersion"] = found.metadata.resource_version
            await self._api.patch(resource, metadata["name"], None, {**wanted, "metadata": metadata})

    def _is_kept(self, found: _Configuration, wanted: Manifest) -> bool:
        """Whether another process is asked, as far as can be seen."""
        if found.keeper in ("", self._identity):
            return False
        if _addresses(found.webhooks) == _addresses(wanted["webhooks"]):
            return False  # it was called where this process is called now
        now, version = self._clock.monotonic(), found.metadata.resource_version
        if self._observed.get(wanted["kind"], ("", now))[0] != version:
            self._observed[wanted["kind"]] = version, now
        return now - self._observed[wanted["kind"]][1] < KEPT_SECONDS

    async def _find(self, resource: Resource, name: str) -> _Configuration | None:
        try:
            return await self._api.get(resource, name, model=_Configuration)
        except NotFound:
            return None

    async def _inject(self, resource: Resource, wanted: Manifest, bundle: bytes) -> None:
        """Have what is there trust the authority.  Raises: NotFound when it, or one of its webhooks, is not there."""
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
        if given != found.webhooks:
            await self._give(resource, found, given)
        if lacking := sorted(ours - {each["name"] for each in found.webhooks}):
            raise NotFound(
                f"{resource.kind} {name} has no {', '.join(lacking)}, so nobody asks this operator for that: apply what"
                " `shardsdk manifests` prints",
                status=404,
            )

    async def _give(self, resource: Resource, found: _Configuration, given: Sequence[Manifest]) -> None:
        name = found.metadata.name
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


def _addresses(webhooks: Sequence[Manifest]) -> set[str]:
    """Where API servers call them; an empty one is a Service's."""
    return {urlsplit(each["clientConfig"].get("url") or "").netloc for each in webhooks}


def _trusting(webhook: dict[str, Any], encoded: str) -> dict[str, Any]:
    return {**webhook, "clientConfig": {**webhook["clientConfig"], "caBundle": encoded}}

"""Self-made certificates, in one Secret that all replicas share.

It is created when it is missing, renewed when it is due and repaired when it is
broken.  Every write is conditional, so replicas may race: the one that comes
second reads again and takes what the first wrote.  Nothing is served that is not
stored: another replica could not vouch for it.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from shardsdk.errors import ApiError, ConfigurationError, NotFound, RetryRule, ShardingError
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock
from shardsdk.protocol.objects import ObjectMeta, Resource
from shardsdk.serving.certificate_spec import Lifetimes, ServingNames
from shardsdk.serving.expiry import ExpiryWarnings
from shardsdk.serving.published import Published, make_pair
from shardsdk.serving.x509_messages import Judgement, JudgeSecret, Refused
from shardsdk.serving.x509_process import Ask, ask_here

log: Final = logging.getLogger(__name__)

SECRETS: Final = Resource("", "v1", "secrets", "Secret")

#: How often the Secret is read: how long a replica goes without noticing that
#: another one has replaced it. One small GET.
POLL_SECONDS: Final = 10.0
#: First pause after an error; doubles up to POLL_SECONDS.
RETRY_SECONDS: Final = 0.5
#: Lost races in a row that are tried again at once; one more and the loop pauses.
RACES_MAX: Final = 5


class Secret(msgspec.Struct, frozen=True, rename="camel"):
    """A Secret; `data` arrives as base64 and is held decoded."""

    metadata: ObjectMeta
    data: dict[str, bytes] | None = None


class SelfManaged:
    """Keeps authority and serving certificate for `names` in the Secret `namespace/name`.

    It is created with `labels`. `api` needs create on secrets, and get and patch on this one. It must not
    be fenced by leadership: every replica renews. `ask` judges what the Secret
    holds; it is asked when that has changed or something is due.
    """

    def __init__(
        self,
        api: Api,
        *,
        namespace: str,
        name: str,
        names: ServingNames,
        clock: Clock,
        labels: Mapping[str, str] | None = None,
        lifetimes: Lifetimes | None = None,
        ask: Ask = ask_here,
        on_load: Callable[[bool], None] = lambda good: None,
    ) -> None:
        if not len(names):
            raise ConfigurationError("a serving certificate needs at least one DNS name or IP address")
        self.published: Published = Published()
        self._api = api
        self._namespace = namespace
        self._name = name
        self._labels = dict(labels or {})
        self._names = names
        self._clock = clock
        self._lifetimes = lifetimes or Lifetimes()
        self._ask = ask
        self._judged: Judgement | None = None
        #: The data of the Secret that it is about, as it is now, with whatever others have put beside ours.
        self._seen: dict[str, bytes] | None = None
        self._on_load = on_load
        self._expiry = ExpiryWarnings(
            clock,
            "let this account get and patch the Secret; `webhook certificates not up to date` has said what keeps it"
            " from being renewed",
        )

    async def run(self) -> None:
        """Keep the Secret and `published` current, for ever; errors are logged and tried again."""
        pause = POLL_SECONDS
        while True:
            try:
                await self.refresh()
                pause = POLL_SECONDS
            except ShardingError as error:
                pause = RETRY_SECONDS if self.published.failure is None else min(pause * 2, POLL_SECONDS)
                self._complain(error)
            self._tell_expiry()
            await self._clock.sleep(pause)

    async def refresh(self) -> None:
        """Read the Secret, bring it up to date if need be, publish it.

        Raises: ShardingError when the API server refuses or does not answer.
        """
        settled = await self._settle_despite_races()
        pair = self.published.pair
        if pair is None or (pair.certificate, pair.key) != (settled.certificate, settled.key):
            pair = make_pair(settled.certificate, settled.key, settled.expires_at)
        if self.published.publish(pair, settled.bundle):
            self._on_load(True)
            log.info("webhook certificate loaded", extra=self._where() | {"expires_at": pair.expires_at.isoformat()})

    async def _settle_despite_races(self) -> Judgement:
        for _ in range(RACES_MAX):
            try:
                return await self._settle()
            except ApiError as error:
                if error.retry is not RetryRule.REFRESH:
                    raise
        return await self._settle()

    async def _settle(self) -> Judgement:
        """What the Secret holds once it is as it should be."""
        try:
            secret = await self._api.get(SECRETS, self._name, self._namespace, model=Secret)
        except NotFound:
            secret = None
        data = None if secret is None else secret.data or {}
        judged = await self._judge(data)
        if judged.reason is not None:
            await self._write(secret, judged)
            data = {**(data or {}), **judged.data}
        self._judged, self._seen = judged, data
        return judged

    async def _judge(self, data: dict[str, bytes] | None) -> Judgement:
        now, known = self._clock.now(), self._judged
        if known is not None and data == self._seen and now < known.due_at:
            return msgspec.structs.replace(known, reason=None, problem=None)
        answer = await self._ask(JudgeSecret(data, self._names, now, self._lifetimes))
        match answer:
            case Judgement():
                return answer
            case Refused(message):
                raise ConfigurationError(message)
            case _:
                raise TypeError(f"no judgement: {type(answer).__name__}")

    async def _write(self, secret: Secret | None, judged: Judgement) -> None:
        if secret is None:
            await self._create(judged.data)
            return
        if judged.problem is not None:
            log.warning("replacing the webhook certificates", extra=self._where() | {"reason": judged.problem})
        else:
            log.info("renewing the webhook certificates", extra=self._where() | {"reason": judged.reason})
        await self._replace(secret, judged.data)

    async def _create(self, data: Mapping[str, bytes]) -> None:
        body: dict[str, Any] = {
            "apiVersion": SECRETS.api_version,
            "kind": SECRETS.kind,
            "metadata": {
                "name": self._name,
                "namespace": self._namespace,
                "labels": self._labels,
            },
            "type": "Opaque",
            "data": _encode(data),
        }
        await self._api.create(SECRETS, body, self._namespace)
        log.info("webhook certificates created", extra=self._where())

    async def _replace(self, secret: Secret, data: Mapping[str, bytes]) -> None:
        body = {"metadata": {"resourceVersion": secret.metadata.resource_version}, "data": _encode(data)}
        await self._api.patch(SECRETS, self._name, self._namespace, body)

    def _complain(self, error: ShardingError) -> None:
        failure = f"secret {self._namespace}/{self._name}: {error}"
        if failure != self.published.failure:
            self.published.failure = failure
            self._on_load(False)
            log.warning("webhook certificates not up to date", extra=self._where() | {"reason": str(error)})

    def _tell_expiry(self) -> None:
        """Half of the time that there is for its renewal has passed by then."""
        if (pair := self.published.pair) is not None:
            early = self._lifetimes.serving * (1 - self._lifetimes.renew_at) / 2
            self._expiry.look(pair.expires_at, early, self._where())

    def _where(self) -> dict[str, str]:
        return {"namespace": self._namespace, "secret": self._name}


def _encode(data: Mapping[str, bytes]) -> dict[str, str]:
    return {key: base64.b64encode(value).decode() for key, value in data.items()}

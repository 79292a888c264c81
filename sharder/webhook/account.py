"""The user name under which this process writes, as the API server knows it.

The webhook lets the sharder's own changes of shard labels pass, and webhook
configurations name the account, so that such changes do not even call it.  The
API server is asked until it answers: a token or a configuration file may name
another one, since authenticators rename as they like.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import msgspec

from shardsdk.errors import Forbidden, NotFound, ShardingError
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock

log = logging.getLogger(__name__)

#: SelfSubjectReview: every authenticated user may ask it, unless somebody has taken that right away.
PATH: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
#: Between two attempts while the API server does not answer.
RETRY_SECONDS: Final = 5.0
#: The same while it refuses to tell, until somebody gives the right to ask back.
REFUSED_SECONDS: Final = 60.0
_QUESTION: Final = msgspec.json.encode({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})


class _UserInfo(msgspec.Struct, frozen=True):
    username: str


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    user_info: _UserInfo


class _Answer(msgspec.Struct, frozen=True):
    status: _Status


class OwnAccount:
    """`name` is empty until it is known; then `on_known` is called."""

    def __init__(self, api: Api, clock: Clock, on_known: Callable[[], None] = lambda: None) -> None:
        self.name = ""
        self._api = api
        self._clock = clock
        self._on_known = on_known

    async def run(self) -> None:
        """Find it out, then wait until cancelled."""
        told = False
        while not self.name:
            try:
                answer = await self._api.raw("POST", PATH, body=_QUESTION)
                self.name = msgspec.json.decode(answer, type=_Answer).status.user_info.username
            except (Forbidden, NotFound, msgspec.DecodeError) as error:
                level = logging.DEBUG if told else logging.WARNING
                log.log(level, "own account not known; labels that people change stay", extra={"error": str(error)})
                told = True
                await self._clock.sleep(REFUSED_SECONDS)
            except ShardingError as error:
                log.debug("own account not known yet", extra={"error": str(error)})
                await self._clock.sleep(RETRY_SECONDS)
        log.info("writing", extra={"account": self.name})
        self._on_known()
        await asyncio.Event().wait()

"""Lets the API server say who may read a path: TokenReview for who asks, SubjectAccessReview for whether they may.

As controller-runtime's metrics filter and kube-rbac-proxy do it: whoever is granted `get` on the path as a
nonResourceURL may.  Answers are believed for a while, for as many tokens as are usual; only a digest of a token is
kept.

Refuses: to let strangers use the API server up.  Reviews for those whom nobody knows are limited, so many a second;
who does not get a turn is told to come again.  While the API server does not answer, who could read last still may,
for some minutes: metrics are looked at when something is wrong.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from shardsdk.errors import Forbidden, ShardingError
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock
from shardsdk.logs import logger_of
from shardsdk.process.health import Refusal

log: Final = logger_of(__name__)

TOKEN_REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
#: How long an answer is believed, in seconds: that somebody may read, that they may not, that nobody knows the token.
#: Source: controller-runtime, pkg/metrics/filters (authentication 1 min, denials 30 s).
ALLOWED_SECONDS: Final = 60.0
DENIED_SECONDS: Final = 30.0
UNKNOWN_SECONDS: Final = 10.0
#: How much longer it is believed that somebody may read, while the API server does not answer.
OUTAGE_SECONDS: Final = 600.0
#: Tokens of which an answer is remembered; the oldest that may not read goes first.
MAX_KNOWN: Final = 256
#: Questions that may be asked at once about those whom nobody knows, and how many more there may be each second.
MAX_BURST: Final = 20
PER_SECOND: Final = 5.0
#: What Prometheus waits for is 10 s by default.
ANSWER_SECONDS: Final = 5.0
_SCHEME: Final = "bearer"
#: What is asked about, whatever the path is at which it is served.
_PATH: Final = "/metrics"


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: _User = _User()


class _TokenReview(msgspec.Struct, frozen=True):
    status: _TokenStatus = _TokenStatus()


class _AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool = False


class _AccessReview(msgspec.Struct, frozen=True):
    status: _AccessStatus = _AccessStatus()


@dataclass(frozen=True, slots=True)
class _Known:
    refusal: Refusal | None
    until: float


class DelegatedAccess:
    """Who may `get` metrics; ask `refusal`."""

    def __init__(self, api: Api, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._known: dict[bytes, _Known] = {}
        self._asking: dict[bytes, asyncio.Task[Refusal | None]] = {}
        self._left = float(MAX_BURST)
        self._counted_at = clock.monotonic()
        self._failing = False

    async def refusal(self, authorization: str) -> Refusal | None:
        """Why the caller that sent this Authorization header may not read; `None`: it may."""
        scheme, _, token = authorization.strip().partition(" ")
        token = token.strip()
        if scheme.lower() != _SCHEME or not token or not token.isascii():
            return Refusal(401, 'send "Authorization: Bearer TOKEN", with a token of this cluster')
        digest = hashlib.sha256(token.encode()).digest()
        known = self._known.get(digest)
        if known is not None and self._clock.monotonic() < known.until:
            return known.refusal
        return await asyncio.shield(self._ask_once(digest, token))

    def _ask_once(self, digest: bytes, token: str) -> asyncio.Task[Refusal | None]:
        """Whoever comes with the same token meanwhile waits for the same answer."""
        asking = self._asking.get(digest)
        if asking is None:
            asking = self._asking[digest] = asyncio.create_task(self._ask(digest, token))
            asking.add_done_callback(lambda _: self._asking.pop(digest, None))
        return asking

    async def _ask(self, digest: bytes, token: str) -> Refusal | None:
        before = self._known.get(digest)
        trusted = before is not None and before.refusal is None
        if not trusted and not self._may_ask():
            return Refusal(503, "too many callers whom nobody knows yet; come again in a moment")
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                refusal, seconds = await self._review(token)
        except Forbidden as error:
            return self._failed(500, f"may not ask who reads {_PATH}: {error}")
        except (ShardingError, TimeoutError, msgspec.DecodeError) as error:
            if before is not None and trusted and self._clock.monotonic() < before.until + OUTAGE_SECONDS:
                return None
            return self._failed(503, f"cannot ask who reads {_PATH}: {str(error) or 'no answer'}")
        self._failing = False
        self._remember(digest, _Known(refusal, self._clock.monotonic() + seconds))
        return refusal

    async def _review(self, token: str) -> tuple[Refusal | None, float]:
        """The answer, and for how many seconds to believe it."""
        user = await self._authenticate(token)
        if user is None:
            return Refusal(401, "the API server does not know this token, or it has expired"), UNKNOWN_SECONDS
        if await self._authorize(user):
            return None, ALLOWED_SECONDS
        wrong = f"{user.username} may not read {_PATH}: grant it get on the nonResourceURL {_PATH}"
        return Refusal(403, wrong), DENIED_SECONDS

    async def _authenticate(self, token: str) -> _User | None:
        found = await self._post(TOKEN_REVIEWS, "authentication.k8s.io/v1", "TokenReview", {"token": token})
        status = msgspec.json.decode(found, type=_TokenReview).status
        return status.user if status.authenticated and status.user.username else None

    async def _authorize(self, user: _User) -> bool:
        spec = {
            "user": user.username, "uid": user.uid, "groups": user.groups, "extra": user.extra,
            "nonResourceAttributes": {"path": _PATH, "verb": "get"},
        }  # fmt: skip
        found = await self._post(ACCESS_REVIEWS, "authorization.k8s.io/v1", "SubjectAccessReview", spec)
        return msgspec.json.decode(found, type=_AccessReview).status.allowed

    async def _post(self, path: str, version: str, kind: str, spec: dict[str, Any]) -> bytes:
        body = msgspec.json.encode({"apiVersion": version, "kind": kind, "spec": spec})
        return await self._api.raw("POST", path, body=body)

    def _failed(self, status: int, what: str) -> Refusal:
        if not self._failing:
            self._failing = True
            log.warning("Nobody can read the metrics", extra={"error": what})
        return Refusal(status, what)

    def _may_ask(self) -> bool:
        now = self._clock.monotonic()
        self._left = min(float(MAX_BURST), self._left + (now - self._counted_at) * PER_SECOND)
        self._counted_at = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True

    def _remember(self, digest: bytes, known: _Known) -> None:
        self._known.pop(digest, None)
        if len(self._known) >= MAX_KNOWN:
            oldest = next(iter(self._known))
            self._known.pop(next((each for each, known in self._known.items() if known.refusal is not None), oldest))
        self._known[digest] = known

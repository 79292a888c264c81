"""A ring, its reviews, and calls of the application without a network."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.types import ASGIApp

from sharder.core.hashring import HashRing
from sharder.core.membership import Membership
from sharder.core.ringspec import MainSpec, ResolvedMain, ResolvedRing, RingSpec
from sharder.core.views import RingView
from shardsdk.protocol.labels import parse_ring_name
from shardsdk.protocol.objects import GroupResource, Resource

SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")
PATH = "/webhooks/sharder/clusterring/checksum"
LABELS = parse_ring_name("checksum")
SHARDS = frozenset({"shard-0", "shard-1", "shard-2"})


def view(shards: frozenset[str] = SHARDS, *, stale: bool = False, controlled: bool = True) -> RingView:
    spec = RingSpec("checksum", "u-1", 1, LABELS, (MainSpec(GroupResource("", "secrets")),))
    main = ResolvedMain(SECRETS, (CONFIGMAPS,) if controlled else ())
    membership = Membership(available=shards, ready=shards, ring=HashRing(shards))
    return RingView(ResolvedRing(spec, (main,)), membership, stale)


def review(
    resource: Resource = SECRETS,
    metadata: dict[str, Any] | None = None,
    *,
    old: dict[str, Any] | None = None,
    operation: str = "CREATE",
    **more: Any,
) -> dict[str, Any]:
    metadata = {"name": "one", "namespace": "default"} if metadata is None else metadata
    request = {
        "uid": "11111111-2222-3333-4444-555555555555",
        "kind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
        "resource": {"group": resource.group, "version": resource.version, "resource": resource.plural},
        "namespace": "default",
        "operation": operation,
        "object": {"metadata": metadata},
        "oldObject": None if old is None else {"metadata": old},
        **more,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def child(owner: str = "one", uid: str = "u-one") -> dict[str, Any]:
    reference = {"apiVersion": "v1", "kind": "Secret", "name": owner, "uid": uid, "controller": True}
    return {"generateName": "child-", "namespace": "default", "ownerReferences": [reference]}


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def response(self) -> dict[str, Any]:
        answer: dict[str, Any] = msgspec.json.decode(self.body)["response"]
        return answer

    @property
    def patch(self) -> list[dict[str, Any]] | None:
        encoded = self.response.get("patch")
        return None if encoded is None else msgspec.json.decode(base64.b64decode(encoded))

    @property
    def shard(self) -> str | None:
        """The shard that the patch assigns; None: it assigns none."""
        for operation in self.patch or ():
            value = operation.get("value")
            if isinstance(value, dict):
                value = value.get(LABELS.shard)
            if value is not None:
                return str(value)
        return None


async def call(
    app: ASGIApp,
    body: bytes | Sequence[bytes] | dict[str, Any],
    path: str = PATH,
    *,
    method: str = "POST",
    headers: Sequence[tuple[bytes, bytes]] = (),
    ends: bool = True,
    leaves: bool = False,
) -> Reply:
    """Send `body` (in pieces if it is a sequence).

    `ends` False: the last piece never comes. `leaves`: the connection is closed instead.
    """
    if isinstance(body, dict):
        body = msgspec.json.encode(body)
    pieces = [body] if isinstance(body, bytes) else list(body)
    messages: list[dict[str, Any]] = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    if ends:
        messages[-1]["more_body"] = False
    if leaves:
        messages.append({"type": "http.disconnect"})
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if not messages:
            await asyncio.get_running_loop().create_future()
        return messages.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "https",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": list(headers),
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
        "state": {},
    }
    await app(scope, receive, send)
    assert [message["type"] for message in sent] == ["http.response.start", *["http.response.body"] * (len(sent) - 1)]
    answer = b"".join(message.get("body", b"") for message in sent[1:])
    return Reply(sent[0]["status"], answer, {name.decode(): value.decode() for name, value in sent[0]["headers"]})

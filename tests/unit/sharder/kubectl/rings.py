"""Rings, leases and objects as an API server would send them, for tests of `kubectl sharding`."""

from __future__ import annotations

import io
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

from sharder.core.membership import Membership, build
from sharder.core.ringspec import ResolvedMain, ResolvedRing, Role, Subject, parse_ring, resolve
from sharder.kubectl.session import Session
from sharder.kubectl.text import Painter
from shardsdk.errors import BadRequest, Forbidden, ServerError, ShardingError, TooManyRequests
from shardsdk.kube.api import ListOptions, Operation, Selection, T, WatchEvent, WatchOptions
from shardsdk.protocol.labels import (
    FENCED_ANNOTATION,
    INSTANCE_ANNOTATION,
    LABEL_MAX_LENGTH,
    LEASE_RING_LABEL,
    LEASE_STATE_LABEL,
    RingLabels,
    parse_ring_name,
)
from shardsdk.protocol.leases import Lease, LeaseSpec, render_instance, render_micro_time
from shardsdk.protocol.objects import CLUSTERRINGS, ObjectMeta, OwnerReference, Resource, SlimMeta
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import MemoryApi

NOW = datetime(2030, 1, 1, 12, 0, 0, tzinfo=UTC)
SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
LABELS: RingLabels = parse_ring_name("checksum")
SPEC: dict[str, Any] = {"resources": [{"resource": "secrets", "controlledResources": [{"resource": "configmaps"}]}]}
MAIN = ResolvedMain(SECRETS, (CONFIGMAPS,))
SECRET = Subject(Role.MAIN, SECRETS, MAIN)
CONFIGMAP = Subject(Role.CONTROLLED, CONFIGMAPS, MAIN)
#: What an API server answers while it fails over one resource.
FAILURES = (
    ServerError("list: 500 InternalError: conversion webhook for example.com/v1 failed", status=500),
    ServerError("list: 503 ServiceUnavailable: the server is away", status=503),
    TooManyRequests("list: 429 TooManyRequests: storage is (re)initializing", status=429),
    BadRequest("list: 400 BadRequest: not today", status=400),
)
#: Names that a Go sharder's or an older CRD lets pass: one makes a label that ends in '-', one is too long for any.
UNUSABLE = ("a" * 41 + "-b", "x" * 70)


class Wall:
    """A clock that stands still unless somebody waits."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.seconds)

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds


def raw_ring(name: str = "checksum", spec: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    ready = {"type": "Ready", "status": "True", "reason": "ReconciliationSucceeded", "message": "the ring is in use"}
    said = {"observedGeneration": 1, "conditions": [ready]} | status
    return {
        "metadata": {"name": name, "uid": "1", "generation": 1, "resourceVersion": "1"},
        "spec": SPEC if spec is None else spec,
        "status": said,
    }


def resolved_ring(spec: dict[str, Any] | None = None) -> ResolvedRing:
    served = {each.group_resource: each for each in (SECRETS, CONFIGMAPS, DEPLOYMENTS)}
    return resolve(parse_ring(raw_ring(spec=spec)), served)[0]


def lease(
    name: str,
    *,
    holder: str | None = None,
    state: str | None = "ready",
    renewed: float = 1.0,
    held: float = 60.0,
    namespace: str = "default",
    ring: str = "checksum",
    fenced: bool = True,
    duration: int = 15,
    instance: str | None = None,
) -> Lease:
    """A shard's lease; `renewed` and `held` are seconds ago, `holder` None is the shard itself."""
    labels = {LEASE_RING_LABEL: ring} | ({LEASE_STATE_LABEL: state} if state else {})
    renew_time = render_micro_time(NOW - timedelta(seconds=renewed))
    annotations = {FENCED_ANNOTATION: renew_time} if fenced else {}
    if instance is not None:
        annotations[INSTANCE_ANNOTATION] = render_instance(instance, renew_time)
    return Lease(
        ObjectMeta(name=name, namespace=namespace, labels=labels, annotations=annotations or None),
        LeaseSpec(
            holder_identity=name if holder is None else holder,
            lease_duration_seconds=duration,
            acquire_time=render_micro_time(NOW - timedelta(seconds=held)),
            renew_time=renew_time,
            lease_transitions=0,
        ),
    )


def members(*names: str) -> Membership:
    return build([lease(name) for name in names], set(names))


def glimpse(
    name: str, shard: str | None = None, *, owner: str | None = None, drain: bool = False, namespace: str = "default"
) -> SlimMeta:
    labels = ({LABELS.shard: shard} if shard is not None else {}) | ({LABELS.drain: "true"} if drain else {})
    references = [OwnerReference("v1", "Secret", owner, "uid", True)] if owner else None
    return SlimMeta(name=name, namespace=namespace, labels=labels or None, owner_references=references)


def manifest(
    name: str, shard: str | None = None, *, owner: str | None = None, drain: bool = False, namespace: str = "default"
) -> dict[str, Any]:
    """The same as the body of a create."""
    meta = glimpse(name, shard, owner=owner, drain=drain, namespace=namespace)
    references = [
        {"apiVersion": each.api_version, "kind": each.kind, "name": each.name, "uid": each.uid, "controller": True}
        for each in meta.owner_references or ()
    ]
    return {"metadata": {"name": name, "labels": meta.labels or {}, "ownerReferences": references}}


class RestrictedApi(MemoryApi):
    """An API server that answers some questions with 403; `denied` names verb and plural.

    `failing`: what it answers to others instead, by verb (or `discover`) and plural.
    """

    def __init__(self, server: MemoryServer, clock: Any, denied: set[tuple[str, str]]) -> None:
        super().__init__(server, clock, delay=lambda: 0.0, served=(SECRETS, CONFIGMAPS, CLUSTERRINGS))
        self.denied = denied
        self.failing: dict[tuple[str, str], ShardingError] = {}

    async def discover(self, group: str, plural: str) -> Resource | None:
        self._fail("discover", plural)
        return await super().discover(group, plural)

    async def send(self, operation: Operation[T]) -> T:
        if operation.verb == "get":
            self._judge("get", operation.resource)
        self._fail(operation.verb, operation.resource.plural)
        return await super().send(operation)

    async def read_pages(self, selection: Selection[T], options: ListOptions) -> AsyncIterator[list[T]]:
        self._judge("list", selection.resource, selection.namespace)
        self._fail("list", selection.resource.plural)
        if any(len(value) > LABEL_MAX_LENGTH for value in re.findall(r"=([^,]*)", selection.selector.labels)):
            raise BadRequest("list: 400 BadRequest: unable to parse requirement: must be no more than 63", status=400)
        async for page in super().read_pages(selection, options):
            yield page

    async def read_events(self, selection: Selection[T], options: WatchOptions) -> AsyncIterator[WatchEvent[T]]:
        self._judge("watch", selection.resource, selection.namespace)
        self._fail("list", selection.resource.plural)
        async for event in super().read_events(selection, options):
            yield event

    def _fail(self, verb: str, plural: str) -> None:
        if (error := self.failing.get((verb, plural))) is not None:
            raise error

    def _judge(self, verb: str, resource: Resource, namespace: str | None = None) -> None:
        if (verb, resource.plural) in self.denied and namespace is None:
            rule = f'{{apiGroups: ["{resource.group}"], resources: ["{resource.plural}"], verbs: ["{verb}"]}}'
            remedy = f"grant this identity in the whole cluster the rule {rule}"
            raise Forbidden(f"{verb} {resource.plural}: 403 Forbidden: no — {remedy}", status=403)


def session_of(api: Any, *, output: str = "text", namespace: str | None = None, clock: Any = None) -> Session:
    return Session(
        api, clock or Wall(), io.StringIO(), Painter(False), output=output, namespace=namespace, host="https://here"
    )


def said(session: Session) -> str:
    assert isinstance(session.out, io.StringIO)
    return session.out.getvalue()

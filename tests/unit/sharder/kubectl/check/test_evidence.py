"""What `check` reads on the way to the webhook, and how little it takes for an answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from sharder.core.ringspec import ResolvedMain
from sharder.core.webhookconfig import WEBHOOK_CONFIGURATIONS, render_webhook, webhook_name
from sharder.kubectl.check.evidence import PROBED_OBJECTS, SERVICES, SLICES, Evidence
from sharder.kubectl.check.webhooks import Probed, ServiceEvidence, WebhookEvidence
from sharder.kubectl.cluster import Reader, read_ring
from sharder.kubectl.leader import Sharder
from shardsdk.errors import ConnectionFailed, Forbidden, Invalid, ShardingError
from shardsdk.protocol.objects import RBAC_GROUP, Resource
from shardsdk.testing.memory import MemoryServer
from tests.unit.sharder.kubectl.rings import (
    LABELS,
    SECRETS,
    SPEC,
    RestrictedApi,
    Wall,
    manifest,
    raw_ring,
    resolved_ring,
)

ACCOUNT = ("sharding-system", "sharder")
SERVICE = {"service": {"namespace": "sharding-system", "name": "sharder", "port": 443}}


class Answering(RestrictedApi):
    """Answers dry runs: with a label, without one, or with an error."""

    def __init__(self, server: MemoryServer, answer: str | ShardingError | None) -> None:
        super().__init__(server, Wall(), set())
        self.answer = answer
        self.asked: list[tuple[str, Any]] = []

    async def raw(self, method: str, path: str, **options: Any) -> bytes:
        self.asked.append((f"{method} {path}", options["query"]))
        if isinstance(self.answer, ShardingError):
            raise self.answer
        labels = {LABELS.shard: self.answer} if self.answer else {}
        return json.dumps({"metadata": {"name": "a", "labels": labels}}).encode()


def server(
    *, service: dict[str, Any] | None = None, ready: tuple[bool | None, ...] = (), labelled: bool = True
) -> MemoryServer:
    made = MemoryServer()
    configuration = render_webhook(resolved_ring(), client_config=SERVICE, ca_bundle=b"")
    made.create(WEBHOOK_CONFIGURATIONS, configuration, None)
    if service is not None:
        made.create(SERVICES, {"metadata": {"name": "sharder"}} | service, "sharding-system")
    labels = {"kubernetes.io/service-name": "sharder"}
    endpoints = [{"conditions": {} if each is None else {"ready": each}} for each in ready]
    made.create(
        SLICES, {"metadata": {"name": "sharder-1", "labels": labels}, "endpoints": endpoints}, "sharding-system"
    )
    if labelled:
        made.create(SECRETS, manifest("a", "one"), "default")
    return made


async def read(
    api: RestrictedApi, *, probe: bool = True, status: Mapping[str, Any] = MappingProxyType({})
) -> WebhookEvidence:
    reader = Reader(api, Wall())
    return await Evidence(reader, Sharder(ACCOUNT, ACCOUNT), None, probe).of_webhook(resolved_ring(), status)


PORT = {"spec": {"ports": [{"port": 443}]}}


@pytest.mark.parametrize(
    ("service", "ready", "evidence"),
    [
        (None, (), ServiceEvidence("sharding-system/sharder", False)),
        (PORT, (), ServiceEvidence("sharding-system/sharder", True, True, 0)),
        (PORT, (True, False, None), ServiceEvidence("sharding-system/sharder", True, True, 2)),
        ({"spec": {"ports": [{"port": 80}]}}, (True,), ServiceEvidence("sharding-system/sharder", True, False, 1)),
    ],
)
async def test_the_service_and_its_endpoints_are_counted(
    service: dict[str, Any] | None, ready: tuple[bool | None, ...], evidence: ServiceEvidence
) -> None:
    assert (await read(Answering(server(service=service, ready=ready), "one"))).service == evidence


async def test_what_may_not_be_read_is_no_evidence() -> None:
    api = Answering(server(service=PORT), "one")
    api.denied = {("get", "services")}
    assert (await read(api)).service is None
    api.denied = {("get", "mutatingwebhookconfigurations")}
    evidence = await read(api)
    assert (evidence.read, evidence.configuration, evidence.probe.probed) == (False, None, Probed.ANSWERED)


async def test_a_label_that_comes_back_is_an_answer_and_nothing_is_written() -> None:
    api = Answering(server(), "one")
    probe = (await read(api)).probe
    assert (probe.probed, probe.why) == (Probed.ANSWERED, "secrets default/a")
    assert api.asked == [("PATCH /api/v1/namespaces/default/secrets/a", [("dryRun", "All")])]
    assert api.writes == []


async def test_a_name_is_no_part_of_the_query() -> None:
    roles = Resource(RBAC_GROUP, "v1", "roles", "Role")
    made = server(labelled=False)
    made.create(roles, manifest("a?b", "one"), "default")
    api = Answering(made, "one")
    ring = replace(resolved_ring(), mains=(ResolvedMain(roles, ()),))
    await Evidence(Reader(api, Wall()), Sharder(ACCOUNT, ACCOUNT), None).of_webhook(ring, {})
    assert api.asked == [(f"PATCH /apis/{RBAC_GROUP}/v1/namespaces/default/roles/a%3Fb", [("dryRun", "All")])]


@pytest.mark.parametrize(
    ("answer", "probed", "why"),
    [
        (None, Probed.SILENT, "secrets default/a"),
        (
            Forbidden("ValidatingAdmissionPolicy 'sharder-labels' denied request", status=403),
            Probed.SILENT,
            "secrets d",
        ),
        (Invalid("ValidatingAdmissionPolicy 'x' denied request", status=422), Probed.SILENT, "secrets default/a"),
        (Forbidden("User cannot patch resource", status=403), Probed.NOT_TRIED, "it takes the right to patch secrets"),
        (ConnectionFailed("reset"), Probed.NOT_TRIED, "the dry run on secrets default/a failed: reset"),
    ],
)
async def test_no_label_no_answer(answer: ShardingError | None, probed: Probed, why: str) -> None:
    probe = (await read(Answering(server(), answer))).probe
    assert probe.probed is probed
    assert probe.why.startswith(why)


async def test_no_call_is_made_unasked_or_without_an_object() -> None:
    api = Answering(server(), "one")
    assert (await read(api, probe=False)).probe.why == "switched off"
    assert (await read(Answering(server(labelled=False), "one"))).probe.probed is Probed.NOT_TRIED
    bare = MemoryServer()
    bare.create(SECRETS, manifest("a", "one"), "default")
    assert (await read(Answering(bare, "one"))).probe.why == "there is no webhook"
    assert api.asked == []


async def test_an_object_that_drains_or_is_out_of_scope_is_not_tried_on() -> None:
    made = server(labelled=False)
    made.create(SECRETS, manifest("drains", "one", drain=True), "default")
    made.create(SECRETS, manifest("outside", "one"), "kube-system")
    assert (await read(Answering(made, "one"))).probe.probed is Probed.NOT_TRIED


async def test_objects_are_gone_through_until_one_is_in_scope() -> None:
    made = server(labelled=False)
    for at in range(PROBED_OBJECTS):
        made.create(SECRETS, manifest(f"outside-{at}", "one"), "a-first")
    made.create(SECRETS, manifest("inside", "one"), "b-second")
    ring = resolved_ring(SPEC | {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "b-second"}}})
    evidence = Evidence(Reader(Answering(made, "one"), Wall()), Sharder(ACCOUNT, ACCOUNT), None)

    probe = (await evidence.of_webhook(ring, {})).probe
    assert (probe.probed, probe.why) == (Probed.ANSWERED, "secrets b-second/inside")


@pytest.mark.parametrize(
    ("failure", "why"),
    [
        (Forbidden("list secrets: 403", status=403), "you may not list secrets"),
        (ConnectionFailed("list secrets: reset"), "no object to try it on could be listed: list secrets: reset"),
    ],
)
async def test_objects_that_may_not_be_listed_are_not_said_to_be_missing(failure: ShardingError, why: str) -> None:
    api = Answering(server(), "one")
    api.failing = {("list", "secrets"): failure}
    probe = (await read(api)).probe
    assert (probe.probed, probe.why) == (Probed.NOT_TRIED, why)


async def test_permissions_are_asked_one_by_one_and_none_are_known_where_asking_is_forbidden() -> None:
    class Reviewing(RestrictedApi):
        async def create(self, resource: Any, body: Any, *args: Any, **kwargs: Any) -> Any:
            if self.denied:
                raise Forbidden("create subjectaccessreviews: 403", status=403)
            attributes = body["spec"]["resourceAttributes"]
            assert body["spec"]["user"] == "system:serviceaccount:sharding-system:sharder"
            return {"status": {"allowed": attributes["subresource"] == "status" or attributes["verb"] == "list"}}

    api = Reviewing(MemoryServer(), Wall(), set())
    evidence = Evidence(Reader(api, Wall()), Sharder(ACCOUNT, ACCOUNT), None)
    denied = await evidence.denied()
    assert denied is not None
    assert "patch leases.coordination.k8s.io" in denied
    assert not any(each.startswith("list ") or "/status" in each for each in denied)
    api.denied = {("create", "subjectaccessreviews")}
    assert await evidence.denied() is None


async def test_permissions_are_also_asked_for_what_was_taken_off_the_ring_and_is_served() -> None:
    class Granting(RestrictedApi):
        async def create(self, resource: Any, body: Any, *args: Any, **kwargs: Any) -> Any:
            return {"status": {"allowed": True}}

    placed = [
        {"group": "", "resource": name, "controlled": False} for name in ("secrets", "configmaps", "gone")
    ]  # fmt: skip
    ring = read_ring(raw_ring(spec={"resources": [{"resource": "secrets"}]}, placedResources=placed))
    api = Granting(MemoryServer(), Wall(), set())
    evidence = await Evidence(Reader(api, Wall()), Sharder(ACCOUNT, ACCOUNT), None).of_ring(ring)
    assert evidence.permissions is not None
    assert [str(resource) for verb, resource in evidence.permissions if verb == "patch"] == ["secrets", "configmaps"]


async def test_the_configuration_is_the_rings() -> None:
    configuration = (await read(Answering(server(), "one"))).configuration
    assert configuration is not None
    assert configuration["metadata"]["name"] == webhook_name("checksum")


async def test_a_webhook_is_read_as_that_of_what_is_in_force() -> None:
    waits = {"conditions": [{"type": "PermissionsGranted", "status": "False"}], "placedResources": []}
    found = await read(Answering(server(), "one"), status=waits)
    assert (found.ring.mains, found.waiting) == ((), True)
    assert not (await read(Answering(server(), "one"))).waiting

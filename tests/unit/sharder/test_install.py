"""CRDs brought up, leftovers removed: in memory and virtual time; tests/chart has it on a real cluster."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from sharder.cli import main
from sharder.core.webhookconfig import CERTIFICATES_SECRET, WEBHOOK_CONFIGURATIONS
from sharder.install import (
    CRD_NAMES,
    FIELD_MANAGER,
    LEADER_SECONDS,
    OTHERS_SECONDS,
    Leftovers,
    StillLeading,
    crd_files,
    remove_leftovers,
)
from shardsdk.errors import ConfigurationError, ConnectionFailed, Forbidden, NotFound
from shardsdk.kube.api import RawRequest
from shardsdk.kube.definitions import CRDS, ESTABLISHED_SECONDS, JUDGED_SECONDS, NotInstalled, apply_crds
from shardsdk.protocol.labels import API_GROUP, API_VERSION, LEASE_RING_LABEL
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES, Resource
from shardsdk.rbac import Right
from shardsdk.serving.secretstore import SECRETS
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time

SPACE = "sharding-system"
LEFTOVERS = Leftovers(SPACE, "sharder")
ESTABLISHED = {"status": {"conditions": [{"type": "Established", "status": "True"}]}}
DOCUMENTS = [yaml.safe_load(path.read_text()) for path in crd_files()]


class Listing(MemoryApi):
    """Discovery as well: a version lists what `listings` says."""

    #: What each path of a version lists, by plurals.
    listings: dict[str, list[str]]

    async def exchange(self, request: RawRequest) -> bytes:
        if request.path not in self.listings:
            raise NotFound(f"{request.method} {request.path}: not served", status=404)
        return json.dumps({"resources": [{"name": each} for each in self.listings[request.path]]}).encode()


def connect(server: MemoryServer, clock: VirtualClock, *, listed: bool = True) -> Listing:
    api = Listing(server, clock)
    names = [document["spec"]["names"]["plural"] for document in DOCUMENTS]
    api.listings = {f"/apis/{API_GROUP}/{API_VERSION}": names} if listed else {}
    return api


def lease(holder: str, seconds: int = 15, namespace: str = SPACE) -> dict[str, Any]:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": seconds}
    return {"metadata": {"name": "sharder", "namespace": namespace}, "spec": spec}


@contextmanager
def renewed(server: MemoryServer, clock: VirtualClock, namespace: str = SPACE) -> Iterator[None]:
    """Its holder lives."""

    async def renew() -> None:
        api = MemoryApi(server, clock)
        while True:
            await clock.sleep(2)
            note = {"metadata": {"annotations": {"at": str(clock.monotonic())}}}
            await api.patch(LEASES, "sharder", namespace, note)

    renewing = asyncio.create_task(renew())
    try:
        yield
    finally:
        renewing.cancel()


def add_ring(server: MemoryServer, **status: Any) -> None:
    server.arrange(CLUSTERRINGS, {"metadata": {"name": "one"}, "status": status}, None)


def littered(holder: str = "") -> MemoryServer:
    """What a sharder leaves behind, and what is none of its business."""
    server = MemoryServer()
    server.create(LEASES, lease(holder))
    server.create(LEASES, {"metadata": {"name": "shard-a", "namespace": SPACE, "labels": {LEASE_RING_LABEL: "one"}}})
    server.create(SECRETS, {"metadata": {"name": CERTIFICATES_SECRET, "namespace": SPACE}})
    server.create(SECRETS, {"metadata": {"name": "another", "namespace": SPACE}})
    server.create(WEBHOOK_CONFIGURATIONS, {"metadata": {"name": "ours", "labels": {LEASE_RING_LABEL: "one"}}})
    server.create(WEBHOOK_CONFIGURATIONS, {"metadata": {"name": "theirs"}})
    for name in CRD_NAMES:
        server.create(CRDS, {"metadata": {"name": name}})
    return server


def left(server: MemoryServer) -> set[str]:
    return {name for objects in server.objects.values() for _, name in objects}


OTHERS = {"shard-a", "another", "theirs"}


@in_virtual_time
async def test_what_the_sharder_made_is_removed_and_nothing_else(clock: VirtualClock) -> None:
    server = littered()
    add_ring(server, observedGeneration=1)

    await remove_leftovers(connect(server, clock), LEFTOVERS, clock)
    assert left(server) == OTHERS | {"one", *CRD_NAMES}

    await remove_leftovers(connect(server, clock), LEFTOVERS, clock)
    assert left(server) == OTHERS | {"one", *CRD_NAMES}, "twice is as good as once"

    everything = Leftovers(SPACE, "sharder", crds=True)
    with pytest.raises(ConfigurationError, match=r"An uninstall before this one may have removed it: .*clusterrings"):
        await remove_leftovers(connect(server, clock), everything, clock)
    await connect(server, clock).delete(CLUSTERRINGS, "one")
    await remove_leftovers(connect(server, clock), everything, clock)
    assert left(server) == OTHERS


@in_virtual_time
async def test_a_lease_that_nobody_renews_runs_out_first(clock: VirtualClock) -> None:
    server = littered("sharder-a")
    removing = asyncio.create_task(remove_leftovers(connect(server, clock), LEFTOVERS, clock))

    await clock.sleep(14)
    assert "ours" in left(server)
    await removing
    assert 15 <= clock.monotonic() < 20
    assert left(server) == OTHERS | set(CRD_NAMES)


@in_virtual_time
async def test_a_sharder_that_leads_on_is_named_and_nothing_is_removed(clock: VirtualClock) -> None:
    server = littered("sharder-a")

    says = rf"^sharder-a renews the lease {SPACE}/sharder: a sharder is running; .*Deployment to 0\), then try again$"
    with renewed(server, clock), pytest.raises(StillLeading, match=says):
        await remove_leftovers(connect(server, clock), Leftovers(SPACE, "sharder", crds=True), clock)
    assert clock.monotonic() >= LEADER_SECONDS
    assert {"ours", CERTIFICATES_SECRET, *CRD_NAMES} <= left(server)


@in_virtual_time
async def test_a_namespace_that_is_misspelt_takes_nothing_from_a_sharder_that_leads(clock: VirtualClock) -> None:
    server = littered("sharder-a")

    says = rf"renews the lease {SPACE}/sharder, .* not in sharding-sytem.* sharder, stop it .* is none, .* --lease"
    for crds in (False, True):
        with renewed(server, clock), pytest.raises(StillLeading, match=says):
            await remove_leftovers(connect(server, clock), Leftovers("sharding-sytem", "sharder", crds=crds), clock)
        assert {"ours", CERTIFICATES_SECRET, *CRD_NAMES} <= left(server)
    assert clock.monotonic() < 2 * OTHERS_SECONDS


@in_virtual_time
async def test_rings_stay_while_a_sharder_that_has_moved_to_another_namespace_leads(clock: VirtualClock) -> None:
    server = littered()
    server.create(LEASES, lease("sharder-b", namespace="platform"))
    everything = Leftovers(SPACE, "sharder", crds=True)

    says = (
        rf"renews the lease platform/sharder, which is not in {SPACE}: .* if it is none, run `sharder uninstall"
        rf" -n {SPACE} --lease sharder`, without --crds, and after that `kubectl delete crd {' '.join(CRD_NAMES)}`$"
    )
    with renewed(server, clock, "platform"), pytest.raises(StillLeading, match=says):
        await remove_leftovers(connect(server, clock), everything, clock)
    assert {"ours", CERTIFICATES_SECRET, *CRD_NAMES} <= left(server)

    await remove_leftovers(connect(server, clock), everything, clock)
    assert left(server) == OTHERS | {"sharder"}, "the other one's Lease is not this one's to delete"


@in_virtual_time
async def test_what_others_call_sharder_is_in_nobodys_way(clock: VirtualClock) -> None:
    """As the remedy has it where it is in the way of `--crds`: rings that a sharder has looked at do not matter."""
    server = littered()
    add_ring(server, observedGeneration=1)
    server.create(LEASES, lease("theirs", namespace="elsewhere"))

    with renewed(server, clock, "elsewhere"):
        await remove_leftovers(connect(server, clock), LEFTOVERS, clock)
    assert clock.monotonic() < 1
    assert left(server) == OTHERS | {"sharder", "one", *CRD_NAMES}


@in_virtual_time
async def test_a_shard_called_sharder_is_no_leader(clock: VirtualClock) -> None:
    server = littered()
    await connect(server, clock).delete(LEASES, "sharder", SPACE)
    shard = lease("sharder", namespace="shards")
    shard["metadata"]["labels"] = {LEASE_RING_LABEL: "one"}
    server.create(LEASES, shard)

    with renewed(server, clock, "shards"):
        for namespace in (SPACE, "shards"):
            await remove_leftovers(connect(server, clock), Leftovers(namespace, "sharder"), clock)
    assert clock.monotonic() < 1
    assert left(server) == OTHERS | {"sharder", *CRD_NAMES}


@in_virtual_time
async def test_what_nobody_renews_elsewhere_is_not_waited_for_beyond_a_minute(clock: VirtualClock) -> None:
    server = littered()
    await connect(server, clock).delete(LEASES, "sharder", SPACE)
    server.create(LEASES, lease("gone", 7 * 24 * 3600, namespace="elsewhere"))

    await remove_leftovers(connect(server, clock), LEFTOVERS, clock)
    assert OTHERS_SECONDS <= clock.monotonic() < OTHERS_SECONDS + 5
    assert "ours" not in left(server)


@in_virtual_time
async def test_whoever_may_get_the_one_lease_alone_removes_all_but_the_rings(clock: VirtualClock) -> None:
    """As the Job of a chart from before it could list them."""
    server = littered("sharder-a")
    api = connect(server, clock)

    def refuse(right: Right) -> None:
        if right.verb == "list" and right.resource == LEASES.group_resource:
            raise Forbidden("list leases: 403 — grant this identity the rule")

    api.on_request = refuse
    with pytest.raises(Forbidden, match="the rule"):
        await remove_leftovers(api, Leftovers(SPACE, "sharder", crds=True), clock)
    assert {"ours", *CRD_NAMES} <= left(server)

    await remove_leftovers(api, LEFTOVERS, clock)
    assert 15 <= clock.monotonic() < 20
    assert left(server) == OTHERS | set(CRD_NAMES)
    await remove_leftovers(api, LEFTOVERS, clock)


@in_virtual_time
async def test_a_lease_in_another_namespace_is_waited_for_and_stays(clock: VirtualClock) -> None:
    server = littered("sharder-a")

    await remove_leftovers(connect(server, clock), Leftovers("elsewhere", "sharder"), clock)
    assert 15 <= clock.monotonic() < 20
    assert left(server) == OTHERS | {"sharder", CERTIFICATES_SECRET, *CRD_NAMES}


@in_virtual_time
async def test_rings_stay_where_no_lease_tells_whether_a_sharder_leads(clock: VirtualClock) -> None:
    server = littered()
    add_ring(server, observedGeneration=1)
    misspelt = Leftovers(SPACE, "shrader", crds=True)

    with pytest.raises(ConfigurationError, match=r"no Lease shrader in any namespace.*delete clusterrings.* --lease"):
        await remove_leftovers(connect(server, clock), misspelt, clock)
    assert {"ours", "one", *CRD_NAMES} <= left(server)

    await connect(server, clock).delete(CLUSTERRINGS, "one")
    await remove_leftovers(connect(server, clock), misspelt, clock)
    assert not left(server) & {"ours", *CRD_NAMES}


@in_virtual_time
async def test_rings_that_no_sharder_has_ever_looked_at_go_without_a_lease(clock: VirtualClock) -> None:
    """As where a release goes whose sharder never led."""
    server = littered()
    await connect(server, clock).delete(LEASES, "sharder", SPACE)
    add_ring(server)

    await remove_leftovers(connect(server, clock), Leftovers(SPACE, "sharder", crds=True), clock)
    assert not left(server) & {"ours", *CRD_NAMES}


@in_virtual_time
async def test_the_lease_goes_last_so_that_a_second_run_can_tell(clock: VirtualClock) -> None:
    server = littered()
    server.create(CLUSTERRINGS, {"metadata": {"name": "one"}})

    class Interrupted(MemoryApi):
        async def delete(self, resource: Resource, name: str, namespace: str | None = None, **options: Any) -> None:
            if resource == CRDS:
                raise ConnectionFailed("gone")
            await super().delete(resource, name, namespace, **options)

    everything = Leftovers(SPACE, "sharder", crds=True)
    with pytest.raises(ConnectionFailed):
        await remove_leftovers(Interrupted(server, clock), everything, clock)
    await remove_leftovers(connect(server, clock), everything, clock)
    assert left(server) == OTHERS | {"one"}


@in_virtual_time
async def test_crds_are_awaited_until_they_are_served(clock: VirtualClock) -> None:
    server = MemoryServer()
    applying = asyncio.create_task(apply_crds(connect(server, clock), DOCUMENTS, clock, field_manager=FIELD_MANAGER))

    await clock.sleep(5)
    assert not applying.done()
    for name in CRD_NAMES:
        assert not applying.done()
        await connect(server, clock).patch(CRDS, name, None, ESTABLISHED, subresource="status")
        await clock.sleep(1)
    await applying
    assert left(server) == set(CRD_NAMES)


@in_virtual_time
async def test_crds_are_awaited_until_discovery_lists_them_too(clock: VirtualClock) -> None:
    server = MemoryServer()
    api = connect(server, clock, listed=False)
    applying = asyncio.create_task(apply_crds(api, DOCUMENTS[:1], clock, field_manager=FIELD_MANAGER))
    await clock.sleep(1)
    await api.patch(CRDS, CRD_NAMES[0], None, ESTABLISHED, subresource="status")
    path = f"/apis/{API_GROUP}/{API_VERSION}"
    steps: list[dict[str, list[str]]] = [{}, {path: []}]
    for listed in steps:
        api.listings = listed
        await clock.sleep(5)
        assert not applying.done()
    api.listings = {path: [DOCUMENTS[0]["spec"]["names"]["plural"]]}
    await applying


@in_virtual_time
async def test_crds_that_discovery_never_lists_are_told_after_a_minute(clock: VirtualClock) -> None:
    server = MemoryServer()
    api = connect(server, clock, listed=False)
    applying = asyncio.create_task(apply_crds(api, DOCUMENTS[:1], clock, field_manager=FIELD_MANAGER))
    await clock.sleep(1)
    await api.patch(CRDS, CRD_NAMES[0], None, ESTABLISHED, subresource="status")
    with pytest.raises(NotInstalled, match=rf"the API server does not list it in {API_VERSION}"):
        await applying


@in_virtual_time
async def test_whoever_may_not_ask_discovery_has_the_condition_alone(clock: VirtualClock) -> None:
    class Refusing(MemoryApi):
        async def exchange(self, request: RawRequest) -> bytes:
            raise Forbidden(f"{request.method} {request.path}", status=403)

    server = MemoryServer()
    api = Refusing(server, clock)
    applying = asyncio.create_task(apply_crds(api, DOCUMENTS[:1], clock, field_manager=FIELD_MANAGER))
    await clock.sleep(1)
    await api.patch(CRDS, CRD_NAMES[0], None, ESTABLISHED, subresource="status")
    await applying


@in_virtual_time
async def test_crds_whose_names_are_taken_are_told_at_once_with_the_reason(clock: VirtualClock) -> None:
    server = MemoryServer()
    clash = {"type": "NamesAccepted", "status": "False", "reason": "ListKindConflict", "message": "it is taken"}
    applying = asyncio.create_task(apply_crds(connect(server, clock), DOCUMENTS, clock, field_manager=FIELD_MANAGER))
    await clock.sleep(1)
    await connect(server, clock).patch(
        CRDS, CRD_NAMES[0], None, {"status": {"conditions": [clash]}}, subresource="status"
    )

    with pytest.raises(NotInstalled, match=r"not accepted \(ListKindConflict: it is taken\); give the kind other"):
        await applying
    assert clock.monotonic() < JUDGED_SECONDS + 1


@in_virtual_time
async def test_what_is_said_of_the_names_before_they_were_mended_is_no_refusal(clock: VirtualClock) -> None:
    server = MemoryServer()
    applying = asyncio.create_task(
        apply_crds(connect(server, clock), DOCUMENTS[:1], clock, field_manager=FIELD_MANAGER)
    )
    await clock.sleep(0.5)
    stale = {"type": "NamesAccepted", "status": "False", "reason": "ListKindConflict"}
    await connect(server, clock).patch(
        CRDS, CRD_NAMES[0], None, {"status": {"conditions": [stale]}}, subresource="status"
    )
    await clock.sleep(0.5)
    established = [{"type": "NamesAccepted", "status": "True"}, {"type": "Established", "status": "True"}]
    await connect(server, clock).patch(
        CRDS, CRD_NAMES[0], None, {"status": {"conditions": established}}, subresource="status"
    )
    await applying


@in_virtual_time
async def test_crds_that_are_never_served_are_told_after_a_minute(clock: VirtualClock) -> None:
    with pytest.raises(NotInstalled, match=r"not served after 60 s \(no condition says why\)"):
        await apply_crds(connect(MemoryServer(), clock), DOCUMENTS, clock, field_manager=FIELD_MANAGER)
    assert clock.monotonic() >= ESTABLISHED_SECONDS


def test_the_definitions_are_those_of_this_project(capsys: pytest.CaptureFixture[str]) -> None:
    assert tuple(document["metadata"]["name"] for document in DOCUMENTS) == CRD_NAMES
    assert main(["crds"]) == 0
    assert list(yaml.safe_load_all(capsys.readouterr().out)) == DOCUMENTS
    assert [path.name for path in crd_files()] == [path.name for path in sorted(Path("crds").iterdir())]

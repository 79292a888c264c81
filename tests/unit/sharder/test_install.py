"""CRDs brought up, leftovers removed: in memory and virtual time; tests/chart has it on a real cluster."""

from __future__ import annotations

import asyncio
import json
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
    Leftovers,
    StillLeading,
    crd_files,
    remove_leftovers,
)
from shardsdk.errors import Forbidden, NotFound
from shardsdk.kube.api import RawRequest
from shardsdk.kube.definitions import CRDS, ESTABLISHED_SECONDS, JUDGED_SECONDS, NotInstalled, apply_crds
from shardsdk.protocol.labels import API_GROUP, API_VERSION, LEASE_RING_LABEL
from shardsdk.protocol.objects import LEASES
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


def lease(holder: str, seconds: int = 15) -> dict[str, Any]:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": seconds}
    return {"metadata": {"name": "sharder", "namespace": SPACE}, "spec": spec}


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

    await remove_leftovers(connect(server, clock), LEFTOVERS, clock)
    assert left(server) == OTHERS | set(CRD_NAMES)

    await remove_leftovers(connect(server, clock), LEFTOVERS, clock)
    assert left(server) == OTHERS | set(CRD_NAMES), "twice is as good as once"

    await remove_leftovers(connect(server, clock), Leftovers(SPACE, "sharder", crds=True), clock)
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
    api = connect(server, clock)

    async def renew() -> None:
        while True:
            await clock.sleep(2)
            await api.patch(LEASES, "sharder", SPACE, {"metadata": {"annotations": {"at": str(clock.monotonic())}}})

    renewing = asyncio.create_task(renew())
    try:
        with pytest.raises(StillLeading, match=r"sharder-a renews .*scale its Deployment to 0"):
            await remove_leftovers(api, LEFTOVERS, clock)
    finally:
        renewing.cancel()
    assert clock.monotonic() >= LEADER_SECONDS
    assert {"ours", CERTIFICATES_SECRET} <= left(server)


def test_the_chart_is_written_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "made" / "chart"
    assert main(["chart", str(folder)]) == 0
    assert "-n sharding-system --create-namespace" in capsys.readouterr().err
    chart = Path("charts/sharder")
    written = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert written == {str(path.relative_to(chart)): path.read_bytes() for path in chart.rglob("*") if path.is_file()}
    assert main(["chart", str(folder)]) != 0
    assert "is there already, and not empty: name another folder" in capsys.readouterr().err


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


@pytest.mark.parametrize("account", ["sharder", "a/b/c", "/b", "a/"])
def test_an_account_needs_its_namespace(account: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rbac", "--service-account", account, "-f", "-"]) == 2
    assert "is not NAMESPACE/NAME" in capsys.readouterr().err

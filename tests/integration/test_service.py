"""The sharder as a process: how it starts, what it says when it cannot, how it stops."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from cryptography import x509

from localcluster import AdminClient, ControlPlane
from localcluster.installation import Installation, Sharder
from localcluster.ports import LOOPBACK
from sharder.rbac import ring_role_name
from tests.integration.calls import PATH, REVIEW, calling, serving_serial
from tests.integration.processes import STEADY, eventually, readiness, run_sharder, says, write_pair
from tests.ports import free_port

RINGS = "sharding.timebertt.dev/v1alpha1/clusterrings"
#: So long that nothing which a test does between signal and end comes too late on a busy machine.
PATIENT = replace(STEADY, graceful_shutdown=30.0)
WEBHOOKS = "admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
LEASES = "coordination.k8s.io/v1/leases"


@pytest_asyncio.fixture
async def installation(control_plane: ControlPlane, admin: AdminClient) -> AsyncIterator[Installation]:
    async with Installation(control_plane, STEADY) as installation:
        yield installation
    await admin.delete(LEASES, "sharder", "sharding-system")  # who was killed has not released it; the next would wait


@pytest_asyncio.fixture
async def ring(installation: Installation, admin: AdminClient, namespace: str) -> AsyncIterator[str]:
    """A ring over the secrets of the test's namespace, called like it; its role goes with the test."""
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    await installation.ring(namespace, {"resources": [{"resource": "secrets"}], "namespaceSelector": selector})
    yield namespace
    await admin.delete(RINGS, namespace)
    await admin.delete(WEBHOOKS, f"clusterring-{namespace}")
    for kind in ("clusterrolebindings", "clusterroles"):
        await admin.delete(f"rbac.authorization.k8s.io/v1/{kind}", ring_role_name(namespace))


# -- stopping -----------------------------------------------------------------


async def test_a_stop_is_orderly_requests_are_answered_and_the_leadership_is_handed_over(
    installation: Installation, admin: AdminClient
) -> None:
    installation.timings = PATIENT
    replica = await installation.start_sharder("sharder-a")
    assert await installation.leader() is replica
    async with calling(replica.webhook_port) as running, calling(replica.webhook_port) as late:
        await running.begin()
        stopping = asyncio.create_task(replica.process.stop())
        await says(replica, "the sharder is stopping")

        await late.begin()
        status, headers, answer = await late.finish()
        assert (status, headers["connection"]) == (200, "close"), "callers are told to go elsewhere"
        assert answer["response"]["allowed"] is True

        status, _, answer = await running.finish()
        assert status == 200
        assert answer["response"] == {"uid": "1234", "allowed": True}
    assert await stopping == 0, "within its limit, else it would have been ended"
    lease = await admin.get(LEASES, "sharder", "sharding-system")
    assert not lease["spec"].get("holderIdentity"), "the next leader need not wait"
    assert "stopped in order" in replica.process.log.read_text()


async def test_while_one_of_two_replicas_stops_every_object_still_comes_back_labelled(
    installation: Installation, admin: AdminClient, ring: str
) -> None:
    installation.timings = PATIENT
    renewing = asyncio.create_task(_renew_shard(admin, ring))
    try:
        first, _ = await installation.start_sharder("sharder-a"), await installation.start_sharder("sharder-b")
        await eventually(lambda: _comes_back_labelled(admin, ring))
        stopped = asyncio.Event()

        async def create() -> tuple[int, int]:
            labelled = missed = 0
            while not stopped.is_set():
                good = await _comes_back_labelled(admin, ring)
                labelled, missed = labelled + good, missed + (not good)
            return labelled, missed

        creating = [asyncio.create_task(create()) for _ in range(4)]
        assert await first.process.stop() == 0
        stopped.set()
        answers = await asyncio.gather(*creating)
        assert sum(missed for _, missed in answers) == 0
        assert all(labelled for labelled, _ in answers)
    finally:
        renewing.cancel()


async def _comes_back_labelled(admin: AdminClient, namespace: str) -> bool:
    # A dry run is seen by the webhook and by nothing else.
    path = f"/api/v1/namespaces/{namespace}/secrets"
    made = await admin.request("POST", path, body={"metadata": {"name": "probe"}}, query={"dryRun": "All"})
    return bool(made["metadata"].get("labels"))


async def _put_shard(admin: AdminClient, ring: str) -> None:
    """A shard that holds its lease for longer than any test takes."""
    metadata = {"name": "s", "labels": {"alpha.sharding.timebertt.dev/clusterring": ring}}
    held = {"holderIdentity": "s", "leaseDurationSeconds": 600}
    await admin.create(LEASES, {"metadata": metadata, "spec": held}, ring)


async def _renew_shard(admin: AdminClient, ring: str) -> None:
    """A replica that hears of no lease at all knows that it is behind, so one shard has to renew."""
    await _put_shard(admin, ring)
    for number in itertools.count(2):
        await asyncio.sleep(0.5)
        await admin.patch(LEASES, "s", {"spec": {"leaseTransitions": number}}, ring)


async def test_a_second_signal_ends_it_at_once(installation: Installation) -> None:
    installation.timings = PATIENT
    replica = await installation.start_sharder("sharder-a")
    async with calling(replica.webhook_port) as running:
        await running.begin()
        os.kill(replica.process.pid, signal.SIGTERM)
        await says(replica, "the sharder is stopping")
        assert await replica.process.stop() == 128 + signal.SIGTERM
    log = replica.process.log.read_text()
    assert "a second signal ends the process at once" in log
    assert "stopped in order" not in log


# -- what cannot work is told ---------------------------------------------------


@contextmanager
def occupied_port() -> Iterator[int]:
    with socket.create_server((LOOPBACK, 0)) as listener:
        yield listener.getsockname()[1]


def addresses(health: int = 0, metrics: int = 0, webhook: int = 0) -> dict[str, Any]:
    return {
        "health": {"bindAddress": f"{LOOPBACK}:{health}"},
        "metrics": {"bindAddress": f"{LOOPBACK}:{metrics}"},
        "webhook": {"server": {"host": LOOPBACK, "port": webhook}},
    }


@pytest.mark.parametrize("server", ["health", "metrics", "webhook"])
async def test_an_occupied_port_is_told_before_anything_starts(
    server: str, control_plane: ControlPlane, tmp_path: Path
) -> None:
    with occupied_port() as port:
        ended = await run_sharder(tmp_path, addresses(**{server: port}), control_plane.admin_kubeconfig)
    assert ended.code == 2
    (line,) = ended.errors
    assert str(port) in line
    assert "another process" in line or "already in use" in line


async def test_an_unreadable_kubeconfig_is_told(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text("clusters: [")
    ended = await run_sharder(tmp_path, addresses(), path)
    assert ended.code == 2
    (line,) = ended.errors
    assert str(path) in line


async def test_every_problem_of_a_bad_configuration_is_told_at_once(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    bad = {"gracefulShutDown": 15, "leaderElection": {"renewDeadline": "20s"}, "extra": True}
    ended = await run_sharder(tmp_path, bad, control_plane.admin_kubeconfig)
    assert ended.code == 2
    assert len(ended.errors) == 3
    for path in ("gracefulShutDown", "leaderElection", "extra"):
        assert any(path in line for line in ended.errors)


async def test_what_is_no_admission_review_is_answered_and_takes_nothing_from_others(
    installation: Installation, admin: AdminClient, ring: str
) -> None:
    replica = await installation.start_sharder("sharder-a")
    renewing = asyncio.create_task(_renew_shard(admin, ring))

    async def ask(body: bytes, path: str = PATH + ring, length: int | None = None) -> tuple[int, str]:
        async with calling(replica.webhook_port) as call:
            await call.begin(body, path=path, length=length)
            await call.send(body[10:])
            status, _, answer = await call.answer()
            return status, answer.decode()

    try:
        await eventually(lambda: _comes_back_labelled(admin, ring))
        for body, path, length, status, said in (
            (b"{", PATH + ring, None, 400, "not an AdmissionReview"),
            (b"[]", PATH + ring, None, 400, "not an AdmissionReview"),
            (b"{" * 20, PATH + ring, 1 << 30, 413, "bytes"),
            (REVIEW, "/mutate", None, 404, PATH),
            (REVIEW, f"{PATH}no-such-ring", None, 200, '"allowed":true'),
            (REVIEW.replace(b'"metadata"', b'"nothing"'), PATH + ring, None, 200, '"allowed":true'),
        ):
            answered = await ask(body, path, length)
            assert answered[0] == status, answered
            assert said in answered[1]
            assert "patch" not in answered[1]
        assert await _comes_back_labelled(admin, ring)
    finally:
        renewing.cancel()


# -- /metrics ---------------------------------------------------------------------


async def test_metrics_have_the_names_that_dashboards_read_and_all_others(
    installation: Installation, admin: AdminClient, ring: str
) -> None:
    replica = await installation.start_sharder("sharder-a")
    await _put_shard(admin, ring)
    await admin.create("v1/secrets", {"metadata": {"name": "a"}}, ring)
    await admin.eventually("v1/secrets", lambda found: all(each["metadata"].get("labels") for each in found), ring)
    wanted = _families(ring)
    missing = wanted

    async def complete() -> bool:
        nonlocal missing
        await _comes_back_labelled(admin, ring)  # calls the webhook, once that is in force
        shown = (await installation.metrics(replica)).splitlines()
        missing = [each for each in wanted if not any(line.startswith(each) for line in shown)]
        return not missing

    try:
        await eventually(complete)
    except TimeoutError:
        pytest.fail(f"{missing} in\n{await installation.metrics(replica)}")
    counted = f'ringKind="clusterring",ringName="{ring}",ringNamespace=""'
    shown = (await installation.metrics(replica)).splitlines()
    assert any(line.startswith("controller_sharding_") and counted in line for line in shown)


def _families(name: str) -> list[str]:
    """How the lines begin that must be there."""
    ring, resource = f'ringName="{name}"', f'group="",resource="secrets",ringName="{name}"'
    own = [
        f'ring_calculations_total{{kind="clusterring",name="{name}",namespace=""}}',
        f"resync_duration_seconds_count{{{ring}}}",
        f"resync_objects{{{ring}}}",
        f"unassigned_objects{{{resource}}} 0.0",
        f"stranded_objects{{{resource}}} 0.0",
        f"draining_objects{{{resource}}} 0.0",
        f"oldest_drain_age_seconds{{{ring}}} 0.0",
        f'shards{{{ring},state="ready"}} 1.0',
        f"lease_takeovers_total{{{ring}}}",
        f'placement_latency_seconds_count{{decision="assign",{ring}}}',
        "assignments_total",
        "movements_total",
        "drains_total",
        "webhook_requests_total{outcome=",
        "webhook_duration_seconds_bucket",
        "webhook_certificate_expiry_timestamp_seconds",
        'api_requests_total{code="200",verb="watch"}',
        'api_request_duration_seconds_bucket{le="0.005",verb="patch"}',
        "event_loop_lag_seconds_bucket",
    ]
    others = ['leader_election_master_status{name="sharder"} 1.0', "process_resident_memory_bytes"]
    return [f"controller_sharding_{each}" for each in own] + others


# -- certificates from files --------------------------------------------------------


async def test_certificates_from_files_are_waited_for_and_reloaded_and_no_ca_is_injected(
    installation: Installation, admin: AdminClient, ring: str, tmp_path: Path
) -> None:
    (tmp_path / "tls.crt").write_text("not a certificate")
    url = f"https://{LOOPBACK}:{installation.forwarder.port}"
    port = free_port()
    server = {"host": LOOPBACK, "port": port, "certDir": str(tmp_path)}
    installation.config = {"webhook": {"server": server, "config": {"clientConfig": {"url": url}}}}
    replica = await installation.start_sharder("sharder-a", wait=False)
    await says(replica, f"{tmp_path}/tls.crt")
    write_pair(tmp_path)
    await eventually(lambda: is_ready(replica))
    first = await serving_serial(port)
    write_pair(tmp_path)

    async def replaced() -> bool:
        return await serving_serial(port) != first

    await eventually(replaced)
    assert await client_config(admin, ring) == {"url": f"{url}/webhooks/sharder/clusterring/{ring}"}


async def test_a_pair_in_the_default_directory_of_controller_runtime_is_served_and_no_ca_is_injected(
    installation: Installation, admin: AdminClient, ring: str, tmp_path: Path
) -> None:
    folder = tmp_path / "k8s-webhook-server" / "serving-certs"
    folder.mkdir(parents=True)
    write_pair(folder)
    replica = await installation.start_sharder("sharder-a", environment={"TMPDIR": str(tmp_path)})
    written = x509.load_pem_x509_certificate((folder / "tls.crt").read_bytes())
    assert await serving_serial(replica.webhook_port) == f"{written.serial_number:x}"
    assert "caBundle" not in await client_config(admin, ring)


async def client_config(admin: AdminClient, ring: str) -> dict[str, Any]:
    """How the API server is told to call the webhook."""
    (config,) = await admin.eventually(
        WEBHOOKS, lambda found: [each for each in found if each["metadata"]["name"] == f"clusterring-{ring}"]
    )
    found: dict[str, Any] = config["webhooks"][0]["clientConfig"]
    return found


async def test_a_replica_that_cannot_read_its_certificates_leaves_the_authority_of_others_in_place(
    installation: Installation, admin: AdminClient, ring: str
) -> None:
    first = await installation.start_sharder("sharder-a")
    bundle = (await client_config(admin, ring))["caBundle"]
    await first.process.stop()
    roles = "rbac.authorization.k8s.io/v1/roles"
    rules = (await admin.get(roles, "sharder", "sharding-system"))["rules"]
    await admin.patch(roles, "sharder", {"rules": []}, "sharding-system")
    try:
        replica = await installation.start_sharder("sharder-b", wait=False)

        async def told() -> bool:
            conditions = (await admin.get(RINGS, ring)).get("status", {}).get("conditions", ())
            unready = [each for each in conditions if each["type"] == "Ready" and each["status"] == "False"]
            return any("sharder-webhook-certificates" in each["message"] for each in unready)

        await eventually(told)
        assert (await client_config(admin, ring))["caBundle"] == bundle
    finally:
        await admin.patch(roles, "sharder", {"rules": rules}, "sharding-system")
    await eventually(lambda: is_ready(replica))
    assert (await client_config(admin, ring))["caBundle"] == bundle


async def is_ready(replica: Sharder) -> bool:
    return (await readiness(replica))[0] == 200


# -- what others do to a webhook configuration -------------------------------------


async def test_what_others_add_to_a_webhook_configuration_is_taken_out_also_without_the_rings_label(
    installation: Installation, admin: AdminClient, ring: str
) -> None:
    await installation.start_sharder("sharder-a")
    await client_config(admin, ring)
    name = f"clusterring-{ring}"
    made = await admin.get(WEBHOOKS, name)
    [ours] = made["webhooks"]
    never = {"name": "never", "expression": "false"}
    denying = {**ours, "name": "another.example.com", "failurePolicy": "Fail"}
    for added in ([{**ours, "matchConditions": [*ours["matchConditions"], never]}], [denying, ours]):
        unlabelled = {"labels": {"alpha.sharding.timebertt.dev/clusterring": None}}
        await admin.patch(WEBHOOKS, name, {"metadata": unlabelled, "webhooks": added})

        async def repaired() -> bool:
            found = await admin.get(WEBHOOKS, name)
            same = (found["webhooks"], found["metadata"]["labels"]) == (made["webhooks"], made["metadata"]["labels"])
            # Whoever owned a field by an update, too, could not apply it away.
            owners = [each["operation"] for each in found["metadata"]["managedFields"] if each["manager"] == "sharder"]
            return same and owners == ["Apply"]

        await eventually(repaired)


async def test_who_changes_a_webhook_configuration_again_and_again_is_named(
    installation: Installation, admin: AdminClient, ring: str
) -> None:
    replica = await installation.start_sharder("sharder-a")
    await client_config(admin, ring)
    name, path = f"clusterring-{ring}", "/webhooks/0/namespaceSelector/matchExpressions"
    changed = [{"op": "add", "path": path, "value": [{"key": "control-plane", "operator": "DoesNotExist"}]}]

    async def told() -> bool:
        if "control-plane" not in str(await admin.get(WEBHOOKS, name)):
            await admin.patch(WEBHOOKS, name, changed, content_type="application/json-patch+json")
        lines = replica.process.log.read_text().splitlines()
        return any("again and again" in line and "manager=Python" in line and "Selector" in line for line in lines)

    await eventually(told)
    managed = (await admin.get(WEBHOOKS, name))["metadata"]["managedFields"]
    assert [each["operation"] for each in managed if each["manager"] == "sharder"] == ["Apply"]

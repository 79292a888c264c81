"""The sharder's chart on real pods: what it promises about them holds."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtensionOID

from localcluster import AdminError
from shardsdk.protocol.labels import LEASE_RING_LABEL, parse_ring_name
from shardsdk.protocol.leases import render_micro_time
from tests.chart.helm import NAMESPACE, HelmFailed
from tests.integration.chronicle import LEASES
from tests.node.clusters import (
    PATIENCE_SECONDS,
    PODS,
    Cluster,
    Complaints,
    cordoned,
    evict,
    evictable,
    is_working,
    until_right,
)
from tests.node.owners import CONFIGMAPS, RINGS, make_namespace

PODS_OF_SHARDER: Final = "app.kubernetes.io/name=sharder,app.kubernetes.io/component=sharder"
WEBHOOKS: Final = "admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
CERTIFICATES: Final = "sharder-webhook-certificates"
#: What a container sees of itself.
INSPECT: Final = """
import errno, json, os
def write(path):
    try:
        open(path, "w").close()
        return "written"
    except OSError as error:
        return errno.errorcode[error.errno]
status = dict(line.split(":", 1) for line in open("/proc/1/status").read().splitlines())
fields = ("Uid", "Gid", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp")
print(json.dumps({
    **{name: status[name].split()[0] for name in fields},
    "writes": {path: write(path) for path in ("/written", "/opt/sharder/written", "/tmp/written")},
}))
"""
#: What INSPECT prints of a pod of either chart; a group of its own is the base image's business.
NOBODY: Final = {
    "Uid": "65532",
    "Gid": "65532",
    "CapEff": "0000000000000000",
    "CapBnd": "0000000000000000",
    "NoNewPrivs": "1",
    "Seccomp": "2",
    "writes": {"/written": "EROFS", "/opt/sharder/written": "EROFS", "/tmp/written": "written"},
}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(4 * PATIENCE_SECONDS)]


async def test_it_serves_its_webhook_through_its_service_with_certificates_of_its_own(sharder: Cluster) -> None:
    """Helm has waited for the pods; what is created now comes back with a shard, so the webhook was called."""
    ring, namespace = "through-service", "through-service"
    await make_namespace(sharder, namespace, {"ring": ring})
    await sharder.upgrade_sharder(
        {
            "rings": {
                ring: {
                    "resources": [{"group": "", "resource": "configmaps"}],
                    "namespaceSelector": {"matchLabels": {"ring": ring}},
                }
            }
        }
    )
    now = render_micro_time(datetime.now(UTC))
    spec = {"holderIdentity": "by-hand", "leaseDurationSeconds": 3600, "acquireTime": now, "renewTime": now}
    lease = {"metadata": {"name": "by-hand", "labels": {LEASE_RING_LABEL: ring}}, "spec": spec}
    await sharder.admin.create(LEASES, lease, namespace)

    numbers = iter(range(10_000))

    async def answered() -> None:
        made = await sharder.admin.create(CONFIGMAPS, {"metadata": {"name": f"c-{next(numbers)}"}}, namespace)
        if (made["metadata"].get("labels") or {}).get(parse_ring_name(ring).shard) != "by-hand":
            raise Complaints(f"{made['metadata']} has come back without a shard")

    await until_right(answered)
    [webhook] = [
        each
        for item in await sharder.admin.list(WEBHOOKS)
        for each in item["webhooks"]
        if each["clientConfig"].get("service", {}).get("path", "").endswith(f"/{ring}")
    ]
    assert webhook["clientConfig"].get("url") is None
    assert webhook["clientConfig"]["service"]["namespace"] == NAMESPACE
    await check_certificates(sharder, webhook)
    with pytest.raises(HelmFailed, match=f"rings has no {ring} any more, but that ring has 1 shards"):
        await sharder.upgrade_sharder({})
    await sharder.admin.patch(LEASES, "by-hand", {"spec": {"holderIdentity": ""}}, namespace)
    await sharder.admin.eventually(RINGS, partial(has_no_shards, ring))
    await sharder.upgrade_sharder({})
    await sharder.admin.delete("v1/namespaces", namespace)


def has_no_shards(name: str, rings: list[dict[str, Any]]) -> bool:
    return any(each["metadata"]["name"] == name and not each["status"]["availableShards"] for each in rings)


async def check_certificates(sharder: Cluster, webhook: dict[str, Any]) -> None:
    """The authority that the API server trusts has signed a certificate for the Service; both lie in the Secret."""
    secret = await sharder.admin.get("v1/secrets", CERTIFICATES, NAMESPACE)
    stored = {name: base64.b64decode(value) for name, value in secret["data"].items()}
    bundle = base64.b64decode(webhook["clientConfig"]["caBundle"])
    [authority, *_] = x509.load_pem_x509_certificates(bundle)
    certificates = [x509.load_pem_x509_certificate(each) for each in stored.values() if b"BEGIN CERTIFICATE" in each]
    [serving] = [each for each in certificates if each.subject != each.issuer]
    serving.verify_directly_issued_by(authority)
    names = serving.extensions.get_extension_for_oid(ExtensionOID.SUBJECT_ALTERNATIVE_NAME).value
    assert isinstance(names, x509.SubjectAlternativeName)
    assert f"sharder.{NAMESPACE}.svc" in names.get_values_for_type(x509.DNSName)


async def test_its_pods_are_nobody_and_write_nowhere_but_in_tmp(sharder: Cluster) -> None:
    for pod in await sharder.working_pods(NAMESPACE, PODS_OF_SHARDER, 2):
        assert await sharder.python(NAMESPACE, pod, INSPECT) == NOBODY


async def test_of_two_replicas_one_may_be_evicted(sharder: Cluster) -> None:
    """The budget refuses the second until the first is replaced."""
    first, second = await evictable(sharder, NAMESPACE, "sharder", PODS_OF_SHARDER, 2)
    async with cordoned(sharder):
        await evict(sharder, NAMESPACE, first)
        with pytest.raises(AdminError, match="disruption budget") as refused:
            await evict(sharder, NAMESPACE, second)
        assert refused.value.status == 429

    assert first not in await evictable(sharder, NAMESPACE, "sharder", PODS_OF_SHARDER, 2)


async def test_a_replica_that_hangs_gets_no_calls_and_is_restarted(sharder: Cluster) -> None:
    """SIGSTOP from the node's side: readiness takes it out of the Service, liveness restarts the container."""
    if sharder.plane is None:
        pytest.skip("not tested: a replica that hangs; that takes stopping a process on its node, which is elsewhere")
    pod, _ = await sharder.working_pods(NAMESPACE, PODS_OF_SHARDER, 2)
    before = await sharder.admin.get(PODS, pod, NAMESPACE)
    for process in processes_of(before["metadata"]["uid"], "sharder"):
        os.kill(process, signal.SIGSTOP)

    def out_of_service(slices: list[dict[str, Any]]) -> bool:
        ready = [
            endpoint["targetRef"]["name"]
            for each in slices
            for endpoint in each["endpoints"] or ()
            if endpoint["conditions"]["ready"]
        ]
        return pod not in ready

    def restarted(pods: list[dict[str, Any]]) -> bool:
        [each] = [each for each in pods if named(each, pod)]
        return is_working(each) and restarts(each) > restarts(before)

    await sharder.admin.eventually(
        "discovery.k8s.io/v1/endpointslices", out_of_service, NAMESPACE,
        labels="kubernetes.io/service-name=sharder", timeout_seconds=PATIENCE_SECONDS,
    )  # fmt: skip
    await sharder.admin.eventually(PODS, restarted, NAMESPACE, timeout_seconds=PATIENCE_SECONDS)


def restarts(pod: dict[str, Any]) -> int:
    return int(pod["status"]["containerStatuses"][0]["restartCount"])


def named(pod: dict[str, Any], name: str) -> bool:
    return bool(pod["metadata"]["name"] == name)


def processes_of(uid: str, word: str) -> list[int]:
    """The processes on this machine that belong to a pod and have `word` in their command lines."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            group, command = (folder / "cgroup").read_text(), (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if uid in group and word.encode() in command:
            found.append(int(folder.name))
    assert found, f"no process of pod {uid} has {word} in its command line"
    return found


async def test_it_leaves_nothing_behind(sharder: Cluster) -> None:
    """Of all that the API server knows, only what chart and docs say remains: the types, and a ring by hand."""
    spec = {"resources": [{"group": "", "resource": "configmaps"}], "namespaceSelector": {"matchLabels": {"no": "one"}}}
    await sharder.upgrade_sharder({"rings": {"of-the-chart": spec}})
    ring = {
        "apiVersion": RINGS.rpartition("/")[0],
        "kind": "ClusterRing",
        "metadata": {"name": "by-hand"},
        "spec": spec,
    }
    await sharder.admin.create(RINGS, ring)
    await sharder.admin.eventually(
        WEBHOOKS, lambda found: {each["metadata"]["name"] for each in found} >= {"clusterring-of-the-chart", BY_HAND},
        timeout_seconds=PATIENCE_SECONDS,
    )  # fmt: skip
    there = await ours(sharder)
    assert there > KEPT, "what is looked for is found as long as it is there"
    assert {f"MutatingWebhookConfiguration//{BY_HAND}", f"Deployment/{NAMESPACE}/sharder"} <= there

    await sharder.release("uninstall", "sharder", "--namespace", NAMESPACE)

    async def gone() -> None:
        left = await ours(sharder) - KEPT
        if left:
            raise Complaints(f"left behind: {sorted(left)}")

    await until_right(gone)
    await sharder.admin.delete(RINGS, "by-hand")


BY_HAND: Final = "clusterring-by-hand"
KEPT: Final = {
    f"Namespace//{NAMESPACE}",
    f"ConfigMap/{NAMESPACE}/kube-root-ca.crt",
    f"ServiceAccount/{NAMESPACE}/default",
    "CustomResourceDefinition//clusterrings.sharding.timebertt.dev",
    "CustomResourceDefinition//ringassignments.sharding.timebertt.dev",
    "APIService//v1alpha1.sharding.timebertt.dev",
    "ClusterRing//by-hand",
}


async def ours(cluster: Cluster) -> set[str]:
    """What has to do with the sharder, by its name: webhook configurations are called clusterring-…"""
    return {each for each in await everything(cluster) if re.search("shard|clusterring", each, re.IGNORECASE)}


async def everything(cluster: Cluster) -> set[str]:
    """Each object that there is, as kind, namespace and name; but for Events, which go by themselves."""
    kinds = await cluster.kubectl("api-resources", "--verbs=list", "--output=name")
    wanted = ",".join(kind for kind in kinds.split() if not kind.startswith("events"))
    output = await cluster.kubectl("get", wanted, "--all-namespaces", "--output=json")
    found = [(item["kind"], item["metadata"]) for item in json.loads(output[output.index("{") :])["items"]]
    return {f"{kind}/{metadata.get('namespace', '')}/{metadata['name']}" for kind, metadata in found}

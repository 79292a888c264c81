"""A release's life on a real cluster: install, upgrade, roll back, uninstall.

Hook Jobs run for real, as their ServiceAccount, except that tests/chart/jobs.py plays the nodes.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from localcluster import AdminClient, AdminError
from localcluster.installation import Process
from shardsdk.kube.definitions import VERSION_ANNOTATION
from tests.chart.helm import CONTROLLER, NAMESPACE, SHARDER, HelmFailed, merge
from tests.chart.options import OPTIONS, RING
from tests.chart.releases import (
    CONFIG_RING,
    CRD,
    CRDS,
    LEASES,
    RINGS,
    SECRETS,
    WEBHOOKS,
    Cluster,
    free_ports,
    ring_is,
    running,
)

#: Everything that Helm made for this release, wherever it is.
OWNED = ("app.kubernetes.io/managed-by=Helm", "app.kubernetes.io/part-of=controller-sharding")
TEXT = {"type": "string"}
POLICIES = "admissionregistration.k8s.io/v1/validatingadmissionpolicy"
PLACES = (
    ("v1/configmaps", NAMESPACE),
    ("v1/services", NAMESPACE),
    ("v1/serviceaccounts", NAMESPACE),
    ("apps/v1/deployments", NAMESPACE),
    ("batch/v1/jobs", NAMESPACE),
    ("policy/v1/poddisruptionbudgets", NAMESPACE),
    ("networking.k8s.io/v1/networkpolicies", NAMESPACE),
    ("rbac.authorization.k8s.io/v1/roles", NAMESPACE),
    ("rbac.authorization.k8s.io/v1/rolebindings", NAMESPACE),
    ("rbac.authorization.k8s.io/v1/clusterroles", None),
    ("rbac.authorization.k8s.io/v1/clusterrolebindings", None),
    ("admissionregistration.k8s.io/v1/validatingadmissionpolicies", None),
    ("admissionregistration.k8s.io/v1/validatingadmissionpolicybindings", None),
)


async def owned(api: AdminClient) -> set[str]:
    """What Helm made for this release, as `kind/name`."""
    return {
        f"{resource.rpartition('/')[2]}/{each['metadata']['name']}"
        for resource, namespace in PLACES
        for each in await api.list(resource, namespace, labels=",".join(OWNED))
    }


async def outdate(api: AdminClient) -> None:
    """Make the cluster's CRD an older one: without a field that this version knows."""
    crd = await api.get(CRDS, CRD)
    del crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"][
        "watchUnassignedControlled"
    ]
    await api.replace(CRDS, crd)


async def knows_the_field(api: AdminClient) -> bool:
    crd = await api.get(CRDS, CRD)
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return "watchUnassignedControlled" in schema["properties"]["spec"]["properties"]


# -- the life of a release ------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_release_from_its_first_install_to_its_uninstall(cluster: Cluster, api: AdminClient) -> None:
    with free_ports() as ports:
        first = merge(ports.values(), {"rings": {"one": CONFIG_RING}})
        await check_first_install(cluster, api, first)
        async with running(cluster, ports) as sharder:
            await api.eventually(RINGS, ring_is("Ready"))
            await check_upgrade(cluster, api, first)
            await check_roll_back(cluster, api)
            await check_uninstall(cluster, api, sharder)


async def check_first_install(cluster: Cluster, api: AdminClient, values: dict[str, Any]) -> None:
    """Rings need CRDs, and a cluster has none at first."""
    await api.delete(CRDS, CRD)
    await api.eventually(CRDS, lambda crds: not any(crd["metadata"]["name"] == CRD for crd in crds))

    notes = await cluster.install(values=values)

    assert "clusterring/one" in notes
    assert [(ran.name, ran.code) for ran in cluster.jobs.ran] == [("sharder-crds", 0)], cluster.jobs.ran
    assert (await api.get(RINGS, "one"))["spec"] == CONFIG_RING | {
        "watchUnassignedControlled": True,
        "assignment": "Labels",
    }
    assert (await api.get("apps/v1/deployments", "sharder", NAMESPACE))["spec"]["replicas"] == 2
    made = await owned(api)
    assert "clusterroles/sharding:clusterring:one" in made
    assert not [name for name in made if "sharder-crds" in name], "hooks are gone when they have succeeded"


async def check_upgrade(cluster: Cluster, api: AdminClient, values: dict[str, Any]) -> None:
    """CRDs are brought up before a ring uses what is new in them."""
    await outdate(api)
    rings = {"one": {**CONFIG_RING, "watchUnassignedControlled": False}, "two": CONFIG_RING}

    await cluster.upgrade(values=merge(values, {"config": {"gracefulShutDown": "20s"}, "replicas": 3, "rings": rings}))

    assert await knows_the_field(api)
    assert (await api.get(RINGS, "one"))["spec"]["watchUnassignedControlled"] is False
    assert "gracefulShutDown: 20s" in await cluster.config()
    await api.eventually(WEBHOOKS, lambda found: len(found) == 2)


async def check_roll_back(cluster: Cluster, api: AdminClient) -> None:
    """What the values said is as it was; CRDs stay, and so do rings that were there."""
    ring = (await api.get(RINGS, "one"))["metadata"]["uid"]

    await cluster.run("rollback", "sharder", "1", "--namespace", NAMESPACE)

    deployment = await api.get("apps/v1/deployments", "sharder", NAMESPACE)
    assert deployment["spec"]["replicas"] == 2
    assert "gracefulShutDown: 8s" in await cluster.config()
    assert await knows_the_field(api)
    assert [each["metadata"]["uid"] for each in await api.list(RINGS)] == [ring]
    assert "clusterroles/sharding:clusterring:two" not in await owned(api)


async def check_uninstall(cluster: Cluster, api: AdminClient, sharder: Process) -> None:
    """Nothing is left but the CRDs, and rings that are not the release's."""
    await api.create(RINGS, ring_of_another())
    await api.eventually(WEBHOOKS, lambda found: "clusterring-other" in [each["metadata"]["name"] for each in found])
    assert await api.find(SECRETS, "sharder-webhook-certificates", NAMESPACE)

    uninstalling = asyncio.create_task(cluster.uninstall())
    # What a node does once the Deployment is gone.
    await api.eventually("apps/v1/deployments", lambda found: not found, NAMESPACE)
    assert await sharder.stop() == 0
    await uninstalling

    ran = cluster.jobs.ran[-1]
    assert (ran.name, ran.code) == ("sharder-cleanup", 0), ran.output
    assert await api.list(WEBHOOKS) == []
    assert await api.list(LEASES, NAMESPACE) == []
    assert await api.find(SECRETS, "sharder-webhook-certificates", NAMESPACE) is None
    assert await owned(api) == set()
    assert [ring["metadata"]["name"] for ring in await api.list(RINGS)] == ["other"]


def ring_of_another() -> dict[str, Any]:
    return {
        "apiVersion": "sharding.timebertt.dev/v1alpha1",
        "kind": "ClusterRing",
        "metadata": {"name": "other"},
        "spec": {"resources": [{"group": "", "resource": "secrets"}]},
    }


@pytest.mark.timeout(600)
async def test_crds_that_an_earlier_release_left_are_brought_up_and_go_when_asked(
    cluster: Cluster, api: AdminClient
) -> None:
    await cluster.plane.apply(Path("crds"))
    await outdate(api)
    ring = {**CONFIG_RING, "watchUnassignedControlled": False}

    await cluster.install(values={"rings": {"one": ring}, "crds": {"keep": False}})

    assert await knows_the_field(api)
    assert (await api.get(RINGS, "one"))["spec"] == ring | {"assignment": "Labels"}
    await cluster.uninstall()
    await api.eventually(CRDS, lambda crds: not any(crd["metadata"]["name"] == CRD for crd in crds))


@pytest.mark.timeout(600)
async def test_an_older_chart_takes_no_field_from_the_crds(cluster: Cluster, api: AdminClient) -> None:
    """What a ring says there would be gone with the next write of its status: that it assigns ranges, for one."""
    await cluster.plane.apply(Path("crds"))
    crd = await api.get(CRDS, CRD)
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["later"] = TEXT
    crd["metadata"]["annotations"][VERSION_ANNOTATION] = "99"
    await api.replace(CRDS, crd)

    await cluster.install(values={"crds": {"keep": False}})

    [ran] = cluster.jobs.ran
    assert (ran.code, "is newer than this program's; it stays as it is" in ran.output) == (0, True), ran.output
    crd = await api.get(CRDS, CRD)
    assert "later" in crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    await cluster.uninstall()
    await api.eventually(CRDS, lambda crds: not any(crd["metadata"]["name"] == CRD for crd in crds))


@pytest.mark.timeout(600)
async def test_a_hook_that_fails_is_told_and_nothing_is_installed(cluster: Cluster, api: AdminClient) -> None:
    await cluster.plane.apply(Path("crds"))
    await outdate(api)
    await deny_crd_writes(api)
    try:
        with pytest.raises(HelmFailed, match="failed pre-install"):
            await cluster.install()
        [ran] = cluster.jobs.ran
        assert ran.code == 1
        assert "CRDs are read-only today" in ran.output, "the Job's log says why"
        assert await api.find("apps/v1/deployments", "sharder", NAMESPACE) is None
    finally:
        await api.delete(f"{POLICIES}bindings", "no-crds")
        await api.delete(POLICIES.removesuffix("y") + "ies", "no-crds")


async def deny_crd_writes(api: AdminClient) -> None:
    """As somebody's policy may; it is in force on return."""
    rule = {
        "apiGroups": ["apiextensions.k8s.io"],
        "apiVersions": ["*"],
        "operations": ["UPDATE"],
        "resources": ["customresourcedefinitions"],
    }
    expression = "request.userInfo.username == 'admin' && !has(object.metadata.generateName)"
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": expression, "message": "CRDs are read-only today"}],
    }
    await api.create(POLICIES.removesuffix("y") + "ies", {"metadata": {"name": "no-crds"}, "spec": spec})
    binding = {"policyName": "no-crds", "validationActions": ["Deny"]}
    await api.create(f"{POLICIES}bindings", {"metadata": {"name": "no-crds"}, "spec": binding})
    with contextlib.suppress(AdminError):
        while True:
            await api.patch(CRDS, CRD, {"metadata": {"generateName": "probe"}})
            await api.patch(CRDS, CRD, {"metadata": {"generateName": None}})
            await asyncio.sleep(0.1)


# -- what renders is what a cluster takes ----------------------------------------------


@pytest.mark.timeout(600)
async def test_a_cluster_takes_every_option_and_one_sharder(cluster: Cluster, api: AdminClient) -> None:
    await foreign_types(cluster)
    everything = merge(
        *(OPTIONS[name] for name in ("monitoring", "network policy", "admission policy", "certManager", "pods"))
    )

    await cluster.install(values=everything)

    made = await owned(api)
    for name in (
        "networkpolicies/sharder",
        "validatingadmissionpolicies/sharder-labels",
        "configmaps/sharder-dashboard",
    ):
        assert name in made
    for resource in ("cert-manager.io/v1/certificates", "monitoring.coreos.com/v1/prometheusrules"):
        assert await api.list(resource, NAMESPACE)
    with pytest.raises(HelmFailed, match=r'invalid ownership metadata.*must equal "elsewhere"'):
        await cluster.install("--no-hooks", namespace="elsewhere")
    await cluster.uninstall()
    assert await owned(api) == set()


async def foreign_types(cluster: Cluster) -> None:
    """The resource types of the Prometheus Operator and of cert-manager, without what is behind them."""
    kinds = {
        "monitoring.coreos.com": ("ServiceMonitor", "PodMonitor", "PrometheusRule"),
        "cert-manager.io": ("Certificate", "Issuer"),
    }
    crds = [
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{kind.lower()}s.{group}"},
            "spec": {
                "group": group,
                "scope": "Namespaced",
                "names": {"kind": kind, "plural": f"{kind.lower()}s", "singular": kind.lower()},
                "versions": [
                    {
                        "name": "v1",
                        "served": True,
                        "storage": True,
                        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                    }
                ],
            },
        }
        for group, names in kinds.items()
        for kind in names
    ]
    await cluster.plane.apply(stdin=yaml.safe_dump_all(crds))


async def test_every_pod_meets_the_restricted_standard(cluster: Cluster, api: AdminClient) -> None:
    """The API server's own PodSecurity admission judges them."""
    documents = cluster.helm.render() + cluster.helm.render(
        yaml.safe_load((CONTROLLER / "examples" / "checksum.yaml").read_text()), chart=CONTROLLER
    )
    workloads = [each for each in documents if each["kind"] in ("Deployment", "StatefulSet", "Job")]
    namespace = "restricted"
    with contextlib.suppress(AdminError):
        await api.namespace(namespace, {"pod-security.kubernetes.io/enforce": "restricted"})

    async def attempt(pod: dict[str, Any]) -> None:
        body = {"metadata": {"generateName": "try-", "labels": pod["metadata"]["labels"]}, "spec": pod["spec"]}
        await api.request("POST", f"/api/v1/namespaces/{namespace}/pods", body=body, query={"dryRun": "All"})

    assert len(workloads) == 4
    for workload in workloads:
        await attempt(workload["spec"]["template"])
    loose = workloads[0]["spec"]["template"]
    loose["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    with pytest.raises(AdminError, match="violates PodSecurity"):
        await attempt(loose)


@pytest.mark.timeout(600)
async def test_notes_say_what_to_do_next(cluster: Cluster) -> None:
    async def notes(*values: dict[str, Any], namespace: str = NAMESPACE) -> str:
        dry = ("install", "sharder", str(SHARDER), "--namespace", namespace, "--dry-run=client")
        return (await cluster.run(*dry, values=merge(*values))).partition("NOTES:")[2]

    await cluster.plane.apply(Path("crds"))
    await foreign_types(cluster)
    first = await notes(namespace="elsewhere")
    assert "sharder rbac --service-account elsewhere/sharder -f - < my-ring.yaml | kubectl apply -f -" in first
    second = await notes(RING, OPTIONS["certManager"])
    assert re.search(r"clusterring/checksum(.|\n)*get certificate", second)
    assert "cert-manager makes" not in await notes(OPTIONS["webhook off"], OPTIONS["certManager"])
    third = await notes(OPTIONS["webhook off"], OPTIONS["one replica"], OPTIONS["no rbac"])
    assert re.search(r"webhook is off(.|\n)*With one replica(.|\n)*apply rbac/sharder.yaml", third)
    assert "crds.upgrade is false" in third
    assert "crds.upgrade" not in first + second

"""A ring gets no other name, and is not deleted, by an upgrade while its shards run.

Those of both rings would work on one object.  Whoever upgrades needs no more rights for it than Helm itself does.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from localcluster import AdminClient
from shardsdk.protocol.labels import LEASE_RING_LABEL
from tests.chart.helm import CONTROLLER, SHARDER, Documents, Helm, HelmFailed, is_hook, merge, select
from tests.chart.releases import CONFIG_RING, RINGS, Cluster
from tests.chart.test_every_value import plural

STATEFUL = "apps/v1/statefulsets"
DEPLOYMENTS = "apps/v1/deployments"
CHECKSUM: dict[str, Any] = yaml.safe_load((CONTROLLER / "examples" / "checksum.yaml").read_text())
COMMAND = ("checksum", str(CONTROLLER), "--namespace", "default")
NO_PODS = {"spec": {"replicas": 0}}
KEEP = {"metadata": {"annotations": {"helm.sh/resource-policy": "keep"}}}
NO_HOOKS: dict[str, Any] = {"crds": {"upgrade": False}, "uninstall": {"cleanup": False}}
ROLES, BINDINGS = (f"rbac.authorization.k8s.io/v1/{each}" for each in ("clusterroles", "clusterrolebindings"))


@asynccontextmanager
async def released(cluster: Cluster) -> AsyncIterator[None]:
    """The example, on a cluster that knows rings."""
    await cluster.plane.apply(SHARDER / "crds")
    await cluster.run("install", *COMMAND, values=CHECKSUM)
    try:
        yield
    finally:
        await cluster.run("uninstall", "checksum", "--namespace", "default")


async def rings(api: AdminClient) -> list[str]:
    return sorted(each["metadata"]["name"] for each in await api.list(RINGS))


def test_the_workload_says_its_ring_and_its_pods_do_not(helm: Helm) -> None:
    for kind in ("Deployment", "StatefulSet"):
        values = merge(CHECKSUM, {"kind": kind, "ring": {"name": "a"}})
        [workload] = select(helm.render(values, chart=CONTROLLER, release="checksum"), kind)

        assert workload["metadata"]["labels"][LEASE_RING_LABEL] == "a"
        assert LEASE_RING_LABEL not in workload["spec"]["template"]["metadata"]["labels"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"ring": {"name": "other"}}, "other"),
        ({"name": "other"}, "other"),
        ({"ring": {"name": "x", "create": False}}, "x"),
    ],
    ids=["ring.name", "name", "of somebody else"],
)
async def test_shards_that_run_keep_the_name_of_their_ring(
    cluster: Cluster, api: AdminClient, change: dict[str, Any], name: str
) -> None:
    async with released(cluster):
        with pytest.raises(HelmFailed) as refused:
            await cluster.run("upgrade", *COMMAND, values=merge(CHECKSUM, change))

        said = str(refused.value)
        assert f"the ring would be {name}, but the shards of StatefulSet checksum work for ring checksum" in said
        assert "kubectl -n default scale statefulset/checksum --replicas=0" in said
        selector = "app.kubernetes.io/instance=checksum,app.kubernetes.io/name=checksum"
        assert f"kubectl -n default wait --for=delete pod -l {selector} --timeout=5m" in said
        assert "scale up again" not in said
        assert await rings(api) == ["checksum"]


@pytest.mark.timeout(600)
async def test_shards_of_an_autoscaler_are_to_be_scaled_up_again(cluster: Cluster) -> None:
    async with released(cluster):
        with pytest.raises(HelmFailed, match="replicas is empty, so scale up again after that"):
            await cluster.run("upgrade", *COMMAND, values=merge(CHECKSUM, {"ring": {"name": "x"}, "replicas": ""}))


@pytest.mark.timeout(600)
async def test_a_ring_that_helm_would_delete_stays_while_shards_run(cluster: Cluster, api: AdminClient) -> None:
    given_up = merge(CHECKSUM, {"ring": {"create": False}})
    async with released(cluster):
        with pytest.raises(HelmFailed, match=r"would delete it and its role.* StatefulSet checksum") as refused:
            await cluster.run("upgrade", *COMMAND, values=given_up)
        assert "kubectl annotate clusterring/checksum clusterrole/sharding:clusterring:checksum" in str(refused.value)

        await api.patch(RINGS, "checksum", KEEP)
        await cluster.run("upgrade", *COMMAND, values=given_up)
        assert await rings(api) == ["checksum"]

        await api.patch(RINGS, "checksum", {"metadata": {"annotations": {"helm.sh/resource-policy": None}}})
        await cluster.run("upgrade", *COMMAND, values=given_up)


@pytest.mark.timeout(600)
async def test_without_shards_the_ring_goes_as_the_values_say(cluster: Cluster, api: AdminClient) -> None:
    async with released(cluster):
        await api.patch(STATEFUL, "checksum", NO_PODS, "default")
        await cluster.run("upgrade", *COMMAND, values=merge(CHECKSUM, {"ring": {"create": False}, "replicas": 0}))
        assert await rings(api) == []


@pytest.mark.timeout(600)
async def test_of_shards_that_were_stopped_the_ring_may_be_renamed(cluster: Cluster, api: AdminClient) -> None:
    renamed = merge(CHECKSUM, {"name": "other", "kind": "Deployment"})
    async with released(cluster):
        await api.patch(STATEFUL, "checksum", NO_PODS, "default")
        # As its controller counts them while the last one stops.
        await api.patch(STATEFUL, "checksum", {"status": {"replicas": 1}}, "default", subresource="status")
        with pytest.raises(HelmFailed, match="wait until the last pod is gone"):
            await cluster.run("upgrade", *COMMAND, values=renamed)

        await api.patch(STATEFUL, "checksum", {"status": {"replicas": 0}}, "default", subresource="status")
        await cluster.run("upgrade", *COMMAND, values=renamed)

        assert await rings(api) == ["other"]
        assert (await api.get(DEPLOYMENTS, "other", "default"))["spec"]["replicas"] == 3


@pytest.mark.timeout(600)
async def test_a_name_alone_may_change_with_the_ring_kept(cluster: Cluster, api: AdminClient) -> None:
    async with released(cluster):
        await cluster.run("upgrade", *COMMAND, values=merge(CHECKSUM, {"name": "other", "ring": {"name": "checksum"}}))

        assert [each["metadata"]["name"] for each in await api.list(STATEFUL, "default")] == ["other"]
        assert await rings(api) == ["checksum"]


@pytest.mark.timeout(600)
async def test_two_controllers_of_one_release_do_not_take_each_other_for_a_renamed_one(
    cluster: Cluster, api: AdminClient, tmp_path: Path
) -> None:
    await cluster.plane.apply(SHARDER / "crds")
    version = yaml.safe_load((CONTROLLER / "Chart.yaml").read_text())["version"]
    dependencies = [{"name": CONTROLLER.name, "version": version, "alias": alias} for alias in ("one", "one-more")]
    about = {"apiVersion": "v2", "name": "parent", "version": "1.0.0", "dependencies": dependencies}
    shutil.copytree(CONTROLLER, tmp_path / "charts" / CONTROLLER.name)
    (tmp_path / "Chart.yaml").write_text(yaml.safe_dump(about))
    command = ("both", str(tmp_path), "--namespace", "default")
    values = {each["alias"]: {**CHECKSUM, "name": each["alias"]} for each in dependencies}
    await cluster.run("install", *command, values=values)
    try:
        await cluster.run("upgrade", *command, values=values)
        with pytest.raises(HelmFailed, match="the shards of StatefulSet one work for ring one,") as refused:
            await cluster.run("upgrade", *command, values=merge(values, {"one": {"ring": {"name": "x"}}}))
        assert str(refused.value).count("\n* ") == 1
        assert await rings(api) == ["one", "one-more"]
    finally:
        await cluster.run("uninstall", "both", "--namespace", "default")


# -- by somebody with no more rights than Helm needs ---------------------------------


@asynccontextmanager
async def helms_user(api: AdminClient, documents: Documents) -> AsyncIterator[tuple[str, ...]]:
    """Flags for a user who may do to the parts of a release what Helm does to them, and may list none of them."""
    verbs = ["get", "create", "patch", "update", "delete", "bind", "escalate"]
    rules = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["*"]}]
    for document in documents:
        group = document["apiVersion"].rpartition("/")[0]
        rules.append({"apiGroups": [group], "resources": [plural(document["kind"])], "verbs": verbs})
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ci"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "ci"}
    await api.create(ROLES, {"metadata": {"name": "ci"}, "rules": rules})
    await api.create(BINDINGS, {"metadata": {"name": "ci"}, "roleRef": reference, "subjects": [subject]})
    await api.until_allowed("get", "v1/secrets", user="ci")
    try:
        yield "--kube-as-user", "ci"
    finally:
        await api.delete(BINDINGS, "ci")
        await api.delete(ROLES, "ci")


@pytest.mark.timeout(600)
async def test_whoever_may_list_nothing_upgrades_a_controller(cluster: Cluster, api: AdminClient) -> None:
    made = cluster.helm.render(CHECKSUM, chart=CONTROLLER, namespace="default", release="checksum")
    async with released(cluster), helms_user(api, made) as flags:
        await cluster.run("upgrade", *COMMAND, *flags, values=merge(CHECKSUM, {"replicas": 2}))
        with pytest.raises(HelmFailed, match=r"work for ring checksum, and"):
            await cluster.run("upgrade", *COMMAND, *flags, values=merge(CHECKSUM, {"ring": {"name": "x"}}))

        renamed = merge(CHECKSUM, {"name": "other", "ring": {"name": "checksum"}})
        with pytest.raises(HelmFailed, match=r"ring[.]checkRenamed(.|\n)*cannot list resource"):
            await cluster.run("upgrade", *COMMAND, *flags, values=renamed)
        await cluster.run("upgrade", *COMMAND, *flags, values=merge(renamed, {"ring": {"checkRenamed": False}}))
        assert [each["metadata"]["name"] for each in await api.list(STATEFUL, "default")] == ["other"]


@pytest.mark.timeout(600)
async def test_whoever_may_list_nothing_upgrades_the_sharder(cluster: Cluster, api: AdminClient) -> None:
    values = merge(NO_HOOKS, {"rings": {"one": CONFIG_RING, "two": CONFIG_RING}})
    fewer = merge(NO_HOOKS, {"rings": {"two": CONFIG_RING}})
    made = [each for each in cluster.helm.render(values) if not is_hook(each)]
    await cluster.install(values=values)
    async with helms_user(api, made) as flags:
        await cluster.upgrade(*flags, values=values)
        await api.patch(RINGS, "one", {"status": {"shards": 2, "availableShards": 2}}, subresource="status")
        with pytest.raises(HelmFailed, match="rings has no one any more"):
            await cluster.upgrade(*flags, values=fewer)
        await api.patch(RINGS, "one", {"status": {"availableShards": 0}}, subresource="status")
        await cluster.upgrade(*flags, values=fewer)
        assert await rings(api) == ["two"]


# -- declared with the sharder --------------------------------------------------------


@pytest.mark.timeout(600)
async def test_a_ring_with_shards_does_not_leave_the_sharders_values(cluster: Cluster, api: AdminClient) -> None:
    await cluster.install("--no-hooks", values={"rings": {"one": CONFIG_RING}})
    await api.patch(RINGS, "one", {"status": {"shards": 2, "availableShards": 2}}, subresource="status")

    with pytest.raises(
        HelmFailed, match=r"rings has no one any more, but that ring has 2 shards.*stop them first"
    ) as refused:
        await cluster.upgrade("--no-hooks", values={"rings": {"two": CONFIG_RING}})
    assert re.search(r"kubectl annotate clusterring/one .*:one helm.sh/resource-policy=keep\)", str(refused.value))
    assert await rings(api) == ["one"]

    await api.patch(RINGS, "one", {"status": {"availableShards": 0}}, subresource="status")
    await cluster.upgrade("--no-hooks", values={"rings": {"two": CONFIG_RING}})
    assert await rings(api) == ["two"]


@pytest.mark.timeout(600)
async def test_a_ring_that_helm_is_told_to_keep_may_leave_the_values(cluster: Cluster, api: AdminClient) -> None:
    await cluster.install("--no-hooks", values={"rings": {"one": CONFIG_RING}})
    await api.patch(RINGS, "one", KEEP)
    await api.patch(RINGS, "one", {"status": {"shards": 2, "availableShards": 2}}, subresource="status")

    await cluster.upgrade("--no-hooks", values={})

    assert await rings(api) == ["one"]

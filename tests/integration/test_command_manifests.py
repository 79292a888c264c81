"""What `shardsdk manifests` prints is accepted by a real API server, and is all that the operator needs to run."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from localcluster import AdminClient, ControlPlane, LocalClusterError
from localcluster.installation import Installation
from tests.cert_manager import cert_manager_types
from tests.integration.prompt import SECONDS, Prompt
from tests.integration.served import forget
from tests.sites import write_sites

SITES = "example.com/v1/sites"
RINGS = "sharding.timebertt.dev/v1alpha1/clusterrings"
VALIDATING = "admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
IMAGE = ("--image", "registry.example.com/sites:1")


@pytest.fixture
def prompt(tmp_path: Path, control_plane: ControlPlane) -> Prompt:
    return Prompt(tmp_path, control_plane.admin_kubeconfig)


@pytest_asyncio.fixture
async def restricted(admin: AdminClient, namespace: str) -> str:
    """A namespace whose pods have to be restricted."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    await admin.patch("v1/namespaces", namespace, {"metadata": {"labels": labels}})
    return namespace


async def manifests(prompt: Prompt, *arguments: str) -> str:
    code, out, err = await prompt.run("manifests", "sites.py", *IMAGE, *arguments)
    assert code == 0, err
    return out


async def remove(admin: AdminClient, text: str) -> None:
    """What a namespace does not take along."""
    places = {
        "ClusterRole": "rbac.authorization.k8s.io/v1/clusterroles",
        "ClusterRoleBinding": "rbac.authorization.k8s.io/v1/clusterrolebindings",
        "ClusterRing": "sharding.timebertt.dev/v1alpha1/clusterrings",
        "ValidatingWebhookConfiguration": VALIDATING,
        "FlowSchema": "flowcontrol.apiserver.k8s.io/v1/flowschemas",
    }
    made = [(each["kind"], each["metadata"]["name"]) for each in yaml.safe_load_all(text)]
    for kind, name in made:
        if kind in places:
            await admin.delete(places[kind], name)
    await forget(admin, *(name for kind, name in made if kind == "CustomResourceDefinition"))


@pytest.mark.parametrize(
    ("declared", "arguments"),
    [
        ("", ()),
        ("", ("--watch-namespace", "default")),
        ("sharded=True", ()),
        ("sharded=True", ("--stateful",)),
        ("sharded=True", ("--hash-by", "Namespace", "--watch-namespace", "default")),
    ],
    ids=["elected", "one namespace", "sharded", "stateful", "ranges in one namespace"],
)
async def test_the_api_server_accepts_all_of_it(
    declared: str, arguments: tuple[str, ...], prompt: Prompt, installed: ControlPlane, restricted: str
) -> None:
    write_sites(prompt.folder, declared)
    text = await manifests(prompt, "-n", restricted, *arguments)
    said = await installed.kubectl(
        "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", stdin=text
    )
    assert said.count("serverside-applied") == len(list(yaml.safe_load_all(text)))
    assert "Warning" not in said


async def test_its_pods_may_run_where_pods_have_to_be_restricted(
    prompt: Prompt, control_plane: ControlPlane, admin: AdminClient, restricted: str
) -> None:
    write_sites(prompt.folder)
    made = list(yaml.safe_load_all(await manifests(prompt, "-n", restricted)))
    template = next(each for each in made if each["kind"] == "Deployment")["spec"]["template"]
    await admin.create("v1/serviceaccounts", {"metadata": {"name": "sites"}}, restricted)
    pod = {"apiVersion": "v1", "kind": "Pod", **template}
    pod["metadata"] = {**template["metadata"], "name": "one", "namespace": restricted}
    await control_plane.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", stdin=json.dumps(pod))


@pytest_asyncio.fixture
async def applied(
    prompt: Prompt, control_plane: ControlPlane, admin: AdminClient, namespace: str
) -> AsyncIterator[str]:
    """The manifests of an elected operator on the cluster, where no controller makes pods of them."""
    write_sites(prompt.folder)
    text = await manifests(prompt, "-n", namespace)
    await control_plane.kubectl("apply", "--server-side", "-f", "-", stdin=text)
    await control_plane.kubectl("wait", "--for=condition=Established", "crd/sites.example.com", "--timeout=60s")
    yield namespace
    await remove(admin, text)


async def test_the_operator_runs_with_exactly_these_rights(
    prompt: Prompt, applied: str, control_plane: ControlPlane, admin: AdminClient
) -> None:
    account = Prompt(prompt.folder, await control_plane.service_account_kubeconfig(applied, "sites"))
    async with account.running("run", "sites.py", "-n", applied, "--log-format", "text") as line:
        await line("Leader is working")
        await admin.create(SITES, site("home", "<h1>hi</h1>"), applied)
        await admin.eventually(SITES, _shown, applied, timeout_seconds=SECONDS)
        made = await admin.get("v1/configmaps", "home", applied)
        assert made["data"] == {"index.html": "<h1>hi</h1>"}
        assert made["metadata"]["ownerReferences"][0]["controller"] is True
        await admin.delete("v1/configmaps", "home", applied)
        await admin.eventually(
            "v1/configmaps",
            lambda found: any(each["metadata"]["name"] == "home" for each in found),
            applied,
            timeout_seconds=SECONDS,
        )


async def test_without_its_definitions_it_says_so_and_installs_them_when_asked(
    prompt: Prompt, admin: AdminClient, namespace: str
) -> None:
    write_sites(prompt.folder, f"watch_namespace={namespace!r}")
    code, _, err = await prompt.run("run", "sites.py", "-n", namespace)
    assert code == 2
    assert err.startswith(
        "shardsdk: the API server does not know sites.example.com; install its CustomResourceDefinition: `shardsdk run"
        " sites.py --install-crds`"
    )
    try:
        async with prompt.running("run", "sites.py", "-n", namespace, "--install-crds") as line:
            await line("custom resource definition applied")
            await line("Leader is working")
            await admin.create(SITES, site("home"), namespace)
            await admin.eventually(SITES, _shown, namespace, timeout_seconds=SECONDS)
    finally:
        await forget(admin, "sites.example.com")


WEBHOOK = """

@operator.validate(Site)
def check(review: object) -> None: ...
"""


async def test_rights_for_webhooks_are_asked_for_where_they_are_served(
    prompt: Prompt, control_plane: ControlPlane, admin: AdminClient, namespace: str
) -> None:
    """The account may do what an operator without webhooks may."""
    write_sites(prompt.folder)
    text = await manifests(prompt, "-n", namespace)
    file = prompt.folder / "sites.py"
    file.write_text(file.read_text() + WEBHOOK)
    await control_plane.kubectl("apply", "--server-side", "-f", "-", stdin=text)
    await control_plane.kubectl("wait", "--for=condition=Established", "crd/sites.example.com", "--timeout=60s")
    try:
        account = Prompt(prompt.folder, await control_plane.service_account_kubeconfig(namespace, "sites"))
        async with account.running("run", "sites.py", "-n", namespace) as line:
            await line("Leader is working")
        code, _, err = await account.run("run", "sites.py", "-n", namespace, "--webhooks", "127.0.0.1")
        assert code == 2
        named = "resources: [validatingwebhookconfigurations], resourceNames: [sites-dev]"
        assert f"{named}, verbs: [get, patch, delete]" in err
        assert "secrets" not in err
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            code, _, err = await prompt.run("run", "sites.py", "-n", namespace, "--webhooks", f"127.0.0.1:{port}")
        assert code == 2
        assert f"the webhook cannot listen on port {port} of all addresses: another process does" in err
        assert "set `--webhooks HOST:PORT` or Serving.port to a free port" in err
        assert "Traceback" not in err
    finally:
        await remove(admin, text)


async def test_with_cert_manager_the_api_server_accepts_all_of_it_and_it_runs_without_further_rights(
    prompt: Prompt, installed: ControlPlane, admin: AdminClient, namespace: str
) -> None:
    file = write_sites(prompt.folder)
    file.write_text(file.read_text() + WEBHOOK)
    types = yaml.safe_dump_all(cert_manager_types())
    await installed.apply(stdin=types)
    text = await manifests(prompt, "-n", namespace, "--cert-manager")
    try:
        said = await installed.kubectl("apply", "--server-side", "--validate=strict", "-f", "-", stdin=text)
        assert said.count("serverside-applied") == len(list(yaml.safe_load_all(text)))
        made = await admin.get("cert-manager.io/v1/certificates", "sites-webhooks", namespace)
        configuration = await admin.get(VALIDATING, "sites")
        wanted = f"{namespace}/{made['metadata']['name']}"
        assert configuration["metadata"]["annotations"]["cert-manager.io/inject-ca-from"] == wanted
        await installed.kubectl("wait", "--for=condition=Established", "crd/sites.example.com", "--timeout=60s")
        account = await installed.service_account_kubeconfig(namespace, "sites")
        who = f"system:serviceaccount:{namespace}:sites"
        asked = ("auth", "can-i", "-n", namespace, "--as", who)
        await installed.kubectl(*asked, "patch", "leases")
        for right in ("get", "secrets"), ("patch", "validatingwebhookconfigurations/sites"):
            with pytest.raises(LocalClusterError):  # as kubectl says no
                await installed.kubectl(*asked, *right)
        async with Prompt(prompt.folder, account).running("run", "sites.py", "-n", namespace) as line:
            await line("Leader is working")
    finally:
        await remove(admin, text)
        await remove(admin, types)


@pytest.mark.slow
@pytest.mark.timeout(3 * SECONDS)
async def test_shards_run_with_exactly_these_rights_and_share_the_objects_of_their_namespace(
    tmp_path: Path, fresh_control_plane: ControlPlane
) -> None:
    where = ("--watch-namespace", "default")
    plane, admin_prompt = fresh_control_plane, Prompt(tmp_path, fresh_control_plane.admin_kubeconfig)
    write_sites(tmp_path, "sharded=True")
    async with Installation(plane) as installation, plane.admin() as admin:
        await plane.kubectl(
            "apply",
            "--server-side",
            "-f",
            "-",
            stdin=await manifests(admin_prompt, "--sharder=sharding-system/sharder", *where),
        )
        await plane.kubectl("wait", "--for=condition=Established", "crd/sites.example.com", "--timeout=60s")
        await installation.start_sharder("sharder")
        account = Prompt(tmp_path, await plane.service_account_kubeconfig("default", "sites"))
        first = account.running("run", "sites.py", *where, "--shard", "one", "--restart-grace", "60")
        async with first as one, account.running("run", "sites.py", *where, "--shard", "two") as two:
            await one("Shard is working")
            await two("Shard is working")
            async with account.running("run", "sites.py", *where, "--shard", "one") as namesake:
                assert "shard=one" in await namesake("The name of this shard is in use")
                await namesake("held by one (instance ")
            await admin.create("v1/namespaces", {"metadata": {"name": "elsewhere"}})
            await admin.create(SITES, site("unseen"), "elsewhere")
            for number in range(20):
                await admin.create(SITES, site(f"site-{number}"), "default")
            await admin.eventually(SITES, lambda found: _shown(found, 20), "default", timeout_seconds=SECONDS)
            assert {_shard_of(each) for each in await admin.list(SITES, "default")} == {"one", "two"}
            assert not _shard_of(await admin.get(SITES, "unseen", "elsewhere")), "no shard sees it"
            explained, held = (await account.explained("sites.py", "st/site-7")).splitlines()
            assert explained == "sites.example.com: default/site-7: waits for its next event"
            shard = _shard_of(await admin.get(SITES, "site-7", "default"))
            assert held.startswith(f"shard {shard}: its Lease default/{shard} is held by {shard} (instance ")
            assert held.endswith("which is the process that was asked")
        lease = await admin.get("coordination.k8s.io/v1/leases", "one", "default")
        assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseDurationSeconds"]) == ("one", 60)

        # By ranges it is another ring, for how a ring assigns cannot be changed; the sharder may not touch its objects.
        await admin.delete(RINGS, "sites")
        await plane.kubectl("delete", "clusterrole,clusterrolebinding", "sharding:clusterring:sites")
        by_ranges = await manifests(admin_prompt, "--hash-by=Namespace")
        await plane.kubectl("apply", "--server-side", "-f", "-", stdin=by_ranges)
        async with account.running("run", "sites.py", "--shard", "three") as three:
            await three("Shard is working")
            for number in range(20, 40):
                await admin.create(SITES, site(f"site-{number}"), "default")
            made = await admin.eventually(SITES, lambda found: _shown(found, 40), "default", timeout_seconds=SECONDS)
        assert not [each for each in made if int(each["metadata"]["name"].partition("-")[2]) >= 20 and _shard_of(each)]


def site(name: str, html: str = "x") -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": "Site", "metadata": {"name": name}, "spec": {"html": html}}


def _shard_of(site: dict[str, Any]) -> str:
    """Whose label it has; empty: none."""
    labels = site["metadata"].get("labels", {})
    return next((value for key, value in labels.items() if key.startswith("shard.alpha.sharding")), "")


def _shown(sites: list[dict[str, Any]], count: int = 1) -> list[dict[str, Any]] | None:
    """All of them, once so many are shown."""
    shown = [each for each in sites if (each.get("status") or {}).get("shown")]
    return sites if len(shown) == count else None

"""`shardsdk run` on a real control plane: it looks for what it needs, runs without ports, and explains itself."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest

from localcluster import AdminClient, ControlPlane
from tests.integration.plugin import granted, make_account
from tests.integration.prompt import Prompt
from tests.ports import free_port

ELECTED = """
from shardsdk import Context, Election, Manager, PartialObject, RequeueAfter, Resource, controller_for

SECRETS = Resource("", "v1", "secrets", "Secret")

async def reconcile(context: Context[PartialObject]) -> RequeueAfter:
    return RequeueAfter(3600)

manager = Manager({ring}election=Election("{name}"), namespace="{name}", watch_namespace="{name}")
manager.add(controller_for(SECRETS){where}.reconcile(reconcile))
"""


OPERATOR = """
from shardsdk import Context, Operator
from shardsdk.kinds import Secret

operator = Operator("{name}")


@operator.reconcile(Secret)
async def keep(ctx: Context[Secret]) -> None:
    pass
"""


@pytest.fixture
def admin_prompt(tmp_path: Path, control_plane: ControlPlane) -> Prompt:
    return Prompt(tmp_path, control_plane.admin_kubeconfig)


def write(folder: Path, name: str, *, ring: str = "", where: str = ".on_leader()") -> None:
    (folder / "sites.py").write_text(ELECTED.format(name=name, ring=ring, where=where))


async def test_it_runs_without_ports_explains_itself_and_stops_in_order(
    admin_prompt: Prompt, admin: AdminClient, namespace: str
) -> None:
    write(admin_prompt.folder, namespace)
    await admin.create("v1/secrets", {"metadata": {"name": "a"}}, namespace)
    async with admin_prompt.running("run", "sites.py") as line:
        running = await line("Running")
        assert f"program={namespace}" in running
        assert "INFO" in running
        assert "T" not in running.split()[0], "the time of day, for people"
        await line("Leader is working")
        await admin.create("v1/secrets", {"metadata": {"name": "b"}}, namespace)
        said = await admin_prompt.explained("sites.py", "secret/b", "-n", namespace)
        assert said.startswith(f"secrets: {namespace}/b: ")
        code, _, complaint = await admin_prompt.run("explain", "secret/c", "-n", namespace)
        assert (code, complaint.startswith(f"secrets c: there is none in namespace '{namespace}' at ")) == (1, True)
    assert list((admin_prompt.runtime / "shardsdk").iterdir()) == []


async def test_with_a_port_for_its_health_it_explains_itself_all_the_same(
    admin_prompt: Prompt, admin: AdminClient, namespace: str
) -> None:
    write(admin_prompt.folder, namespace)
    await admin.create("v1/secrets", {"metadata": {"name": "a"}}, namespace)
    async with admin_prompt.running("run", "sites.py", "--health", f"127.0.0.1:{free_port()}") as line:
        await line("Leader is working")
        said = await admin_prompt.explained("sites.py", "secret/a", "-n", namespace)
        assert said.startswith(f"secrets: {namespace}/a: ")


async def test_what_the_program_counts_is_among_the_metrics(admin_prompt: Prompt, namespace: str) -> None:
    counting = 'from prometheus_client import Counter\nCounter("shelves_moved", "Shelves moved").inc(3)\n'
    (admin_prompt.folder / "keep.py").write_text(counting + OPERATOR.format(name=namespace))
    url = f"http://127.0.0.1:{free_port()}/metrics"
    arguments = ("run", "keep.py", "-n", namespace, "--watch-namespace", namespace, "--metrics", url.split("/")[2])
    async with admin_prompt.running(*arguments) as line, aiohttp.ClientSession() as session:
        await line("Leader is working")
        async with session.get(url) as answer:
            lines = (await answer.text()).splitlines()
    assert "shelves_moved_total 3.0" in lines
    for name in ("workqueue_depth", "process_resident_memory_bytes", "python_info"):
        assert lines.count(f"# TYPE {name} gauge") == 1


async def test_a_namespace_that_is_misspelt_is_told(admin_prompt: Prompt, namespace: str) -> None:
    (admin_prompt.folder / "keep.py").write_text(OPERATOR.format(name=namespace))
    code, _, err = await admin_prompt.run("run", "keep.py", "-n", "nowhere")
    assert code == 2
    assert err.startswith("shardsdk: there is no namespace 'nowhere', where its Lease belongs; create it by `kubectl")
    where = ("-n", namespace, "--watch-namespace", "nowhere")
    async with admin_prompt.running("run", "keep.py", *where) as line:
        assert "namespace=nowhere" in await line("A namespace is not there in which objects are to be watched")
        await line("Leader is working")


async def test_in_a_pod_it_prints_json_and_has_a_pods_ports(admin_prompt: Prompt, namespace: str) -> None:
    write(admin_prompt.folder, namespace)
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    arguments = ("run", "sites.py", "--health", addresses[0], "--metrics", addresses[1])
    async with admin_prompt.running(*arguments, KUBERNETES_SERVICE_HOST="here") as line:
        assert json.loads(await line("Running"))["program"] == namespace
        await line("Leader is working")
        host, _, port = addresses[0].partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert (await reader.read()).endswith(b"ok")
        writer.close()
        code, out, _ = await admin_prompt.run("explain", "secret/a", "-n", namespace, "--address", addresses[0])
        assert code == 1
        assert out == ""


async def test_a_port_that_is_taken_is_said(admin_prompt: Prompt, namespace: str) -> None:
    write(admin_prompt.folder, namespace)
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    code, _, err = await admin_prompt.run("run", "sites.py", "--health", address)
    assert code == 2
    assert f"cannot listen on {address} for health: another process does" in err
    assert "stop it or set the port of --health or health_address to a free port" in err
    server.close()


async def test_a_cluster_that_does_not_answer_is_named(admin_prompt: Prompt, namespace: str) -> None:
    write(admin_prompt.folder, namespace)
    kubeconfig = admin_prompt.folder / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    contexts = [{"name": "c", "context": {"cluster": "c", "user": ""}}]
    kubeconfig.write_text(json.dumps({"clusters": [cluster], "contexts": contexts, "current-context": "c"}))
    code, _, err = await admin_prompt.run("run", "sites.py", "--kubeconfig", str(kubeconfig))
    assert code == 2
    assert err.startswith(f"shardsdk: no API server answers at http://127.0.0.1:1 (kubeconfig {kubeconfig}): ")
    code, _, err = await admin_prompt.run("run", "sites.py", KUBECONFIG="/nowhere")
    assert code == 2
    assert err.startswith("shardsdk: $KUBECONFIG /nowhere: no such file")
    code, _, err = await admin_prompt.run("run", "sites.py", KUBECONFIG="", HOME=str(admin_prompt.folder))
    assert code == 2
    wanted = "pass a kubeconfig, set KUBECONFIG, run in a pod with a ServiceAccount, or create"
    assert err == f"shardsdk: no API server configured: {wanted} {admin_prompt.folder}/.kube/config\n"


async def test_rights_that_are_missing_are_rules_that_help(
    tmp_path: Path, control_plane: ControlPlane, admin: AdminClient, namespace: str
) -> None:
    write(tmp_path, namespace)
    prompt = Prompt(tmp_path, await make_account(control_plane, admin, namespace, "sites"))
    code, _, err = await prompt.run("run", "sites.py")
    assert code == 2
    first, *lines = err.splitlines()
    assert first == f"shardsdk: system:serviceaccount:{namespace}:sites lacks rights that sites.py needs; grant it"
    assert lines[0] == f"by a Role in namespace {namespace}:"
    rules = [json.loads(_quoted(line.removeprefix("- "))) for line in lines if line.startswith("- ")]
    assert {name for rule in rules for name in rule["resources"]} == {"secrets", "leases", "events"}
    async with AsyncExitStack() as grants, prompt.running("run", "sites.py", "--dev") as line:
        await line("starting again in")
        await grants.enter_async_context(granted(admin, namespace, rules, "sites"))
        await line("Leader is working")


async def test_a_shard_whose_ring_is_missing_is_told_before_it_takes_its_lease(
    tmp_path: Path, installed: ControlPlane, admin: AdminClient, namespace: str
) -> None:
    prompt = Prompt(tmp_path, installed.admin_kubeconfig)
    write(tmp_path, namespace, ring=f'"{namespace}", ', where="")
    text = (tmp_path / "sites.py").read_text().replace(f'election=Election("{namespace}"), ', 'shard="one", ')
    (tmp_path / "sites.py").write_text(text)
    code, _, err = await prompt.run("run", "sites.py")
    assert code == 2
    assert err.startswith(f"shardsdk: there is no ClusterRing '{namespace}', so nobody would give this shard objects")
    leases = await admin.list("coordination.k8s.io/v1/leases", namespace)
    assert leases == []


async def test_it_starts_again_when_its_file_is_saved(admin_prompt: Prompt, namespace: str) -> None:
    write(admin_prompt.folder, namespace)
    file = admin_prompt.folder / "sites.py"
    async with admin_prompt.running("run", "sites.py", "--dev") as line:
        await line("Leader is working")
        good = file.read_text()
        file.write_text(good + "def (")
        await line("sites.py changed; starting again")
        assert f"{file.name}, line " in await line("invalid syntax")
        await line("not started; waiting for a file to be saved")
        file.write_text(good)
        await line("sites.py changed; starting again")
        await line("Leader is working")


def _quoted(rule: str) -> str:
    """A rule in YAML's short form, as JSON."""
    import yaml

    return json.dumps(yaml.safe_load(rule))

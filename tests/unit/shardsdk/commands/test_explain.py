"""`shardsdk explain` asks the processes of this machine, and says where an object is that none of them has."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest
import pytest_asyncio
from aiohttp import web

from shardsdk import Context, Manager, PartialObject, RateLimit, Resource, controller_for
from shardsdk.cli import main
from shardsdk.commands import run
from shardsdk.commands.asking import ask, forwarded
from shardsdk.commands.explain import EXPLAINED, NOT_HERE, Question, find_answer, parse_object
from shardsdk.commands.loading import Unloadable
from shardsdk.commands.sockets import socket_of, sockets
from shardsdk.errors import ConfigurationError, ConnectionFailed
from shardsdk.kube.api import Api, Fence
from shardsdk.kube.clock import SystemClock
from shardsdk.kube.store import Key
from shardsdk.lease.shardlease import ShardLease
from shardsdk.process.process import ExitCode
from shardsdk.process.world import World
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import MemoryApi
from tests.ports import free_port
from tests.unit.shardsdk.commands.asked import SECRETS, cluster, one_line, serving
from tests.walking import runtime_directory

NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
SITES = "shard.alpha.sharding.timebertt.dev/clusterring-1-sites"
SLOW = RateLimit(base_seconds=1000)


@asynccontextmanager
async def running(address: str, socket: str = "") -> AsyncIterator[None]:
    """A process whose Secrets fail and whose Nodes rest, with an API server in memory; it answers there."""
    server, clock, failed = MemoryServer(), SystemClock(), asyncio.Event()
    server.create(SECRETS, {"metadata": {"name": "a", "namespace": "default"}})
    server.create(NODES, {"metadata": {"name": "one"}})

    async def fail(context: Context[PartialObject]) -> None:
        failed.set()
        raise RuntimeError("the bucket is full")

    async def rest(context: Context[PartialObject]) -> None:
        return None

    @asynccontextmanager
    async def client(_: ShardLease | Fence | None = None) -> AsyncIterator[Api]:
        yield MemoryApi(server, clock)

    manager = Manager(health_address=address, metrics_address="0")
    manager.socket = socket
    manager.add(controller_for(SECRETS).reconcile(fail).options(rate_limit=SLOW))
    manager.add(controller_for(NODES).reconcile(rest))

    def die(code: int, why: str) -> None:
        raise AssertionError(why)

    world = World(client, client, clock, Random(1), threaded=False, signals=False, die=die, open=client)
    process = asyncio.create_task(manager.run_async(world))
    try:
        await failed.wait()
        yield
    finally:
        manager.stopping.set()
        assert await process is ExitCode.OK


@pytest_asyncio.fixture
async def here(environ: dict[str, str]) -> AsyncIterator[dict[str, str]]:
    """A process called `sites` that answers by its socket."""
    async with running(f"unix:{socket_of('sites', 1, environ)}"):
        yield environ


@pytest.mark.parametrize("kind", ["secret", "secrets", "Secret"])
@pytest.mark.parametrize("program", [None, "sites"])
async def test_a_process_of_this_machine_is_found_by_itself(
    kind: str, program: str | None, here: dict[str, str]
) -> None:
    answer = await find_answer(Question(kind, "a", program=program), here)
    assert answer.code == EXPLAINED
    assert one_line(answer).startswith(
        "secrets: default/a: has failed once, the last time with RuntimeError: the bucket is full; tried again in "
    )


async def test_an_object_without_a_namespace_is_found_too(here: dict[str, str]) -> None:
    assert one_line(await find_answer(Question("node", "one"), here)) == "nodes: one: waits for its next event"


async def test_a_process_is_asked_by_its_address(environ: dict[str, str]) -> None:
    address = f"127.0.0.1:{free_port()}"
    async with running(address):
        answer = await find_answer(Question("node", "one", address=address), environ)
        assert one_line(answer) == "nodes: one: waits for its next event"


async def test_a_process_with_a_port_for_its_health_is_found_by_itself_too(
    environ: dict[str, str], tmp_path: Path
) -> None:
    address = f"127.0.0.1:{free_port()}"
    (tmp_path / "sites.py").write_text('from shardsdk import Manager\nmanager = Manager("sites")\n')
    program, manager = run._load(run.Options(str(tmp_path / "sites.py"), health=address))
    assert manager.socket == f"unix:{socket_of(program.name, os.getpid(), environ)}"
    async with running(address, manager.socket):
        for question in (Question("node", "one"), Question("node", "one", address=address)):
            assert one_line(await find_answer(question, environ)) == "nodes: one: waits for its next event"


def test_who_names_a_port_for_health_needs_no_directory_for_sockets(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "file"))
    (tmp_path / "sites.py").write_text('from shardsdk import Manager\nmanager = Manager("sites")\n')
    with pytest.raises(Unloadable, match="cannot be made"):
        run._load(run.Options(str(tmp_path / "sites.py")))
    _, manager = run._load(run.Options(str(tmp_path / "sites.py"), health="127.0.0.1:8081"))
    assert manager.socket == ""
    (line,) = caplog.records
    assert line.msg == "No socket could be made for whoever asks here; explain takes --address"


async def test_a_process_that_ends_takes_its_socket_along(environ: dict[str, str]) -> None:
    path = socket_of("sites", 1, environ)
    async with running(f"unix:{path}"):
        assert sockets("sites", environ) == [path]
        assert sockets("other", environ) == []
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert sockets("sites", environ) == []


async def test_the_socket_of_a_process_that_was_killed_is_passed_over_and_removed(here: dict[str, str]) -> None:
    left = socket_of("sites", 2, here)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(left))
    assert (await find_answer(Question("node", "one", program="sites"), here)).code == EXPLAINED
    assert not left.exists()


async def test_a_kind_that_nobody_has_is_said_with_those_that_there_are(here: dict[str, str]) -> None:
    answer = await find_answer(Question("website", "a"), here)
    assert answer.code == NOT_HERE
    assert one_line(answer) == "no controller here is called for 'website'; there are some for nodes, secrets"


async def test_short_names_are_those_of_the_program(here: dict[str, str]) -> None:
    answer = await find_answer(Question("no", "one", short_names={"nodes": ["no"]}), here)
    assert answer.code == EXPLAINED


@pytest.mark.parametrize(
    ("question", "says"),
    [
        (
            Question("secret", "a"),
            "no process of shardsdk runs on this machine, by `shardsdk run` or with its health at",
        ),
        (Question("secret", "a", program="sites"), "no process of 'sites' runs on this machine"),
        (Question("secret", "a", address="127.0.0.1:1"), "nobody listens on 127.0.0.1:1; for one in a pod say which"),
        (Question("secret", "a", address="here"), "address 'here' is not \"host:port\""),
        (Question("secret", "a", namespace="Team"), "'Team' cannot be the name of a namespace"),
    ],
)
async def test_where_nobody_is_is_said_with_what_to_do(question: Question, says: str, environ: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match=says):
        await find_answer(question, environ)


@pytest.mark.parametrize("name", ["home", "system:node", "Admin_Role", "a b"])
def test_an_object_may_be_called_as_roles_are(name: str) -> None:
    assert parse_object(f"clusterrole.rbac.authorization.k8s.io/{name}") == (
        "clusterrole.rbac.authorization.k8s.io",
        name,
    )


@pytest.mark.parametrize(
    "text", ["secrets", "secrets/", "/a", "secrets/a/b", "Sec ret/a", "secrets/.", "secrets/..", "secrets/a%2Fb"]
)
def test_what_names_no_object_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is not KIND/NAME, as in website/home"):
        parse_object(text)


async def test_a_directory_that_others_can_use_is_refused(environ: dict[str, str]) -> None:
    path = socket_of("sites", 1, environ)
    path.parent.chmod(0o755)
    with pytest.raises(ConfigurationError, match="lets others in"):
        socket_of("sites", 1, environ)


def test_a_long_directory_leaves_less_of_the_name(tmp_path: Path) -> None:
    short = runtime_directory(tmp_path)
    long = short / ("x" * (70 - len(str(short))))
    environ = {"XDG_RUNTIME_DIR": str(long)}
    path = socket_of("websites-of-the-whole-company", 4_194_304, environ)
    assert len(str(path)) <= 103
    assert "websites" in path.name
    path.touch()
    assert sockets("websites-of-the-whole-company", environ) == [path]
    with pytest.raises(
        ConfigurationError, match="is too long for a socket in it: name a shorter one by XDG_RUNTIME_DIR"
    ):
        socket_of("websites", 1, {"XDG_RUNTIME_DIR": str(long / "further/down")})


async def test_a_process_that_refuses_says_why(environ: dict[str, str]) -> None:
    async with serving(
        lambda _: web.Response(status=503, text="no controller runs here; /readyz says why\n")
    ) as address:
        answer = await find_answer(Question("secret", "a", address=str(address)), environ)
    assert (answer.code, one_line(answer)) == (NOT_HERE, f"{address}: no controller runs here; /readyz says why")


async def test_another_program_at_the_port_is_told_from_ours(environ: dict[str, str]) -> None:
    async with serving(lambda _: web.Response(status=404)) as address:
        said = await ask(address, Key("default", "a"))
        assert said is not None
        assert said.refusal.startswith("it is no process of shardsdk's")
    async with serving(lambda _: web.Response(text="<html>")) as address:
        with pytest.raises(ConnectionFailed, match="answers something else: b'<html>'; name the health port"):
            await ask(address, Key("default", "a"))


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        (None, "secrets b: there is none in namespace 'default' at https://api (kubeconfig k)"),
        ({}, "secrets b: it is there, and none of the processes that were asked has it: it has no shard yet"),
        (
            {SITES: "sites-7"},
            f"secrets b: it is with another shard, sites-7 (label {SITES}); ask that one, in a pod by --pod sites-7",
        ),
    ],
)
async def test_where_an_object_is_that_no_process_here_has(
    labels: dict[str, str] | None, says: str, here: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = (
        [] if labels is None else [(SECRETS, {"metadata": {"name": "b", "namespace": "default", "labels": labels}})]
    )
    cluster(monkeypatch, *objects)
    answer = await find_answer(Question("secret", "b"), here)
    assert answer.code == NOT_HERE
    assert one_line(answer).startswith(says)


async def test_an_api_server_that_cannot_be_asked_is_said(here: dict[str, str]) -> None:
    answer = await find_answer(Question("secret", "b"), here)
    assert one_line(answer).startswith("secrets b: not here, and where it is the API server does not say: $KUBECONFIG")


# -- in a pod ------------------------------------------------------------------


def kubectl(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A kubectl that forwards no port, but knows who listens."""
    program = folder / "kubectl"
    program.write_text(f'#!/bin/sh\necho "$@" >{folder}/asked\n{script}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


async def test_a_pod_is_asked_through_kubectl(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    kubectl(tmp_path, monkeypatch, f'echo "Forwarding from 127.0.0.1:{port} -> 8081"; exec sleep 600')
    question = Question("secret", "a", namespace="default", pod="team/sites-0", context="mine")
    async with running(f"127.0.0.1:{port}"):
        assert one_line(await find_answer(question, environ)).startswith("secrets: default/a: has failed once")
    asked = (tmp_path / "asked").read_text().split()
    assert " ".join(asked[:4]) == "--namespace team --context mine"
    assert asked[-2] == "pod/sites-0"


async def test_what_kubectl_has_started_is_not_waited_for_and_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plugin of the kubeconfig's that hangs, say: it holds kubectl's output open."""
    os.mkfifo(tmp_path / "open")
    script = f'exec 9<>{tmp_path}/open; echo "Forwarding from 127.0.0.1:7 -> 8081"; sleep 600; echo'
    kubectl(tmp_path, monkeypatch, script)
    async with asyncio.timeout(60), forwarded("pod/x", None, None, None) as port:
        assert port == 7
    async with asyncio.timeout(60):
        while is_open(tmp_path / "open"):  # what kubectl has started ends when the kernel comes to it
            await asyncio.sleep(0.02)


def is_open(pipe: Path) -> bool:
    """Whether anybody has it open: kubectl, or what it has started."""
    try:
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return False
    return True


async def test_what_kubectl_says_of_a_pod_is_passed_on(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubectl(tmp_path, monkeypatch, 'echo "Error from server (NotFound): pods \\"x\\" not found" >&2; exit 1')
    with pytest.raises(ConfigurationError, match=r"cannot forward a port to pod/x: Error from server \(NotFound\)"):
        await find_answer(Question("node", "one", pod="x"), environ)


async def test_without_kubectl_it_says_how_to_ask_in_the_pod(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(
        ConfigurationError, match=r"kubectl exec POD -- shardsdk explain KIND/NAME --address 127\.0\.0\.1:8081"
    ):
        await find_answer(Question("node", "one", pod="x"), environ)


# -- at the prompt ----------------------------------------------------------------


def test_no_process_is_one_line_and_exit_code_2(environ: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "secret/a"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("shardsdk: no process of shardsdk runs on this machine")


@pytest.mark.parametrize("words", [[], ["a", "b", "c"]])
def test_wrong_usage_says_what_to_give(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", *words]) == 2
    assert "give KIND/NAME" in capsys.readouterr().err


def test_two_processes_are_not_asked_at_once(environ: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "secret/a", "--address", "127.0.0.1:1", "--pod", "one"]) == 2
    assert capsys.readouterr().err == "shardsdk: one process is asked: leave out --address or --pod\n"

"""`python -m localcluster`: a control plane for one's own shell.

Standard output holds only what a shell evaluates; everything else goes to
standard error::

    eval "$(python -m localcluster up)"
    kubectl get namespaces
    python -m localcluster down

`--feature-gates NAME=true,…` switches features of the API server on that are off.
With `--node` pods run, too (Linux, root, `make node-deps`)::

    eval "$(python -m localcluster up --node)"
    python -m localcluster images --load
    python -m localcluster build --tag my-controller:1.0.0 FOLDER
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from localcluster.binaries import Binaries, find_binaries, say
from localcluster.components import parse_feature_gates, render_feature_gates
from localcluster.control_plane import ControlPlane
from localcluster.errors import LocalClusterError
from localcluster.etcd_data import keep, kept_data
from localcluster.forwarder import Backend, Forwarder
from localcluster.helm import find_helm
from localcluster.images import build_folder, build_images, full_name
from localcluster.node import Node, load_images, name_image
from localcluster.node_programs import find_node_programs
from localcluster.ports import LOOPBACK
from localcluster.running import DEFAULT_NAME, Running, find_running


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except LocalClusterError as error:
        say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m localcluster", description="A real control plane on this machine.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: object, text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        added.set_defaults(run=run)
        return added

    acquire = command("acquire", _acquire, "find the Kubernetes programs, or build them once")
    acquire.add_argument("--node", action="store_true", help="those of a node, too")
    command("helm", _helm, "find Helm, or build it once")
    up = command("up", _up, "start a control plane that stays; prints `export KUBECONFIG=…`")
    up.add_argument("--name", default=DEFAULT_NAME, help="of several, which one")
    up.add_argument(
        "--node", action="store_true", help="with a node, so that pods run: takes Linux, root, `make node-deps`"
    )
    up.add_argument("--feature-gates", default="", metavar="NAME=BOOL,…", help="of the API server alone")
    images = command("images", _images, "build the project's container images; prints their names")
    images.add_argument("--load", action="store_true", help="and give them to the node")
    images.add_argument("--name", default=DEFAULT_NAME, help="of several, which one")
    build = command("build", _build, "build the Dockerfile of a folder, and give the image to the node")
    build.add_argument("--tag", required=True, metavar="IMAGE", help="its name, as in my-controller:1.0.0")
    build.add_argument("--name", default=DEFAULT_NAME, help="of several, which one")
    build.add_argument("folder", type=Path, help="it may be built FROM one of the project's images")
    for name, run, text in (
        ("down", _down, "end it and delete its data"),
        ("status", _status, "say whether it runs and answers (exit code 0) or not (1)"),
    ):
        command(name, run, text).add_argument("--name", default=DEFAULT_NAME, help="of several, which one")
    kubectl = command("kubectl", _kubectl, "run kubectl on it")
    kubectl.add_argument("--name", default=DEFAULT_NAME, help="of several, which one")
    kubectl.add_argument("arguments", nargs=argparse.REMAINDER)
    forward = command("forward", _forward, "play the Service in front of several replicas")
    forward.add_argument("--listen", default=f"{LOOPBACK}:0", metavar="HOST:PORT")
    forward.add_argument(
        "--backend", action="append", required=True, metavar="HOST:PORT=READY_URL", help="a replica; give one or more"
    )
    return parser


def _acquire(options: argparse.Namespace) -> int:
    if options.node:
        # First, since it builds both at a time where both are missing.
        say(f"localcluster: a node's programs: {find_node_programs().source}")
    binaries = find_binaries()
    say(f"localcluster: Kubernetes programs: {binaries.source}")
    asyncio.run(_keep_data(binaries))
    return 0


async def _keep_data(binaries: Binaries) -> None:
    """Have later control planes begin with what the first API server makes."""
    kept = kept_data(binaries)
    if kept is not None and not kept.is_dir():
        async with ControlPlane(binaries=binaries, controllers=()) as plane:
            await plane.apiserver.kill()
            await plane.etcd.stop()
            keep(plane.folder / "etcd", kept)


def _helm(_: argparse.Namespace) -> int:
    say(f"localcluster: Helm: {find_helm().source}")
    return 0


def _up(options: argparse.Namespace) -> int:
    running = find_running(options.name)
    if running and options.node and not running.has_node:
        raise LocalClusterError(
            f"{running.name} runs without a node; end it first: python -m localcluster down --name {running.name}"
        )
    gates = parse_feature_gates(options.feature_gates)
    if running and gates and running.feature_gates != gates:
        raise LocalClusterError(
            f"{running.name} runs with --feature-gates {render_feature_gates(running.feature_gates) or '(none)'};"
            f" end it first: python -m localcluster down --name {running.name}"
        )
    if running:
        _check_answers(running)
    running = running or asyncio.run(_start(options.name, Node() if options.node else None, gates))
    say(f"localcluster: {running.name} runs at {running.url}, in {running.folder}")
    print(f"export KUBECONFIG={shlex.quote(str(running.kubeconfig))}")
    return 0


def _check_answers(running: Running) -> None:
    """Raises: LocalClusterError."""
    if not running.answers():
        raise LocalClusterError(
            f"{running.name} runs, but its API server at {running.url} is not ready; logs: {running.logs};"
            f" end it: python -m localcluster down --name {running.name}"
        )


async def _start(name: str, node: Node | None, gates: Mapping[str, bool]) -> Running:
    plane = ControlPlane(node=node, feature_gates=gates)
    try:
        await plane.start()
        say(f"localcluster: Kubernetes programs: {plane.binaries.source}")
        return plane.detach(name)
    except BaseException:
        plane.close()
        raise


def _images(options: argparse.Namespace) -> int:
    running = _with_node(options.name) if options.load else None
    images = build_images().values()
    for image in images:
        if running:
            asyncio.run(_load(running, image.archive, image.reference, full_name(image.released)))
        print(image.released if running else image.reference)
    return 0


def _build(options: argparse.Namespace) -> int:
    running = _with_node(options.name)
    name, archive = build_folder(options.folder, options.tag)
    asyncio.run(_load(running, archive, name))
    print(options.tag)
    return 0


def _with_node(name: str) -> Running:
    running = find_running(name)
    if running is None or not running.has_node:
        raise LocalClusterError(f"{name} does not run with a node; start it: python -m localcluster up --node")
    return running


async def _load(running: Running, archive: Path, name: str, *more: str) -> None:
    programs = find_node_programs()
    await load_images(running.folder, archive, programs)
    for each in more:
        await name_image(running.folder, name, each, programs)


def _down(options: argparse.Namespace) -> int:
    running = find_running(options.name)
    if running is None:
        say(f"localcluster: {options.name} does not run")
        return 0
    running.stop()
    say(f"localcluster: {options.name} is down, its data deleted")
    return 0


def _status(options: argparse.Namespace) -> int:
    running = find_running(options.name)
    if running is None:
        say(f"localcluster: {options.name} does not run")
        return 1
    _check_answers(running)
    say(f"localcluster: {options.name} runs at {running.url}; logs: {running.logs}")
    print(f"export KUBECONFIG={shlex.quote(str(running.kubeconfig))}")
    return 0


def _kubectl(options: argparse.Namespace) -> int:
    running = find_running(options.name)
    if running is None:
        raise LocalClusterError(f"{options.name} does not run; start it: python -m localcluster up")
    program, *fixed = find_binaries().kubectl
    sys.stdout.flush()
    os.execvpe(program, [program, *fixed, *options.arguments], {**os.environ, "KUBECONFIG": str(running.kubeconfig)})


def _forward(options: argparse.Namespace) -> int:
    asyncio.run(_forward_forever(*_address(options.listen), [_backend(text) for text in options.backend]))
    return 0


async def _forward_forever(host: str, port: int, backends: Sequence[Backend]) -> None:
    async with Forwarder(backends, host=host, port=port) as forwarder:
        print(f"{forwarder.host}:{forwarder.port}", flush=True)
        await asyncio.Event().wait()


def _backend(text: str) -> Backend:
    address, separator, ready_url = text.partition("=")
    if not separator or not ready_url.startswith("http://"):
        raise LocalClusterError(f"--backend {text!r}: write HOST:PORT=http://HOST:PORT/readyz")
    return Backend(*_address(address), ready_url)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise LocalClusterError(f"{text!r} is no address: write HOST:PORT")
    return host, int(port)

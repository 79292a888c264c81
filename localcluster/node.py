"""A node of this machine's own: pods run, Services route, a webhook is called through its Service.

It lives in mount, network and PID namespaces of its own, so that the machine
is not touched: interfaces, iptables rules, mounts and every container go with
the namespaces' first process, which the supervisor kills when its owner is
gone.  Control groups are the exception; the supervisor removes them, and the
interface that joins the two, for which the kernel takes its time.  The API
server shares the network namespace; the machine reaches it over a pair of
interfaces with addresses that are for benchmarks of networks, not in use
anywhere.

Takes Linux and root, and Debian's packages: `make node-deps`.  Images are
loaded from archives; there is no registry, and no DNS in pods.  Pods find the
API server by KUBERNETES_SERVICE_HOST.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import aiohttp

from localcluster.admin import AdminClient
from localcluster.cgroups import make_groups
from localcluster.components import START_SECONDS, Component, Network
from localcluster.errors import LocalClusterError
from localcluster.node_files import (
    NODE_NAME,
    PAUSE_IMAGE,
    PROXY_HEALTH_PORT,
    cni_config,
    containerd_config,
    containerd_socket,
    kubelet_config,
    proxy_config,
)
from localcluster.node_programs import PATH, NodePrograms, find_node_programs
from localcluster.pause import write_pause_archive
from localcluster.pki import Authority
from localcluster.process import Supervisor

#: Nodes that may run side by side on one machine.
_MOST_NODES: Final = 1024
#: Of 198.18.0.0/15, for benchmarks of networks (RFC 2544).
_FIRST_ADDRESS: Final = int(ipaddress.IPv4Address("198.18.0.0"))
#: Until a node is ready it loads an image, and starts on busy cores.
NODE_SECONDS: Final = 3 * START_SECONDS


class MakeKubeconfig(Protocol):
    """Writes a kubeconfig for a user in groups."""

    def __call__(self, user: str, groups: Sequence[str] = ()) -> Path:
        """Write it, and say where."""


class Node:
    """A node for one control plane: `ControlPlane(node=Node())` does the rest."""

    def __init__(self) -> None:
        self._programs: NodePrograms | None = None
        self.components: dict[str, Component] = {}
        self.address = ""
        #: The machine's end of what joins the two.
        self.interface = ""

    async def prepare(self, supervisor: Supervisor, authority: Authority) -> Network:
        """Make the namespaces, and what joins them to the machine."""
        if self._programs is None:
            self._programs = await asyncio.to_thread(find_node_programs)
        self._supervisor = supervisor
        self._folder = supervisor.folder / "node"
        self._folder.mkdir()
        authority.write_client_pair("kubelet-client", "kube-apiserver", ["system:masters"])
        self._authority = authority.bundle_path
        script = Path(__file__).with_name("node_init.py")
        unshare = [self._tool("unshare"), "--mount", "--net", "--pid", "--fork", "--kill-child"]
        await self._start(
            "node", [*unshare, sys.executable, "-I", "-S", str(script), str(self._folder)], self._is_there
        )
        self._cgroup = supervisor.folder.name
        make_groups(self._cgroup, supervisor.folder / "cgroups")
        outside, self.address = await self._connect()
        return Network(outside, self.address, (self._tool("nsenter"), f"--net=/proc/{self.pid}/ns/net", "--"))

    async def start(self, kubeconfig: MakeKubeconfig, admin: AdminClient) -> None:
        """Start what makes a node; returns once it is ready and Services route.  Raises: ComponentFailed."""
        programs = self._found
        await self._start_containerd()
        scheduler = [str(programs.kubenode), "kube-scheduler", "--leader-elect=false", "--secure-port=0"]
        scheduler += [f"--kubeconfig={kubeconfig('system:kube-scheduler')}"]
        await self._start("kube-scheduler", scheduler, _always)
        await self._start_proxy(kubeconfig("system:kube-proxy"))
        await self._start_kubelet(kubeconfig(f"system:node:{NODE_NAME}", ["system:nodes"]), admin)

    @property
    def pid(self) -> int:
        """The node's first process."""
        return read_pid(self._supervisor.folder)

    async def load(self, archive: Path) -> None:
        """Give the node the images of an archive (docker or OCI)."""
        await load_images(self._supervisor.folder, archive, self._found)

    # -- steps ---------------------------------------------------------------

    async def _start_containerd(self) -> None:
        (self._folder / "cni").mkdir()
        (self._folder / "cni" / "localcluster.conflist").write_text(cni_config())
        config = self._folder / "containerd.toml"
        config.write_text(containerd_config(self._folder, read_snapshotter(self._folder)))

        async def answers() -> bool:
            return (await _run([self._tool("ctr"), f"--address={containerd_socket(self._folder)}", "version"]))[0] == 0

        await self._start("containerd", self._inside("containerd", f"--config={config}"), answers)
        pause = self._folder / "pause.tar"
        write_pause_archive(Path(self._tool("catatonit")), PAUSE_IMAGE, pause)
        await self.load(pause)

    async def _start_proxy(self, kubeconfig: Path) -> None:
        config = self._folder / "kube-proxy.json"
        config.write_text(proxy_config(kubeconfig))
        # Ready with the node, whose address it waits for.
        await self._start("kube-proxy", self._inside(self._found.kubenode, "kube-proxy", f"--config={config}"), _always)

    async def _start_kubelet(self, kubeconfig: Path, admin: AdminClient) -> None:
        config = self._folder / "kubelet.json"
        config.write_text(kubelet_config(self._folder, self._authority, self._supervisor.logs / "pods", self._cgroup))
        argv = self._inside(
            self._found.kubenode, "kubelet", f"--config={config}", f"--kubeconfig={kubeconfig}",
            f"--hostname-override={NODE_NAME}", f"--node-ip={self.address}",
        )  # fmt: skip

        async def node_is_ready() -> bool:
            return any(is_ready(node) for node in await admin.list("v1/nodes")) and await self._routes()

        await self._start("kubelet", argv, node_is_ready, seconds=NODE_SECONDS)
        for component in self.components.values():
            component.check_alive()

    async def _routes(self) -> bool:
        """Whether kube-proxy has written its rules."""
        try:
            timeout = aiohttp.ClientTimeout(total=2.0)
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(f"http://{self.address}:{PROXY_HEALTH_PORT}/healthz") as answer,
            ):
                return answer.status == 200
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False

    async def _start(
        self, name: str, argv: Sequence[str], ready: Callable[[], Any], *, seconds: float = START_SECONDS
    ) -> None:
        component = Component(name, argv, self._supervisor, ready, env={"PATH": PATH})
        self.components[name] = component
        await component.start(wait=False)
        await component.ready(seconds)

    async def _is_there(self) -> bool:
        return (self._folder / "pid").exists()

    def _inside(self, program: Path | str, *arguments: str) -> list[str]:
        return [*enter(self._found, self.pid), self._found.tools.get(str(program), str(program)), *arguments]

    # -- the machine ---------------------------------------------------------

    async def _connect(self) -> tuple[str, str]:
        """Join the node's network to the machine's; returns the machine's address and the node's."""
        for number in range(_MOST_NODES):
            name = f"localcluster{number}"
            pair = ["link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(self.pid)]
            code, said = await _run([self._tool("ip"), *pair])
            if code == 0:
                break
            if "exists" not in said:
                raise LocalClusterError(f"ip {' '.join(pair)}: {said}")
        else:
            raise LocalClusterError(f"there are {_MOST_NODES} nodes on this machine already; end some")
        # For the supervisor, which removes it: where connections die hard the kernel takes minutes.
        (self._supervisor.folder / "links").write_text(f"{name} {socket.if_nametoindex(name)}\n")
        self.interface = name
        machine, node = addresses(number)
        inside = [*enter(self._found, self.pid, "--net"), self._tool("ip")]
        await self._ip([self._tool("ip")], f"address add {machine}/30 dev {name}", f"link set {name} up")
        await self._ip(
            inside, "link set lo up", f"address add {node}/30 dev eth0", "link set eth0 up",
            f"route add default via {machine}",
        )  # fmt: skip
        return machine, node

    async def _ip(self, command: Sequence[str], *steps: str) -> None:
        for step in steps:
            code, said = await _run([*command, *step.split()])
            if code:
                raise LocalClusterError(f"ip {step}: {said}")

    def _tool(self, name: str) -> str:
        return self._found.tools[name]

    @property
    def _found(self) -> NodePrograms:
        assert self._programs is not None
        return self._programs


async def load_images(folder: Path, archive: Path, programs: NodePrograms) -> None:
    """Give the node below a supervisor's folder the images of an archive.  Raises: LocalClusterError."""
    snapshotter = f"--snapshotter={read_snapshotter(folder / 'node')}"
    code, said = await _images(folder, programs, "import", snapshotter, str(archive))
    if code:
        raise LocalClusterError(f"the images of {archive} could not be loaded: {said}")


async def name_image(folder: Path, image: str, name: str, programs: NodePrograms) -> None:
    """Give an image of that node one more name, which another may have had.  Raises: LocalClusterError."""
    code, said = await _images(folder, programs, "tag", "--force", image, name)
    if code:
        raise LocalClusterError(f"the image {image} could not be called {name}: {said}")


async def _images(folder: Path, programs: NodePrograms, *arguments: str) -> tuple[int, str]:
    ctr = [programs.tools["ctr"], f"--address={containerd_socket(folder / 'node')}", "--namespace=k8s.io", "images"]
    return await _run([*enter(programs, read_pid(folder)), *ctr, *arguments])


def enter(programs: NodePrograms, pid: int, *namespaces: str) -> Iterable[str]:
    """What runs a program in a node's namespaces, all of them unless told otherwise."""
    return [programs.tools["nsenter"], f"--target={pid}", *(namespaces or ("--mount", "--net", "--pid")), "--"]


def read_pid(folder: Path) -> int:
    """The first process of the node below a supervisor's folder.  Raises: LocalClusterError when there is no node."""
    try:
        return int((folder / "node" / "pid").read_text())
    except FileNotFoundError:
        raise LocalClusterError(f"the control plane in {folder} has no node; start one with `up --node`") from None


def read_snapshotter(node: Path) -> str:
    """How containerd keeps layers there."""
    return (node / "snapshotter").read_text()


def addresses(number: int) -> tuple[str, str]:
    """The machine's and the node's address on the `number`th pair of interfaces, in a network of four."""
    first = _FIRST_ADDRESS + 4 * number
    machine, node = (
        ".".join(str(address >> shift & 255) for shift in (24, 16, 8, 0)) for address in (first + 1, first + 2)
    )
    return machine, node


def is_ready(item: dict[str, Any]) -> bool:
    """Whether a node's or a pod's condition Ready is true."""
    conditions = (item.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


async def _run(argv: Sequence[str]) -> tuple[int, str]:
    """Run a program; returns its exit code and all that it said."""
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        env={"PATH": PATH, "HOME": os.environ.get("HOME", "/root")},
    )  # fmt: skip
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode(errors="replace").strip()


async def _always() -> bool:
    return True

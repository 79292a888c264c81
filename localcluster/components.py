"""The three components: how each is called, and how one is stopped, paused, restarted."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from localcluster.errors import ComponentFailed, LocalClusterError
from localcluster.golang import RUNTIME_SETTINGS
from localcluster.ports import BIND_CONFLICT, LOOPBACK
from localcluster.process import Supervised, Supervisor
from shardsdk.testing.programs import lone_etcd_flags

#: What tests and the demo need: garbage collection, namespace deletion,
#: ServiceAccounts, aggregated roles, and children of children to shard.
DEFAULT_CONTROLLERS: Final = (
    "clusterrole-aggregation-controller",
    "deployment-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "replicaset-controller",
    "serviceaccount-controller",
)
#: How Go collects garbage unless the environment says it: less often than by itself, which takes a sixth less CPU and
#: 150 MB more memory.  Source: measured.
_GO_DEFAULTS: Final = {"GOGC": "300", "GOMEMLIMIT": "off"}
#: Of Services; the first address is the API server's own.
SERVICE_CIDR: Final = "10.0.0.0/24"
SERVICE_ADDRESS: Final = "10.0.0.1"
#: Many times what a loaded two-core machine needs; only what never starts waits that long.
START_SECONDS: Final = 240.0
#: An API server finishes its requests first; then it is killed.
STOP_SECONDS: Final = 15.0
#: Each look is a TLS handshake, for both sides.
_POLL_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Network:
    """Where the components listen; the API server may be in a network namespace of its own."""

    etcd_host: str = LOOPBACK
    apiserver_host: str = LOOPBACK
    #: What starts the API server where it listens.
    enter: tuple[str, ...] = ()

    @property
    def away(self) -> bool:
        """Whether the API server is in another network namespace than its users."""
        return bool(self.enter)


HERE: Final = Network()


class BindConflict(ComponentFailed):
    """Another process took the port first; another port will do."""


class Component(Supervised):
    """One process of the control plane, restartable under the same address."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        supervisor: Supervisor,
        is_ready: Callable[[], Awaitable[bool]],
        *,
        url: str = "",
        env: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(name, argv, supervisor)
        self.url = url
        self._is_ready = is_ready
        self._env = dict(env or {})
        self._said_before = 0

    def said(self) -> str:
        """Its output since it was started last."""
        return self.log.read_bytes()[self._said_before :].decode(errors="replace")

    async def start(self, *, wait: bool = True) -> None:
        """Start the process, and wait until it is ready unless told otherwise.

        Raises: ComponentFailed.
        """
        # Nothing of the user's environment: a proxy variable would catch webhook calls.
        environment = {"HOME": str(self._supervisor.folder), **go_environment(), **self._env}
        self._said_before = self.log.stat().st_size if self.log.exists() else 0
        self.pid = self._supervisor.start(self.name, self.argv, environment)
        if wait:
            await self.ready()

    async def ready(self, timeout_seconds: float = START_SECONDS) -> None:
        """Wait until the component says that it is ready.

        Raises: ComponentFailed when it ended or is still not ready then.
        """
        try:
            async with asyncio.timeout(timeout_seconds):
                while True:
                    ready = await self._is_ready()
                    self.check_alive()  # what answers may be another's
                    if ready:
                        return
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise self._supervisor.failure(self.name, f"was not ready after {timeout_seconds} s") from None

    async def stop(self, timeout_seconds: float = STOP_SECONDS) -> None:
        """Stop in order (SIGTERM), by SIGKILL when that takes too long."""
        self._supervisor.signal(self.name, signal.SIGTERM)
        try:
            await self._supervisor.ended(self.name, timeout_seconds)
        except TimeoutError:
            await self.kill()

    async def restart(self) -> None:
        """Kill and start again under the same address; returns once it is ready."""
        await self.kill()
        await self.start()

    def check_alive(self) -> None:
        """Raises: ComponentFailed (BindConflict) when it has ended."""
        code = self._supervisor.exit_code(self.name)
        if code is None:
            return
        failure = self._supervisor.failure(self.name, f"ended with {code}")
        if BIND_CONFLICT in self.said():
            raise BindConflict(str(failure))
        raise failure


def go_environment() -> dict[str, str]:
    """How Go's runtime works in programs that run here: as the environment says, else by the defaults."""
    return _GO_DEFAULTS | {name: os.environ[name] for name in RUNTIME_SETTINGS if name in os.environ}


def etcd_flags(data: Path, port: int, network: Network = HERE) -> list[str]:
    """Flags of an etcd that keeps all in `data`."""
    # How often what its log has goes into its file as well: by default ten times as often, in a seventh more CPU time.
    # What is missing in the file of one that was killed, the next one reads from the log.
    return [*lone_etcd_flags(data, port, network.etcd_host), "--backend-batch-interval=1s"]


def apiserver_flags(pki: Path, etcd_port: int, port: int, network: Network = HERE) -> list[str]:
    """Flags of an API server with RBAC, tokens of its own and client certificates."""
    return [
        f"--etcd-servers=http://{network.etcd_host}:{etcd_port}",
        f"--advertise-address={network.apiserver_host}",
        f"--secure-port={port}",
        f"--cert-dir={pki}",
        f"--tls-cert-file={pki}/server.crt",
        f"--tls-private-key-file={pki}/server.key",
        f"--client-ca-file={pki}/ca.crt",
        f"--token-auth-file={pki}/tokens.csv",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={pki}/serviceaccounts.key",
        f"--service-account-signing-key-file={pki}/serviceaccounts.key",
        f"--service-cluster-ip-range={SERVICE_CIDR}",
        "--profiling=false",
        *(_with_nodes(pki) if network.away else _WITHOUT_NODES),
    ]


_WITHOUT_NODES: Final = (
    f"--bind-address={LOOPBACK}",
    "--authorization-mode=RBAC",
    # Pods may be made before the controller manager has made their ServiceAccount.
    "--disable-admission-plugins=ServiceAccount",
    "--endpoint-reconciler-type=none",
)


def _with_nodes(pki: Path) -> tuple[str, ...]:
    """What an API server needs where pods run: they find it by its Service, and it calls the kubelet for logs."""
    return (
        "--bind-address=0.0.0.0",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--endpoint-reconciler-type=lease",
        f"--kubelet-client-certificate={pki}/kubelet-client.crt",
        f"--kubelet-client-key={pki}/kubelet-client.key",
        "--kubelet-preferred-address-types=InternalIP",
    )


def feature_gate_flags(gates: Mapping[str, bool]) -> list[str]:
    """The flag that switches features of an API server on or off; none without gates.

    >>> feature_gate_flags({"WatchList": False, "ShardedListAndWatch": True})
    ['--feature-gates=ShardedListAndWatch=true,WatchList=false']
    """
    return [f"--feature-gates={render_feature_gates(gates)}"] if gates else []


def render_feature_gates(gates: Mapping[str, bool]) -> str:
    """As `NAME=true,NAME=false`, in order of the names."""
    return ",".join(f"{name}={str(on).lower()}" for name, on in sorted(gates.items()))


def parse_feature_gates(text: str) -> dict[str, bool]:
    """Read `NAME=true,NAME=false`; whether there is such a feature is the API server's to say.

    Raises: LocalClusterError.
    """
    gates: dict[str, bool] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, _, value = part.partition("=")
        if not name.isalnum() or value not in ("true", "false"):
            raise LocalClusterError(f"--feature-gates {text!r}: write NAME=true or NAME=false, several with commas")
        if gates.setdefault(name, value == "true") != (value == "true"):
            raise LocalClusterError(f"--feature-gates {text!r}: {name} is both true and false")
    return gates


def controller_manager_flags(pki: Path, kubeconfig: Path, controllers: Sequence[str]) -> list[str]:
    """Flags of a controller manager that works alone and serves nothing."""
    return [
        f"--kubeconfig={kubeconfig}",
        f"--controllers={','.join(controllers)}",
        f"--service-account-private-key-file={pki}/serviceaccounts.key",
        f"--root-ca-file={pki}/ca.crt",
        "--leader-elect=false",
        "--secure-port=0",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
        "--profiling=false",
    ]

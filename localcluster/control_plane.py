"""One real control plane: etcd, kube-apiserver, kube-controller-manager.

Methods may be called from any event loop; nothing is bound to the one that
started it, so that one control plane serves a whole test session.
"""

from __future__ import annotations

import asyncio
import base64
import secrets
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import aiohttp

from localcluster.admin import AdminClient, AdminError
from localcluster.applying import apply, read_manifests
from localcluster.audit import audit_flags
from localcluster.binaries import Binaries, find_binaries, say
from localcluster.components import (
    DEFAULT_CONTROLLERS,
    SERVICE_ADDRESS,
    BindConflict,
    Component,
    Network,
    apiserver_flags,
    controller_manager_flags,
    etcd_flags,
    feature_gate_flags,
    go_environment,
)
from localcluster.errors import ComponentFailed, LocalClusterError
from localcluster.etcd_data import begin_with_kept
from localcluster.kubeconfig import Cluster, certificate_credentials, token_credentials, write_kubeconfig
from localcluster.node import Node
from localcluster.pki import Authority, Pair
from localcluster.ports import ReservedPort, reserve_port
from localcluster.process import Supervisor
from localcluster.running import DEFAULT_NAME, Running, remember

#: Reserved ports make conflicts all but impossible; a few more tries settle the rest.
_START_ATTEMPTS = 5
#: A component that doesn't answer its health check by then is asked again.
_HEALTH_SECONDS = 2.0
#: Tokens for demo and tests that run for hours.
_TOKEN_SECONDS = 24 * 3600
#: Where shardsdk looks for a ServiceAccount's files, if not where a node mounts them.
SERVICE_ACCOUNT_VARIABLE = "SHARDING_SERVICE_ACCOUNT_DIR"
_ADMIN = "admin"
_MANAGER = "system:kube-controller-manager"


class ControlPlane:
    """A control plane of one's own; an async context manager, or `start` and `stop`.

    `controllers=()` leaves the controller manager out; with a `node` the default
    is all of them.  `apiserver_extra` comes last, so that it wins over the default flags.
    `feature_gates` are the API servers' alone; with an `audit_policy` each writes an audit log (localcluster.audit).
    """

    def __init__(
        self,
        *,
        binaries: Binaries | None = None,
        apiserver_extra: Sequence[str] = (),
        controllers: Sequence[str] | None = None,
        node: Node | None = None,
        feature_gates: Mapping[str, bool] | None = None,
        audit_policy: Mapping[str, Any] | None = None,
    ) -> None:
        self._binaries = binaries
        self._audit_policy = audit_policy
        self.feature_gates = dict(feature_gates or {})
        self._apiserver_extra = (*feature_gate_flags(self.feature_gates), *apiserver_extra)
        self._controllers = _controllers(node) if controllers is None else tuple(controllers)
        self._node = node
        self._network = Network()
        self._ports: list[ReservedPort] = []
        self._token = ""
        self._owner: Supervisor | None = None
        self.apiservers: list[Component] = []

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        failed = isinstance(error, Exception)
        self.close(keep_logs=failed)
        if failed:
            say(f"localcluster: the logs are kept in {self.logs}")

    async def start(self) -> None:
        """Start everything and wait until the API server takes requests.

        Raises: BinariesMissing, ComponentFailed (its message names the log, which is kept).
        """
        if self._binaries is None:
            self._binaries = await asyncio.to_thread(find_binaries)
        for attempt in range(1, _START_ATTEMPTS + 1):
            try:
                await self._boot()
                return
            except BindConflict:
                self.close()
                if attempt == _START_ATTEMPTS:
                    raise
            except ComponentFailed:
                self.close(keep_logs=True)
                raise
            except BaseException:
                self.close()
                raise

    def close(self, *, keep_logs: bool = False) -> None:
        """Kill every component and delete all data; harmless when that has been done."""
        if self._owner is not None:
            self._owner.close(keep_logs=keep_logs)
        self._release_ports()

    def detach(self, name: str = DEFAULT_NAME) -> Running:
        """Leave it running after this process; `python -m localcluster down --name NAME` ends it.

        Raises: LocalClusterError when one of that name runs already.
        """
        running = Running(name, self.folder, self.url, self.feature_gates)
        remember(running)
        self._supervisor.detach()
        self._release_ports()
        return running

    @property
    def folder(self) -> Path:
        """Where its data lies as long as it runs."""
        return self._supervisor.folder

    @property
    def logs(self) -> Path:
        """The folder with the components' logs."""
        return self._supervisor.logs

    @property
    def supervisor_pid(self) -> int:
        """The process that ends the components when we are gone."""
        return self._supervisor.pid

    @property
    def url(self) -> str:
        """The (first) API server's address."""
        return self.apiserver.url

    @property
    def apiserver(self) -> Component:
        """The first API server."""
        return self.apiservers[0]

    @property
    def node(self) -> Node:
        """The node; there is one when the control plane was given it."""
        if self._node is None:
            raise LocalClusterError("this control plane has no node: ControlPlane(node=Node())")
        return self._node

    @property
    def binaries(self) -> Binaries:
        """The programs that it runs on."""
        if self._binaries is None:
            raise LocalClusterError("the control plane has not been started")
        return self._binaries

    async def add_apiserver(self, extra: Sequence[str] = ()) -> Component:
        """Start one more API server on the same etcd, with the same tokens and keys."""
        port, network = self._reserve(), self._network
        name = "kube-apiserver" if not self.apiservers else f"kube-apiserver-{len(self.apiservers) + 1}"
        audit = audit_flags(self.folder, name, self._audit_policy) if self._audit_policy else []
        flags = apiserver_flags(self._pki.folder, self._etcd_port, port, network)
        flags = [*flags, *audit, *self._apiserver_extra, *extra]
        url = f"https://{network.apiserver_host}:{port}"

        async def is_ready() -> bool:
            # The default namespace is made a moment after /readyz turns green.
            return await self._answers(f"{url}/readyz") and await self._answers(f"{url}/api/v1/namespaces/default")

        argv = [*network.enter, *self.binaries.kube_apiserver, *flags]
        server = Component(name, argv, self._supervisor, is_ready, url=url)
        self.apiservers.append(server)
        await server.start()
        return server

    def admin(self, server: Component | None = None) -> AdminClient:
        """A client with every right; use it as an async context manager."""
        return AdminClient((server or self.apiserver).url, self._pki.bundle, self._token)

    def kubeconfig(
        self,
        user: str = _ADMIN,
        groups: Sequence[str] = (),
        *,
        path: Path | None = None,
        server: Component | None = None,
    ) -> Path:
        """Write a kubeconfig for the administrator, or for any user without rights of its own.

        Without `path` the file lies in the control plane's folder and goes with it.
        """
        credentials = token_credentials(self._token)
        if user != _ADMIN:
            credentials = certificate_credentials(self._pki.client_pair(user, groups))
        path = path or self.folder / f"{user}.kubeconfig"
        return write_kubeconfig(path, self._cluster(server), user, credentials)

    def client_pair(self, user: str, groups: Sequence[str], valid: timedelta) -> Pair:
        """Certificate and key that the API server takes for `user` in `groups`, for so long."""
        return self._pki.client_pair(user, groups, valid)

    async def service_account_kubeconfig(
        self,
        namespace: str,
        name: str,
        path: Path | None = None,
        *,
        server: Component | None = None,
    ) -> Path:
        """Write a kubeconfig with a fresh token of an existing ServiceAccount."""
        credentials = token_credentials(await self._request_token(namespace, name, server))
        path = path or self.folder / f"{namespace}-{name}.kubeconfig"
        return write_kubeconfig(path, self._cluster(server), f"{namespace}/{name}", credentials, namespace)

    async def service_account_environment(self, namespace: str, name: str) -> dict[str, str]:
        """What a pod of this ServiceAccount is given: its environment, and the files that it names."""
        cluster = self._cluster(None)
        url = urlsplit(cluster.url)
        directory = self.folder / f"{namespace}-{name}"
        files = {
            "token": (await self._request_token(namespace, name, None)).encode(),
            "ca.crt": cluster.ca_bundle,
            "namespace": namespace.encode(),
        }
        directory.mkdir(mode=0o700, exist_ok=True)
        for file, content in files.items():
            (directory / file).write_bytes(content)
        return {
            "KUBERNETES_SERVICE_HOST": str(url.hostname),
            "KUBERNETES_SERVICE_PORT": str(url.port),
            SERVICE_ACCOUNT_VARIABLE: str(directory),
        }

    async def _request_token(self, namespace: str, name: str, server: Component | None) -> str:
        async with self.admin(server) as admin:
            try:
                answer = await admin.request(
                    "POST",
                    f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token",
                    body={"spec": {"expirationSeconds": _TOKEN_SECONDS}},
                )
            except AdminError as error:
                if error.status != 404:
                    raise
                raise LocalClusterError(
                    f"no token for ServiceAccount {namespace}/{name}: apply the file that creates it first ({error})"
                ) from error
        token: str = answer["status"]["token"]
        return token

    async def kubectl(self, *arguments: str, stdin: str | None = None, kubeconfig: Path | None = None) -> str:
        """Run kubectl (as the administrator unless told otherwise) and return what it printed.

        Raises: LocalClusterError with its error output.
        """
        process = await asyncio.create_subprocess_exec(
            *self.binaries.kubectl,
            *arguments,
            stdin=asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"HOME": str(self.folder), "KUBECONFIG": str(kubeconfig or self.admin_kubeconfig), **go_environment()},
        )
        output, errors = await process.communicate(None if stdin is None else stdin.encode())
        if process.returncode:
            raise LocalClusterError(f"kubectl {' '.join(arguments)}: {errors.decode().strip()}")
        return output.decode()

    async def apply(self, *files: Path, stdin: str | None = None) -> None:
        """What `kubectl apply --server-side` does with files or folders; new resource types are served on return.

        Raises: LocalClusterError.
        """
        async with self.admin() as admin:
            await apply(admin, read_manifests(files, stdin))

    async def compact(self) -> int:
        """Compact etcd's history up to now and return that revision.

        API servers keep a window of events of their own: a watch from an older
        resourceVersion gets its 410 once they have been restarted too.
        """
        async with aiohttp.ClientSession(self.etcd.url) as session:
            async with session.post("/v3/kv/range", json={"key": base64.b64encode(b"0").decode()}) as answer:
                revision = int((await answer.json())["header"]["revision"])
            async with session.post("/v3/kv/compaction", json={"revision": revision, "physical": True}) as answer:
                if answer.status != 200:
                    raise LocalClusterError(f"etcd refused to compact: {await answer.text()}")
        return revision

    async def _boot(self) -> None:
        self._owner = Supervisor()
        self._pki = Authority(self.folder / "pki")
        if self._node is not None:
            self._network = await self._node.prepare(self._supervisor, self._pki)
        self._pki.write_serving_pair([self._network.apiserver_host, SERVICE_ADDRESS] if self._node else [])
        self._pki.write_key("serviceaccounts.key")
        self._token = secrets.token_urlsafe(24)
        manager_token = secrets.token_urlsafe(24)
        tokens = (
            f"{self._token},{_ADMIN},{_ADMIN},system:masters\n{manager_token},{_MANAGER},{_MANAGER},system:masters\n"
        )
        (self._pki.folder / "tokens.csv").write_text(tokens)
        self.apiservers = []
        await self._start_etcd()
        await self.add_apiserver()
        self.admin_kubeconfig = self.kubeconfig()
        self.controller_manager = self._manager(manager_token)
        if self._controllers:
            await self.controller_manager.start()
        if self._node is not None:
            async with self.admin() as admin:
                await self._node.start(self.kubeconfig, admin)

    async def _start_etcd(self) -> None:
        self._etcd_port = self._reserve()
        url = f"http://{self._network.etcd_host}:{self._etcd_port}"
        begin_with_kept(self.binaries, self.folder / "etcd")
        flags = etcd_flags(self.folder / "etcd", self._etcd_port, self._network)
        argv = [*self.binaries.etcd, *flags]

        async def is_ready() -> bool:
            return await self._answers(f"{url}/health")

        self.etcd = Component("etcd", argv, self._supervisor, is_ready, url=url)
        await self.etcd.start()

    def _manager(self, token: str) -> Component:
        path = self._pki.folder / "controller-manager.kubeconfig"
        write_kubeconfig(path, self._cluster(None), _MANAGER, token_credentials(token))
        flags = controller_manager_flags(self._pki.folder, path, self._controllers)
        argv = [*self.binaries.kube_controller_manager, *flags]

        async def is_ready() -> bool:
            # It serves nothing that could be asked; its first words come once it has taken its flags.
            return '"Starting"' in manager.said()

        manager = Component("kube-controller-manager", argv, self._supervisor, is_ready)
        return manager

    async def _answers(self, url: str) -> bool:
        tls: Any = self._pki.client_context() if url.startswith("https") else True
        headers = {"Authorization": f"Bearer {self._token}"}
        timeout = aiohttp.ClientTimeout(total=_HEALTH_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, headers=headers) as session,
                session.get(url, ssl=tls) as answer,
            ):
                return answer.status == 200
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False

    @property
    def _supervisor(self) -> Supervisor:
        if self._owner is None:
            raise LocalClusterError("the control plane has not been started")
        return self._owner

    def _cluster(self, server: Component | None) -> Cluster:
        return Cluster((server or self.apiserver).url, self._pki.bundle)

    def _reserve(self) -> int:
        port = reserve_port()
        self._ports.append(port)
        return port.number

    def _release_ports(self) -> None:
        for port in self._ports:
            port.release()
        self._ports.clear()


def _controllers(node: Node | None) -> tuple[str, ...]:
    return DEFAULT_CONTROLLERS if node is None else ("*",)

"""A real etcd and kube-apiserver on this machine, for tests of controllers.

    with ControlPlane(crds=[Path("crds")]) as plane:
        run_my_operator(kubeconfig=plane.kubeconfig)
        plane.request("GET", "/api/v1/namespaces")

It blocks while it starts (some three seconds), so that it fits into a fixture
of any scope and needs no event loop; `shardsdk.testing.fixtures` has one for pytest.

Guarantees (tests/integration/test_testing_controlplane.py): nothing outlives
the process that started it, not even after SIGKILL; several run side by side;
new types are served when `install` returns.

It is no cluster: there are no nodes, and without a controller manager nothing
collects garbage, ends namespaces or makes pods of Deployments.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import secrets
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Self
from weakref import WeakSet

import msgspec
import yaml

from shardsdk.errors import ConfigurationError, ShardingError
from shardsdk.kube.clock import SystemClock
from shardsdk.testing.programs import Programs, find_programs, lone_etcd_flags

#: Several times what a loaded two-core machine needs.
START_SECONDS: Final = 90.0
_POLL_SECONDS: Final = 0.05
#: Another process may take a port between our asking for a free one and its use.
_ATTEMPTS: Final = 3
_HOST: Final = "127.0.0.1"
_USER: Final = "admin"
_CRD_PATH: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
#: Runs a program until it ends, or until our end of the pipe is closed: by us, or by our end.
_WATCHED: Final = """
exec 3<&0; "$@" </dev/null 3<&- & child=$!
{ cat <&3 >/dev/null; kill -9 $child 2>/dev/null; } &
exec 3<&-; wait $child
"""
#: What watches our ends of pipes.
_PIPED: Final[WeakSet[subprocess.Popen[bytes]]] = WeakSet()


def _close_pipes() -> None:
    """In a forked process, which would keep them open for as long as it lives."""
    for process in _PIPED:
        if process.stdin is not None:
            process.stdin.close()


os.register_at_fork(after_in_child=_close_pipes)


class ControlPlaneFailed(ShardingError):
    """A program of the control plane did not start, or a request to it failed; the message says what it said."""


class ControlPlane:
    """One etcd with one API server; a context manager, or `start` and `stop`.

    `crds` are files or folders with CustomResourceDefinitions to install, the API
    server's extra flags come last, so that they win.  Everybody who has `token` may do everything.
    """

    def __init__(
        self,
        *,
        crds: Iterable[Path] = (),
        programs: Programs | None = None,
        apiserver_flags: Sequence[str] = (),
    ) -> None:
        self.token: str = secrets.token_urlsafe(24)
        self.url: str = ""
        self._crds = list(crds)
        self._programs = programs
        self._extra = tuple(apiserver_flags)
        self._running: list[subprocess.Popen[bytes]] = []
        self._folder: Path | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def folder(self) -> Path:
        """Where its data, logs and kubeconfig lie while it runs."""
        if self._folder is None:
            raise ControlPlaneFailed("the control plane does not run: use it in a `with` statement, or call start()")
        return self._folder

    @property
    def kubeconfig(self) -> Path:
        """A kubeconfig with every right."""
        return self.folder / "kubeconfig"

    @property
    def ca_file(self) -> Path:
        """The certificate that signs the API server's."""
        return self.folder / "pki" / "apiserver.crt"

    def start(self) -> None:
        """Start both, wait until requests are served, install the CRDs.

        Raises: ConfigurationError when there are no programs or no such CRDs, ControlPlaneFailed.
        """
        _check_there(self._crds)
        programs = self._programs or find_programs()
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._boot(programs)
                break
            except ControlPlaneFailed as error:
                self.stop()
                if attempt == _ATTEMPTS or "address already in use" not in str(error):
                    raise
            except BaseException:
                self.stop()
                raise
        try:
            self.install(*self._crds)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Kill both and delete all data; harmless when that has been done."""
        for process in reversed(self._running):
            if process.stdin is not None:
                process.stdin.close()
            process.wait()
        self._running.clear()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def install(self, *sources: Path) -> None:
        """Install the CustomResourceDefinitions in these files or folders; they are served on return.

        Raises: ConfigurationError for a file that is not there or without any, ControlPlaneFailed.
        """
        _check_there(sources)
        for source in sources:
            files = sorted(source.glob("*.y*ml")) if source.is_dir() else [source]
            found = [each for file in files for each in yaml.safe_load_all(file.read_text(encoding="utf-8")) if each]
            crds = [each for each in found if each.get("kind") == "CustomResourceDefinition"]
            if not crds:
                raise ConfigurationError(f"{source} has no CustomResourceDefinition (looked at *.yaml and *.yml)")
            for crd in crds:
                self._install(crd)

    def request(self, method: str, path: str, body: Any = None, *, content_type: str = "application/json") -> Any:
        """Ask the API server as administrator; the decoded answer.

        Raises: ControlPlaneFailed for any error, no answer, and one that is not JSON (/readyz).
        """
        try:
            status, answer = self._ask(method, path, body, content_type)
        except (OSError, http.client.HTTPException) as error:
            raise ControlPlaneFailed(f"{method} {path}: no answer: {str(error) or type(error).__name__}") from error
        if status >= 400:
            raise ControlPlaneFailed(f"{method} {path}: {status} {answer.decode(errors='replace')}")
        try:
            return msgspec.json.decode(answer)
        except msgspec.DecodeError as error:
            raise ControlPlaneFailed(f"{method} {path}: {status}, which is not JSON: {answer[:80]!r}") from error

    # -- starting ---------------------------------------------------------------

    def _boot(self, programs: Programs) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="shardsdk-"))
        (self._folder / "tokens.csv").write_text(f"{self.token},{_USER},{_USER},system:masters\n", encoding="utf-8")
        etcd_port, port = _free_ports(2)
        self.url = f"https://{_HOST}:{port}"
        etcd = self._run("etcd", [*programs.etcd, *lone_etcd_flags(self._folder / "etcd", etcd_port, _HOST)])
        self._wait("etcd", etcd, lambda: _etcd_answers(etcd_port))
        flags = [*_apiserver_flags(self._folder, etcd_port, port), *self._extra]
        server = self._run("kube-apiserver", [*programs.kube_apiserver, *flags])
        self._wait("kube-apiserver", server, self._serves)
        self.kubeconfig.write_bytes(msgspec.json.encode(self._kubeconfig()))

    def _run(self, name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                ["/bin/sh", "-c", _WATCHED, "sh", *command],
                stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True,
                env={"HOME": str(self.folder), "PATH": "/usr/bin:/bin"}, cwd=self.folder,
            )  # fmt: skip
        self._running.append(process)
        _PIPED.add(process)
        return process

    def _wait(self, name: str, process: subprocess.Popen[bytes], ready: Callable[[], bool]) -> None:
        clock, pause = SystemClock(), threading.Event()
        until = clock.monotonic() + START_SECONDS
        while not ready():
            code = process.poll()
            if code is not None or clock.monotonic() > until:
                said = (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")[-2000:]
                what = f"was not ready after {START_SECONDS:.0f} s" if code is None else f"ended with {code}"
                raise ControlPlaneFailed(f"{name} {what}; it said last:\n{said}")
            pause.wait(_POLL_SECONDS)

    def _serves(self) -> bool:
        # The default namespace is made a moment after /readyz turns green.
        with contextlib.suppress(OSError, http.client.HTTPException):
            return all(self._ask("GET", path)[0] == 200 for path in ("/readyz", "/api/v1/namespaces/default"))
        return False

    def _install(self, crd: dict[str, Any]) -> None:
        name, spec = crd["metadata"]["name"], crd["spec"]
        query = "?fieldManager=shardsdk-testing&force=true"
        self.request("PATCH", f"{_CRD_PATH}/{name}{query}", crd, content_type="application/apply-patch+yaml")
        versions = [version["name"] for version in spec["versions"] if version.get("served")]
        paths = [f"/apis/{spec['group']}/{version}/{spec['names']['plural']}" for version in versions]
        clock, pause = SystemClock(), threading.Event()
        until = clock.monotonic() + START_SECONDS
        while any(self._ask("GET", f"{path}?limit=1")[0] != 200 for path in paths):
            if clock.monotonic() > until:
                raise ControlPlaneFailed(f"{name} is not served after {START_SECONDS:.0f} s: see its conditions")
            pause.wait(_POLL_SECONDS)

    def _ask(self, method: str, path: str, body: Any = None, content_type: str = "") -> tuple[int, bytes]:
        host, _, port = self.url.removeprefix("https://").partition(":")
        context = ssl.create_default_context(cafile=str(self.ca_file))
        connection = http.client.HTTPSConnection(host, int(port), timeout=START_SECONDS, context=context)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": content_type or "application/json"}
        try:
            connection.request(method, path, None if body is None else msgspec.json.encode(body), headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def _kubeconfig(self) -> dict[str, Any]:
        """JSON is YAML."""
        cluster = {"server": self.url, "certificate-authority": str(self.ca_file)}
        context = {"cluster": "test", "user": _USER, "namespace": "default"}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": _USER, "user": {"token": self.token}}],
            "contexts": [{"name": "test", "context": context}],
            "current-context": "test",
        }


def _check_there(sources: Iterable[Path]) -> None:
    """Raises: ConfigurationError."""
    for source in sources:
        if not source.exists():
            raise ConfigurationError(
                f"CustomResourceDefinitions are to be installed from {str(source)!r}, which is not there as seen from"
                f" {str(Path.cwd())!r}: name a file or a folder, relative to the test as in Path(__file__).parent /"
                " 'crds'; `shardsdk crd PROGRAM.py` prints those of an operator"
            )


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.create_server((_HOST, 0))) for _ in range(count)]
        return [int(each.getsockname()[1]) for each in sockets]


def _etcd_answers(port: int) -> bool:
    connection = http.client.HTTPConnection(_HOST, port, timeout=START_SECONDS)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _apiserver_flags(folder: Path, etcd_port: int, port: int) -> list[str]:
    """Certificate and key are the API server's own work; the key signs ServiceAccount tokens, too."""
    return [
        f"--etcd-servers=http://{_HOST}:{etcd_port}",
        f"--bind-address={_HOST}",
        f"--advertise-address={_HOST}",
        f"--secure-port={port}",
        f"--cert-dir={folder}/pki",
        f"--token-auth-file={folder}/tokens.csv",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={folder}/pki/apiserver.key",
        f"--service-account-signing-key-file={folder}/pki/apiserver.key",
        "--service-cluster-ip-range=10.0.0.0/24",
        # Pods may be made though nobody makes their ServiceAccount.
        "--disable-admission-plugins=ServiceAccount",
        "--endpoint-reconciler-type=none",
        "--profiling=false",
    ]

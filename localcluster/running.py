"""Control planes that were left running, by name: where `status` and `down` find them."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import signal
import ssl
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from localcluster.binaries import cache_home
from localcluster.errors import LocalClusterError
from localcluster.process import is_running

DEFAULT_NAME = "default"
#: A node's layers are many files to delete.
_STOP_SECONDS = 300.0
_POLL_SECONDS = 0.02
#: A paused API server takes the connection and says nothing.
_ANSWER_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Running:
    """A control plane that outlives the process that started it."""

    name: str
    folder: Path
    url: str
    #: Of its API server, those that it was told.
    feature_gates: Mapping[str, bool] = field(default_factory=dict)

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.folder / "admin.kubeconfig"

    @property
    def logs(self) -> Path:
        """The components' logs; they go with it."""
        return self.folder / "logs"

    @property
    def has_node(self) -> bool:
        """Whether pods run on it."""
        return (self.folder / "node" / "pid").exists()

    def answers(self) -> bool:
        """Whether its API server takes requests; the processes may live on without it."""
        try:
            config = json.loads(self.kubeconfig.read_text())
            authority = config["clusters"][0]["cluster"]["certificate-authority-data"]
            headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
            request = urllib.request.Request(f"{self.url}/readyz", headers=headers)
            trust = ssl.create_default_context(cadata=base64.b64decode(authority).decode())
            opener = urllib.request.build_opener(
                urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust)
            )
            with opener.open(request, timeout=_ANSWER_SECONDS):
                return True
        except (OSError, http.client.HTTPException):  # whoever ends it takes its kubeconfig away as well
            return False

    def stop(self) -> None:
        """End it and delete its data.

        Raises: LocalClusterError when it does not end.
        """
        pid = int((self.folder / "supervisor.pid").read_text())
        os.kill(pid, signal.SIGTERM)
        end = time.monotonic() + _STOP_SECONDS
        while self.folder.exists():
            if time.monotonic() > end:
                raise LocalClusterError(f"the supervisor process {pid} of {self.folder} does not end; kill it")
            time.sleep(_POLL_SECONDS)


def find_running(name: str = DEFAULT_NAME, environment: Mapping[str, str] = os.environ) -> Running | None:
    """The running control plane of that name; `None` when there is none (any more)."""
    entry = _entry(name, environment)
    try:
        stored = json.loads(entry.read_text())
    except FileNotFoundError:
        return None
    running = Running(name, Path(stored["folder"]), stored["url"], stored.get("featureGates", {}))
    if is_running(running.folder):
        return running
    with contextlib.suppress(FileNotFoundError):
        entry.unlink()
    return None


def remember(running: Running, environment: Mapping[str, str] = os.environ) -> None:
    """Make it known to `find_running`.

    Raises: LocalClusterError when another one of that name runs.
    """
    other = find_running(running.name, environment)
    if other is not None:
        raise LocalClusterError(
            f"a control plane called {running.name} runs already in {other.folder};"
            f" end it first: python -m localcluster down --name {running.name}"
        )
    entry = _entry(running.name, environment)
    entry.parent.mkdir(parents=True, exist_ok=True)
    draft = entry.with_suffix(f".{os.getpid()}.tmp")
    stored = {"folder": str(running.folder), "url": running.url, "featureGates": dict(running.feature_gates)}
    draft.write_text(json.dumps(stored))
    draft.replace(entry)


def _entry(name: str, environment: Mapping[str, str]) -> Path:
    if not name.isidentifier():
        raise LocalClusterError(f"{name!r} is no name for a control plane: use letters, digits and '_'")
    return cache_home(environment) / "running" / f"{name}.json"

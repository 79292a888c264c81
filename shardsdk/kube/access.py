"""Where the configuration is: an explicit kubeconfig, $KUBECONFIG, the pod's ServiceAccount, ~/.kube/config.

The kubernetes package (16 MiB of a process, a third of a second) is imported only
where a kubeconfig names an exec plugin or an auth provider.
A configuration that is there but broken is an error which says what to change; the next place is not tried.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from shardsdk.errors import ConfigurationError, ConnectionFailed
from shardsdk.kube.clock import Clock, SystemClock
from shardsdk.kube.credentials import FileCredentials
from shardsdk.kube.server import DEFAULT_NAMESPACE, Access, Server, make_access
from shardsdk.protocol.names import before_port

#: Where a pod finds its identity.  Source: Kubernetes, "Configure Service Accounts for Pods".
SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
#: Names another directory with the same files, for a process that runs outside its pod (a debugger, a bridge).
SERVICE_ACCOUNT_VARIABLE: Final = "SHARDING_SERVICE_ACCOUNT_DIR"


def in_pod(environ: Mapping[str, str] | None = None) -> bool:
    """Whether this process runs in a pod, as its environment has it (`None`: the process's own)."""
    return bool((os.environ if environ is None else environ).get("KUBERNETES_SERVICE_HOST"))


async def load_access(
    kubeconfig: str | os.PathLike[str] | None = None,
    context: str | None = None,
    *,
    clock: Clock | None = None,
    environ: Mapping[str, str] | None = None,
) -> Access:
    """Find and read the configuration.

    `kubeconfig` may name several files, separated as in $KUBECONFIG; `context`
    picks another context than the current one.

    Raises: ConfigurationError with what to change.
    """
    clock = clock or SystemClock()
    environ = os.environ if environ is None else environ
    for given, origin in ((kubeconfig, "kubeconfig"), (environ.get("KUBECONFIG"), "$KUBECONFIG")):
        if given:
            paths = _path_of(given)
            return await _load_kubeconfig(paths, context, f"{origin} {paths}", clock)
    if in_pod(environ) and context is None:
        return _load_in_cluster(environ, clock)
    home = _home_kubeconfig(environ)
    return await _load_kubeconfig(home, context, f"kubeconfig {home}", clock)


@contextmanager
def answering(access: Access, options: str = "--kubeconfig or --context") -> Iterator[None]:
    """A command asks.

    Raises: ConnectionFailed that says which cluster it was, and by which options to choose, when nobody reaches it.
    """
    try:
        yield
    except (ConnectionFailed, ExceptionGroup) as error:
        first: Exception = error
        while isinstance(first, ExceptionGroup) and first.split(ConnectionFailed)[1] is None:
            first = first.exceptions[0]
        if not isinstance(first, ConnectionFailed) or not _is_unreached(first):
            raise
        raise ConnectionFailed(
            f"no API server answers at {access.host} ({access.origin}): {first}; start that cluster, or name another by"
            f" {options}"
        ) from error


def _is_unreached(error: ConnectionFailed) -> bool:
    """Whether no connection could be opened; by others somebody is there: not trusted, or lost halfway."""
    import aiohttp

    cause = error.__cause__
    opening = aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError
    return isinstance(cause, opening) and not isinstance(cause, aiohttp.ClientSSLError)


def _path_of(given: str | os.PathLike[str]) -> str:
    if not isinstance(given, str | os.PathLike):
        raise ConfigurationError(f"kubeconfig={given!r} is no path")
    return os.fspath(given)


async def _load_kubeconfig(paths: str, context: str | None, origin: str, clock: Clock) -> Access:
    from shardsdk.kube.kubeconfig import load_kubeconfig

    return await load_kubeconfig(paths, context, origin, clock)


def _home_kubeconfig(environ: Mapping[str, str]) -> str:
    try:
        home = Path(environ.get("HOME") or Path.home(), ".kube", "config")
    except RuntimeError:  # a user without a home, as containers may run under any number
        home = None
    if home is None or not home.exists():
        raise ConfigurationError(
            "no API server configured: pass a kubeconfig, set KUBECONFIG, run in a pod with a ServiceAccount,"
            f" or create {home or 'one at ~/.kube/config and set HOME'}"
        )
    return str(home)


def _load_in_cluster(environ: Mapping[str, str], clock: Clock) -> Access:
    """What a pod is given.  Source: Kubernetes, "Accessing the Kubernetes API from a Pod"."""
    directory = Path(environ.get(SERVICE_ACCOUNT_VARIABLE) or SERVICE_ACCOUNT).absolute()
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT") or "443"
    try:
        credentials = FileCredentials(directory / "token", clock)
        authority = directory / "ca.crt"
        if not authority.read_text(encoding="ascii", errors="ignore").strip():
            raise ValueError("ca.crt is empty")
    except (ConfigurationError, OSError, ValueError) as error:
        raise ConfigurationError(
            f"in-cluster configuration in {directory} cannot be used: {error};"
            " does the pod mount its ServiceAccount token (automountServiceAccountToken)?"
        ) from error
    try:
        namespace = (directory / "namespace").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        namespace = ""
    server = Server(f"https://{before_port(host)}:{port}", ca_file=str(authority))
    origin = "the pod's ServiceAccount"
    return make_access(server, namespace=namespace or DEFAULT_NAMESPACE, origin=origin, credentials=credentials)

"""How to reach the API server: address, TLS, identity, default namespace.

Does: find the configuration (an explicit kubeconfig, $KUBECONFIG, the pod's
ServiceAccount, ~/.kube/config, in that order), and open HTTP sessions for it.
Kubeconfig files are read with the kubernetes package; a pod's three files need
none, so that package (16 MiB of a process, a third of a second) stays out of pods.
Refuses: to fall through from a configuration that is there but broken; that is
an error which says what to change.

Like client-go, and unlike Python 3.13's default, it accepts CA certificates that
lack extensions which RFC 5280 wants; chain and host name are always verified
unless the kubeconfig says otherwise.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from ssl import SSLContext
from typing import TYPE_CHECKING, Any, Final

from shardsdk.errors import ConfigurationError
from shardsdk.kube.clock import Clock, SystemClock
from shardsdk.kube.credentials import Credentials, FileCredentials, FixedCredentials

if TYPE_CHECKING:
    import aiohttp
    from yarl import URL

#: Where a pod finds its identity.  Source: Kubernetes, "Configure Service Accounts for Pods".
SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
#: Names another directory with the same files, for a process that runs outside its pod (a debugger, a bridge).
SERVICE_ACCOUNT_VARIABLE: Final = "SHARDING_SERVICE_ACCOUNT_DIR"

#: Namespace of a kubeconfig's context that names none.
DEFAULT_NAMESPACE: Final = "default"


@dataclass(frozen=True, slots=True)
class Server:
    """An API server as a configuration describes it; certificates are PEM, files or text.

    `client_certificate` is a file with its key's file; `proxy` `None`: whatever the environment says.
    """

    host: str
    ca_file: str | None = None
    ca_text: str | bytes | None = None
    client_certificate: tuple[str, str | None] | None = None
    verify: bool = True
    name: str | None = None
    proxy: str | None = None
    proxy_headers: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Access:
    """One way to one API server; shared by all clients, event loops and threads of the process.

    `origin` says where it was configured, for messages.  `ssl` is the context of
    all sessions; `request_options` is what each request must be given besides its
    own: proxy and TLS server name.
    """

    host: str
    namespace: str
    origin: str
    credentials: Credentials
    ssl: SSLContext
    request_options: Mapping[str, Any] = field(default_factory=dict)

    async def headers(self) -> dict[str, str]:
        """The `Authorization` header, or nothing."""
        value = await self.credentials.header()
        return {"Authorization": value} if value else {}

    def open_session(self, connector: aiohttp.BaseConnector, **options: Any) -> aiohttp.ClientSession:
        """An HTTP session on the running loop; close the connector with it.

        `trust_env` is off: it costs a hop to a thread for each request, to look
        for a .netrc.  Proxies of the environment are read once, when loading.
        """
        import aiohttp  # costs a third of a second, and whoever only describes controllers opens no session

        return aiohttp.ClientSession(connector=connector, trust_env=False, **options)


async def load_access(
    kubeconfig: str | None = None,
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
    for paths, origin in ((kubeconfig, "kubeconfig"), (environ.get("KUBECONFIG"), "$KUBECONFIG")):
        if paths:
            return await _load_kubeconfig(paths, context, f"{origin} {paths}", clock)
    if environ.get("KUBERNETES_SERVICE_HOST") and context is None:
        return _load_in_cluster(environ, clock)
    home = _home_kubeconfig(environ)
    return await _load_kubeconfig(home, context, f"kubeconfig {home}", clock)


def direct_access(
    host: str, *, token: str | None = None, ca_file: str | None = None, namespace: str = DEFAULT_NAMESPACE
) -> Access:
    """An access from its parts, for tests and local tools.

    >>> direct_access("http://127.0.0.1:8001").host
    'http://127.0.0.1:8001'
    """
    fixed = FixedCredentials(f"Bearer {token}" if token else None)
    return make_access(Server(host, ca_file=ca_file), namespace=namespace, origin=host, credentials=fixed)


def make_access(server: Server, *, namespace: str, origin: str, credentials: Credentials) -> Access:
    """An access from its parts.

    Raises: ConfigurationError for an address that is no URL, or certificates that cannot be loaded.
    """
    from yarl import URL

    host = server.host.rstrip("/")
    if not host.startswith(("http://", "https://")) or not URL(host).host:
        raise ConfigurationError(f"{origin}: server {host!r} is no address; write it as https://HOST:PORT")
    try:
        context = _make_context(server)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"{origin}: certificate or key cannot be loaded: {error}; check certificate-authority,"
            " client-certificate and client-key (PEM, readable, key and certificate of one pair)"
        ) from error
    options = {
        "server_hostname": server.name,
        "proxy": server.proxy or _proxy_of_environment(URL(host)),
        "proxy_headers": server.proxy_headers,
    }
    given = {name: value for name, value in options.items() if value}
    return Access(host, namespace, origin, credentials, context, given)


def _make_context(server: Server) -> SSLContext:
    context = ssl.create_default_context(cafile=server.ca_file, cadata=server.ca_text)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if server.client_certificate is not None:
        context.load_cert_chain(*server.client_certificate)
    if not server.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


async def _load_kubeconfig(paths: str, context: str | None, origin: str, clock: Clock) -> Access:
    from shardsdk.kube.kubeconfig import load_kubeconfig

    return await load_kubeconfig(paths, context, origin, clock)


def _home_kubeconfig(environ: Mapping[str, str]) -> str:
    home = Path(environ.get("HOME") or Path.home(), ".kube", "config")
    if not home.exists():
        raise ConfigurationError(
            "no API server configured: pass a kubeconfig, set KUBECONFIG, run in a pod with a ServiceAccount,"
            f" or create {home}"
        )
    return str(home)


def _load_in_cluster(environ: Mapping[str, str], clock: Clock) -> Access:
    """What a pod is given.  Source: Kubernetes, "Accessing the Kubernetes API from a Pod"."""
    directory = Path(environ.get(SERVICE_ACCOUNT_VARIABLE) or SERVICE_ACCOUNT)
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT") or "443"
    try:
        credentials = FileCredentials(directory / "token", clock)
        authority = (directory / "ca.crt").read_text(encoding="ascii")
        if not authority.strip():
            raise ValueError("ca.crt is empty")
    except (ConfigurationError, OSError, ValueError) as error:
        raise ConfigurationError(
            f"in-cluster configuration in {directory} cannot be used: {error};"
            " does the pod mount its ServiceAccount token (automountServiceAccountToken)?"
        ) from error
    try:
        namespace = (directory / "namespace").read_text(encoding="utf-8").strip()
    except OSError:
        namespace = ""
    server = Server(f"https://{f'[{host}]' if ':' in host else host}:{port}", ca_text=authority)
    origin = "the pod's ServiceAccount"
    return make_access(server, namespace=namespace or DEFAULT_NAMESPACE, origin=origin, credentials=credentials)


def _proxy_of_environment(url: URL) -> str | None:
    """HTTP(S)_PROXY for this host, unless NO_PROXY names it."""
    from aiohttp.helpers import get_env_proxy_for_url

    try:
        proxy, _ = get_env_proxy_for_url(url)
    except LookupError:
        return None
    return str(proxy)

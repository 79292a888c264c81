"""How to reach the API server: address, TLS, identity, default namespace.

Does: find the configuration (an explicit kubeconfig, $KUBECONFIG, the pod's
ServiceAccount, ~/.kube/config, in that order), read it with the kubernetes
package, and open that package's HTTP sessions.  Refuses: to fall through from a
configuration that is there but broken; that is an error which says what to change.

Like client-go, and unlike Python 3.13's default, it accepts CA certificates that
lack extensions which RFC 5280 wants; chain and host name are always verified
unless the kubeconfig says otherwise.
"""

from __future__ import annotations

import copy
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import aiohttp
from aiohttp.helpers import get_env_proxy_for_url
from yarl import URL

from shardsdk.errors import ConfigurationError
from shardsdk.kube.clock import Clock, SystemClock
from shardsdk.kube.credentials import Credentials, FileCredentials, FixedCredentials

if TYPE_CHECKING:
    from kubernetes.aio.client.rest import RESTClientObject

#: Where a pod finds its identity.  Source: Kubernetes, "Configure Service Accounts for Pods".
SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")

#: Namespace of a kubeconfig's context that names none.
DEFAULT_NAMESPACE: Final = "default"


@dataclass(frozen=True, slots=True)
class Access:
    """One way to one API server; shared by all clients, event loops and threads of the process.

    `origin` says where it was configured, for messages.
    """

    host: str
    namespace: str
    origin: str
    credentials: Credentials
    rest: RESTClientObject

    @property
    def ssl(self) -> ssl.SSLContext:
        """The TLS context that sessions use."""
        context: ssl.SSLContext = self.rest.ssl_context
        return context

    @property
    def request_options(self) -> dict[str, Any]:
        """What each request must be given besides its own: proxy and TLS server name."""
        configuration = self.rest.configuration
        options = {
            "server_hostname": configuration.tls_server_name,
            "proxy": configuration.proxy,
            "proxy_headers": configuration.proxy_headers,
        }
        return {name: value for name, value in options.items() if value}

    async def headers(self) -> dict[str, str]:
        """The `Authorization` header, or nothing."""
        value = await self.credentials.header()
        return {"Authorization": value} if value else {}

    def open_session(self, connector: aiohttp.BaseConnector, **options: Any) -> aiohttp.ClientSession:
        """An HTTP session of the kubernetes package on the running loop; close the connector with it.

        `trust_env` is off: it costs a hop to a thread for each request, to look
        for a .netrc.  Proxies of the environment are read once, when loading.
        """
        rest = copy.copy(self.rest)
        rest.configuration = copy.copy(rest.configuration)
        rest.configuration.client_session_kwargs = {"trust_env": False, "connector": connector, **options}
        session: aiohttp.ClientSession = rest._create_pool_manager()
        return session


async def load_access(
    kubeconfig: str | None = None,
    context: str | None = None,
    *,
    clock: Clock | None = None,
    environ: Mapping[str, str] | None = None,
    service_account: Path = SERVICE_ACCOUNT,
) -> Access:
    """Find and read the configuration.

    `kubeconfig` may name several files, separated as in $KUBECONFIG; `context`
    picks another context than the current one.

    Raises: ConfigurationError with what to change.
    """
    from shardsdk.kube.kubeconfig import load_kubeconfig

    clock = clock or SystemClock()
    environ = os.environ if environ is None else environ
    for paths, origin in ((kubeconfig, "kubeconfig"), (environ.get("KUBECONFIG"), "$KUBECONFIG")):
        if paths:
            return await load_kubeconfig(paths, context, f"{origin} {paths}", clock)
    if environ.get("KUBERNETES_SERVICE_HOST") and context is None:
        return _load_in_cluster(environ, service_account, clock)
    home = _home_kubeconfig(environ)
    return await load_kubeconfig(home, context, f"kubeconfig {home}", clock)


def direct_access(
    host: str, *, token: str | None = None, ca_file: str | None = None, namespace: str = DEFAULT_NAMESPACE
) -> Access:
    """An access from its parts, for tests and local tools.

    >>> direct_access("http://127.0.0.1:8001").host
    'http://127.0.0.1:8001'
    """
    from kubernetes.aio.client.configuration import Configuration

    configuration = Configuration(host=host, ssl_ca_cert=ca_file)
    fixed = FixedCredentials(f"Bearer {token}" if token else None)
    return make_access(configuration, namespace=namespace, origin=host, credentials=fixed)


def make_access(configuration: Any, *, namespace: str, origin: str, credentials: Credentials) -> Access:
    """An access from a `kubernetes.aio` Configuration.

    Raises: ConfigurationError for an address that is no URL, or certificates that cannot be loaded.
    """
    from kubernetes.aio.client.rest import RESTClientObject

    host = str(configuration.host).rstrip("/")
    if not host.startswith(("http://", "https://")) or not URL(host).host:
        raise ConfigurationError(f"{origin}: server {host!r} is no address; write it as https://HOST:PORT")
    configuration.disable_strict_ssl_verification = True
    if configuration.proxy is None:
        configuration.proxy = _proxy_of_environment(URL(host))
    try:
        rest = RESTClientObject(configuration)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"{origin}: certificate or key cannot be loaded: {error}; check certificate-authority,"
            " client-certificate and client-key (PEM, readable, key and certificate of one pair)"
        ) from error
    return Access(host, namespace, origin, credentials, rest)


def _home_kubeconfig(environ: Mapping[str, str]) -> str:
    home = Path(environ.get("HOME") or Path.home(), ".kube", "config")
    if not home.exists():
        raise ConfigurationError(
            "no API server configured: pass a kubeconfig, set KUBECONFIG, run in a pod with a ServiceAccount,"
            f" or create {home}"
        )
    return str(home)


def _load_in_cluster(environ: Mapping[str, str], service_account: Path, clock: Clock) -> Access:
    from kubernetes.aio.client.configuration import Configuration
    from kubernetes.aio.config import ConfigException
    from kubernetes.aio.config.incluster_config import InClusterConfigLoader

    configuration = Configuration()
    token = service_account / "token"
    try:
        InClusterConfigLoader(
            token_filename=str(token),
            cert_filename=str(service_account / "ca.crt"),
            try_refresh_token=False,
            environ=environ,
        ).load_and_set(configuration)
    except (ConfigException, OSError, ValueError) as error:
        raise ConfigurationError(
            f"in-cluster configuration in {service_account} cannot be used: {error};"
            " does the pod mount its ServiceAccount token (automountServiceAccountToken)?"
        ) from error
    try:
        namespace = (service_account / "namespace").read_text(encoding="utf-8").strip()
    except OSError:
        namespace = ""
    credentials = FileCredentials(token, clock)
    origin = "the pod's ServiceAccount"
    return make_access(configuration, namespace=namespace or DEFAULT_NAMESPACE, origin=origin, credentials=credentials)


def _proxy_of_environment(url: URL) -> str | None:
    """HTTP(S)_PROXY for this host, unless NO_PROXY names it."""
    try:
        proxy, _ = get_env_proxy_for_url(url)
    except LookupError:
        return None
    return str(proxy)

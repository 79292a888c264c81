"""One API server and the way to it: address, TLS, identity.

Like client-go, and whatever the Python, it accepts CA certificates that lack
extensions which RFC 5280 wants, and one that another has signed without that one;
chain and host name are always verified unless the configuration says otherwise.
"""

from __future__ import annotations

import base64
import os
import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from ssl import SSLContext
from typing import TYPE_CHECKING, Any, Final, Self

from shardsdk.errors import ConfigurationError
from shardsdk.kube.authority import AuthorityContext
from shardsdk.kube.credentials import Credentials, FixedCredentials
from shardsdk.kube.proxies import proxy_of
from shardsdk.version import SDK_AGENT

if TYPE_CHECKING:
    import aiohttp
    from yarl import URL

#: Namespace of a kubeconfig's context that names none.
DEFAULT_NAMESPACE: Final = "default"


@dataclass(frozen=True, slots=True)
class Server:
    """An API server as a configuration describes it; CA certificates are PEM, a file or text.

    `client_certificate` has a context show one, for each context that is made;
    `proxy` `None`: whatever the environment says.
    """

    host: str = field(repr=False)
    ca_file: str | None = None
    ca_text: str | bytes | None = None
    client_certificate: Callable[[SSLContext], None] | None = field(default=None, repr=False)
    verify: bool = True
    name: str | None = None
    proxy: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Access:
    """One way to one API server; shared by all clients, event loops and threads of the process.

    `origin` says where it was configured, for messages.  `ssl` is the context of
    all sessions; `request_options` is what each request must be given besides its
    own: proxy and TLS server name.  `impersonation` is headers that go with each
    request to the API server, and with none to a proxy: whom it takes us for.  As
    `user_agent` a client introduces itself that is given none of its own.
    """

    # What may hold a password, or a token in an address, is in no `repr`.
    host: str = field(repr=False)
    namespace: str
    origin: str
    credentials: Credentials = field(repr=False)
    ssl: SSLContext = field(repr=False)
    request_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    user_agent: str = SDK_AGENT
    impersonation: Sequence[tuple[str, str]] = ()

    def of_program(self, program: str) -> Self:
        """The same for a program, NAME/VERSION or NAME alone.  Raises: ConfigurationError."""
        from shardsdk.kube.useragent import agent_of  # tests in memory introduce nobody

        return replace(self, user_agent=agent_of(program))

    def of_shard(self, ring: str, shard: str) -> Self:
        """The same for a shard of its."""
        from shardsdk.kube.useragent import agent_of_shard

        return replace(self, user_agent=agent_of_shard(self.user_agent, ring, shard))

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


def direct_access(
    host: str, *, token: str | None = None, ca_file: str | None = None, namespace: str = DEFAULT_NAMESPACE
) -> Access:
    """An access from its parts, for tests and local tools.

    >>> direct_access("http://127.0.0.1:8001").host
    'http://127.0.0.1:8001'
    """
    fixed = FixedCredentials(f"Bearer {token}" if token else None)
    return make_access(Server(host, ca_file=ca_file), namespace=namespace, origin="direct_access", credentials=fixed)


def make_access(server: Server, *, namespace: str, origin: str, credentials: Credentials) -> Access:
    """An access from its parts.

    Raises: ConfigurationError for an address that is no URL, or certificates that cannot be loaded.
    """
    host = server.host.rstrip("/")
    url = _parse_url(host)
    if url is None:
        shown = "" if "@" in host else f" {host!r}"  # there may be a password before it
        raise ConfigurationError(f"{origin}: server{shown} is no address; write it as https://HOST:PORT")
    if url.user is not None or url.password is not None:  # not shown
        raise ConfigurationError(
            f"{origin}: server holds a user's name or password; give them as username and password of the user"
        )
    if server.name and not _is_name(server.name):
        raise ConfigurationError(f"{origin}: tls-server-name {server.name!r} is no name of a host")
    if server.proxy and _parse_url(server.proxy) is None:
        raise ConfigurationError(f"{origin}: proxy-url {_why_no_proxy(server.proxy)}")
    proxy = proxy_options(url, server.proxy or proxy_of_environment(url))
    try:
        context = _make_context(server)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"{origin}: certificate or key cannot be loaded: {error}; check certificate-authority,"
            " client-certificate and client-key (PEM, readable, key and certificate of one pair)"
        ) from error
    name, address, _, zone = server.name, *(url.host or "").partition("%")
    if zone:  # of a link: the system connects by it, and no certificate has it
        name, host = name or address, re.sub(r"(//\[[^\]%]*)%25", r"\1%", host)
    options = {"server_hostname": name} if name else {}
    return Access(host, namespace, origin, credentials, context, {**options, **proxy})


def basic(user: str, password: str) -> str:
    """The header that presents a name and a password."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def _parse_url(text: str) -> URL | None:
    """An address as HTTP clients take it; `None`: it is none."""
    from yarl import URL

    try:
        url = URL(text)
    except (ValueError, IndexError):  # the latter of brackets in the wrong place
        return None
    if url.scheme not in ("http", "https") or not url.raw_host or not text.isprintable():
        return None
    return url if _is_name(url.raw_host) else None


def _is_name(host: str) -> bool:
    """Whether a host's name can be looked up, and be asked for in TLS: both encode it so, and end in a stack."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return not host.startswith(".")


def _make_context(server: Server) -> SSLContext:
    if server.ca_file is None and server.client_certificate is None:
        return _trusting(server, None)
    path = Path(server.ca_file).absolute() if server.ca_file is not None else None
    return AuthorityContext(path, partial(_trusting, server))


def _trusting(server: Server, read: str | None) -> SSLContext:
    context = verifying_context(server.ca_text if read is None else read)
    if server.client_certificate is not None:
        server.client_certificate(context)
    if not server.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def verifying_context(authority: str | bytes | None) -> SSLContext:
    """Of clients that trust these authorities, as client-go would.  Raises: ValueError, OSError when they are none."""
    context = ssl.create_default_context(cadata=authority)
    # Python 3.13 sets both by default, and those before it neither.
    context.verify_flags = (context.verify_flags & ~ssl.VERIFY_X509_STRICT) | ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def proxy_of_environment(url: URL) -> str | None:
    """HTTP(S)_PROXY for this host, unless NO_PROXY names it.  Raises: ConfigurationError."""
    found = proxy_of(os.environ, url.scheme, url.raw_host or "", url.port or 0)
    if found is None:
        return None
    if _parse_url(found.address) is None:
        raise ConfigurationError(
            f"{found.variable} of the environment {_why_no_proxy(found.address)}, or name the API server in NO_PROXY"
        )
    return found.address


def _why_no_proxy(address: str) -> str:
    """What is wrong with one, and what to write; it is not shown itself, for a password may be in it."""
    if address.lower().startswith("socks"):
        return "is a SOCKS proxy, which is not supported; name one that speaks HTTP (CONNECT) as http://HOST:PORT"
    return "is no address of a proxy; write it as http://HOST:PORT"


def proxy_options(url: URL, address: str | None) -> dict[str, Any]:
    """What requests to `url` must be given to go by a proxy."""
    proxy = _parse_url(address) if address else None
    if proxy is None:
        return {}
    anybody = proxy.user is None and proxy.password is None
    if anybody or url.scheme == "http":  # where there is no tunnel, only aiohttp can present the user
        return {"proxy": str(proxy)}
    # Its errors show the proxy's address, so the password is no part of that.
    presented = basic(proxy.user or "", proxy.password or "")
    return {"proxy": str(proxy.with_user(None)), "proxy_headers": {"Proxy-Authorization": presented}}

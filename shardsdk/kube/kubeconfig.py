"""Access from kubeconfig files.

Files are merged, the context is chosen and its cluster and user are read as kubectl
does.  A user with an exec plugin or an auth provider is the kubernetes package's
matter (providers.py); without one it is not imported, which is half of the time
that a command takes to start.

Source: Kubernetes, "Organizing Cluster Access Using kubeconfig Files".
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from ssl import SSLContext
from types import ModuleType
from typing import Any, Final
from urllib.parse import quote

import yaml

from shardsdk.errors import ConfigurationError
from shardsdk.kube.authority import AuthorityContext
from shardsdk.kube.certificates import CertificateFiles, load_pair
from shardsdk.kube.clock import Clock
from shardsdk.kube.credentials import (
    PROVIDER_PERIOD_SECONDS,
    Credentials,
    FileCredentials,
    FixedCredentials,
    IssuedCredentials,
    bearer,
)
from shardsdk.kube.server import DEFAULT_NAMESPACE, Access, Server, basic, make_access

#: What goes wrong in a kubeconfig that is none, or not whole, or nested without end.
_MALFORMED: Final = (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError, yaml.YAMLError)


class _Loader(yaml.SafeLoader):
    """A date is text, as to kubectl, for which YAML is another way to write JSON."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


@dataclass(frozen=True, slots=True)
class _Entry:
    """A context, a cluster or a user, and the file that has it."""

    content: Mapping[str, Any] = field(repr=False)
    file: Path = Path()

    @property
    def base(self) -> Path:
        """The directory that its paths are relative to."""
        return self.file.parent

    def text(self, name: str) -> str:
        """A setting; empty when it is not there.  Raises: ValueError."""
        value = self.content.get(name)
        if not isinstance(value, str | None):  # 0123 would be another password than what was written
            raise ValueError(f"{name} is no text; what looks like a number has to be in quotes")
        return value or ""

    def flag(self, name: str) -> bool:
        """A switch, off when it is not there.  Raises: ValueError."""
        value = self.content.get(name)
        if not isinstance(value, bool | None):  # "false" would be as good as true
            raise ValueError(f"{name} is neither true nor false; write it without quotes")
        return bool(value)

    def texts(self, name: str) -> Sequence[str]:
        """A list of texts, empty when it is not there.  Raises: ValueError."""
        value = self.content.get(name)
        if value is not None and not (isinstance(value, list) and all(isinstance(each, str) for each in value)):
            raise ValueError(f"{name} is no list of texts; what looks like a number has to be in quotes")
        return value or ()

    def settings(self, name: str) -> Mapping[str, Any]:
        """Settings within this, empty when they are not there.  Raises: ValueError."""
        value = self.content.get(name)
        if value is not None and not (isinstance(value, dict) and all(isinstance(each, str) for each in value)):
            raise ValueError(f"{name} is no map of settings")
        return value or {}

    def named(self, name: str) -> Iterable[_Entry]:
        """A list of what has a name.  Raises: ValueError."""
        value = self.content.get(name)
        if value is not None and not (isinstance(value, list) and all(isinstance(each, dict) for each in value)):
            raise ValueError(f"its {name} are no list of maps, each with a name")
        return (_Entry(each, self.file) for each in value or ())

    def path(self, name: str) -> Path | None:
        """The file that a setting names.  Raises: FileNotFoundError."""
        if not (named := self.text(name)):
            return None
        path = self.base / named
        if not path.is_file():
            raise FileNotFoundError(f"{name}: there is no file {path}")
        return path

    def data(self, name: str) -> bytes | None:
        """What a setting holds in Base64.  Raises: ValueError."""
        if not (text := "".join(self.text(name).split())):
            return None
        try:
            return base64.b64decode(text, validate=True)
        except ValueError as error:
            raise ValueError(f"{name} is no Base64: {error}") from error


@dataclass(frozen=True, slots=True)
class _Chosen:
    """What the chosen context leads to."""

    namespace: str
    cluster: _Entry
    user: _Entry


async def load_kubeconfig(paths: str, context: str | None, origin: str, clock: Clock) -> Access:
    """Read one kubeconfig, or several separated by `:`.  Raises: ConfigurationError."""
    files = _existing(paths, origin)
    try:
        chosen = _choose([_read(path) for path in files], context)
        impersonation = _impersonation(chosen.user)
        access = await _access(_server(chosen.cluster, _client_certificate(chosen.user)), chosen, origin, clock)
        return replace(access, impersonation=impersonation)
    except _MALFORMED as error:
        raise ConfigurationError(
            f"{origin} cannot be used: {' '.join(str(error).split()) or type(error).__name__};"
            " check it with `kubectl config view --minify` (contexts: `kubectl config get-contexts`)"
        ) from error


def _existing(paths: str, origin: str) -> list[Path]:
    try:
        names = [Path(name).expanduser() for name in paths.split(os.pathsep) if name]
        found = [path for path in names if path.exists()]
    except (OSError, RuntimeError) as error:  # a name that is too long, a home of nobody
        raise ConfigurationError(f"{origin} cannot be used: {error}; pass the path of a kubeconfig") from error
    if not found:
        raise ConfigurationError(f"{origin}: no such file; pass the path of a kubeconfig")
    return found


def _read(path: Path) -> _Entry:
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except yaml.MarkedYAMLError as error:  # its own words quote what is there, which may be a password
        mark = error.problem_mark
        where = "" if mark is None else f": look at line {mark.line + 1}, column {mark.column + 1}"
        raise ValueError(f"{path} is no YAML{where}") from None
    if content is not None and not isinstance(content, dict):
        raise ValueError(f"{path} is no kubeconfig")
    return _Entry(content or {}, path.absolute())


def _choose(files: list[_Entry], context: str | None) -> _Chosen:
    """Of what several files say, the first counts."""
    name = context or next(filter(None, (file.text("current-context") for file in files)), "")
    if not name:
        raise ValueError("it names no current-context")
    chosen = _find(files, "contexts", "context", name)
    user = chosen.text("user")
    return _Chosen(
        namespace=chosen.text("namespace") or DEFAULT_NAMESPACE,
        cluster=_find(files, "clusters", "cluster", chosen.text("cluster")),
        # Without a user one is nobody in particular, which some API servers are content with; and so with one that is
        # not there, to kubectl as well.
        user=_find(files, "users", "user", user, missing=_Entry({})) if user else _Entry({}),
    )


def _find(files: list[_Entry], section: str, kind: str, name: str, missing: _Entry | None = None) -> _Entry:
    for file in files:
        for each in file.named(section):
            if each.text("name") == name:
                return _Entry(each.settings(kind), each.file)
    if missing is not None:
        return missing
    raise ValueError(f"there is no object with name {name} in its {section}")


def _server(cluster: _Entry, certificate: Callable[[SSLContext], None] | None) -> Server:
    host = cluster.text("server")
    if not host:
        raise ValueError("its cluster has no server")
    authority = cluster.data("certificate-authority-data")
    file = None if authority else cluster.path("certificate-authority")
    unsafe = cluster.flag("insecure-skip-tls-verify")
    if unsafe and (authority or file):
        raise ValueError("its cluster has a certificate-authority, which insecure-skip-tls-verify would not look at")
    return Server(
        host,
        # Comments may be in any language, certificates are not.
        ca_text=authority.decode("ascii", "ignore") if authority else None,
        ca_file=str(file) if file else None,
        client_certificate=certificate,
        verify=not unsafe,
        name=cluster.text("tls-server-name") or None,
        proxy=cluster.text("proxy-url") or None,
    )


def _escape(key: str) -> str:
    """A key as part of a header's name, which holds these signs besides letters and digits."""
    return quote(key, "!#$&'*+^`|")


def _impersonation(user: _Entry) -> list[tuple[str, str]]:
    """Headers that have the API server take us for whom the kubeconfig names.

    Source: client-go, impersonatingRoundTripper of transport/round_trippers.go.
    """
    name, uid, extra = user.text("as"), user.text("as-uid"), _Entry(user.settings("as-user-extra"))
    headers = [
        *([("Impersonate-User", name)] if name else []),
        *([("Impersonate-Uid", uid)] if uid else []),
        *(("Impersonate-Group", group) for group in user.texts("as-groups")),
        *((f"Impersonate-Extra-{_escape(key)}", value) for key in extra.content for value in extra.texts(key)),
    ]
    if headers and not name:
        raise ValueError("as-uid, as-groups and as-user-extra go together with as")
    if not all(value.isprintable() for _, value in headers):
        raise ValueError("whom it acts as is told with control characters, which no header can hold")
    return headers


def _client_certificate(user: _Entry) -> Callable[[SSLContext], None] | None:
    """What has a context show the user's client certificate, if it has one.  Raises: OSError, ValueError."""
    certificate, key = (user.data(f"{name}-data") or user.path(name) for name in ("client-certificate", "client-key"))
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise ValueError("client-certificate and client-key go together")
    return partial(load_pair, certificate=certificate, key=key)


async def _access(server: Server, chosen: _Chosen, origin: str, clock: Clock) -> Access:
    user = chosen.user
    if (settings := user.settings("exec")) and not user.text("tokenFile"):
        providers = _providers(origin)
        wanted = settings.get("provideClusterInfo")
        told = providers.told_of(chosen.cluster.content, chosen.cluster.base) if wanted else None
        plugin = providers.ExecPlugin(settings, user.base, origin, told)
        issued: Credentials = IssuedCredentials(plugin.issue, await plugin.issue(False), clock)
        server = replace(server, client_certificate=partial(plugin.attach, configured=server.client_certificate))
        access = make_access(server, namespace=chosen.namespace, origin=origin, credentials=issued)
        plugin.follow(_remade(access).remake)
        return access
    credentials = await _credentials(user, origin, clock)
    access = make_access(server, namespace=chosen.namespace, origin=origin, credentials=credentials)
    if user.text("client-certificate-data") or user.text("client-key-data"):
        return access
    certificate, key = user.path("client-certificate"), user.path("client-key")
    if certificate is None or key is None:
        return access
    return replace(access, credentials=CertificateFiles(certificate, key, _remade(access), credentials, clock))


def _remade(access: Access) -> AuthorityContext:
    assert isinstance(access.ssl, AuthorityContext)  # as of everybody who shows a certificate
    return access.ssl


def _providers(origin: str) -> ModuleType:
    """What asks others who we are.  Raises: ConfigurationError without the kubernetes package, as images may be."""
    try:
        return import_module("shardsdk.kube.providers")
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"{origin} leaves it to an exec plugin or an auth provider who we are; that takes the kubernetes package,"
            f" of which {error.name} is not installed here: pip install kubernetes, or use a kubeconfig with a token or"
            " a client certificate"
        ) from None


async def _credentials(user: _Entry, origin: str, clock: Clock) -> Credentials:
    if token_file := user.text("tokenFile"):
        return FileCredentials(user.base / token_file, clock)
    if user.settings("auth-provider"):
        provider = _providers(origin).AuthProvider(user.content, user.file, origin, clock)
        first = await provider.issue(False)
        return IssuedCredentials(provider.issue, first, clock, period_seconds=PROVIDER_PERIOD_SECONDS)
    if token := user.text("token").strip():
        return FixedCredentials(bearer(token))
    if user.text("username"):
        return FixedCredentials(basic(user.text("username"), user.text("password")))
    return FixedCredentials(None)

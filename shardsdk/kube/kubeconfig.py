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
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import yaml

from shardsdk.errors import ConfigurationError
from shardsdk.kube.certificates import CertificateFiles
from shardsdk.kube.clock import Clock
from shardsdk.kube.credentials import (
    PROVIDER_PERIOD_SECONDS,
    Credentials,
    FileCredentials,
    FixedCredentials,
    IssuedCredentials,
    bearer,
)
from shardsdk.kube.server import DEFAULT_NAMESPACE, Access, Server, make_access

#: What goes wrong in a kubeconfig that is none, or not whole, or nested without end.
_MALFORMED: Final = (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError, yaml.YAMLError)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A context, a cluster or a user, and the directory that its paths are relative to."""

    content: Mapping[str, Any]
    base: Path = Path()

    def text(self, name: str) -> str:
        """A setting; empty when it is not there."""
        return str(self.content.get(name) or "")

    def path(self, name: str) -> Path | None:
        """The file that a setting names.  Raises: FileNotFoundError."""
        if not (named := self.text(name)):
            return None
        path = self.base / named
        if not path.is_file():
            raise FileNotFoundError(f"{name}: there is no file {path}")
        return path

    def data(self, name: str) -> bytes | None:
        """What a setting holds in Base64."""
        return base64.standard_b64decode(text) if (text := self.text(name)) else None


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
        with _client_certificate(chosen.user) as pair:
            return await _access(_server(chosen.cluster, pair), chosen, origin, clock)
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
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.MarkedYAMLError as error:  # its own words take six lines
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 1
        raise ValueError(f"{path} is no YAML, {error.problem} in line {line}") from error
    if content is not None and not isinstance(content, dict):
        raise ValueError(f"{path} is no kubeconfig")
    return _Entry(content or {}, path.parent.absolute())


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
        # Without a user one is nobody in particular, which some API servers are content with.
        user=_find(files, "users", "user", user, missing=_Entry({})) if user else _Entry({}),
    )


def _find(files: list[_Entry], section: str, kind: str, name: str, missing: _Entry | None = None) -> _Entry:
    for file in files:
        for each in file.content.get(section) or ():
            if each["name"] == name:
                return _Entry(each[kind] or {}, file.base)
    if missing is not None:
        return missing
    raise ValueError(f"there is no object with name {name} in its {section}")


def _server(cluster: _Entry, pair: tuple[str, str] | None) -> Server:
    host = cluster.text("server")
    if not host:
        raise ValueError("its cluster has no server")
    authority = cluster.data("certificate-authority-data")
    file = None if authority else cluster.path("certificate-authority")
    return Server(
        host,
        # Comments may be in any language, certificates are not.
        ca_text=authority.decode("ascii", "ignore") if authority else None,
        ca_file=str(file) if file else None,
        client_certificate=pair,
        verify=not cluster.content.get("insecure-skip-tls-verify"),
        name=cluster.text("tls-server-name") or None,
        proxy=cluster.text("proxy-url") or None,
    )


@contextmanager
def _client_certificate(user: _Entry) -> Iterator[tuple[str, str] | None]:
    """The files of a client certificate and its key, of which OpenSSL reads nothing else; data is there meanwhile."""
    names = ("client-certificate", "client-key")
    with tempfile.TemporaryDirectory() as directory:
        files = []
        for name in names:
            if (data := user.data(f"{name}-data")) is not None:
                path = Path(directory, name)
                path.touch(0o600)
                path.write_bytes(data)
                files.append(str(path))
            elif (given := user.path(name)) is not None:
                files.append(str(given))
        if len(files) == 1:
            raise ValueError("client-certificate and client-key go together")
        yield (files[0], files[1]) if files else None


async def _access(server: Server, chosen: _Chosen, origin: str, clock: Clock) -> Access:
    user = chosen.user
    if user.content.get("exec") and not user.text("tokenFile"):
        plugin = _providers(origin).ExecPlugin(user.content["exec"], user.base, origin)
        issued: Credentials = IssuedCredentials(plugin.issue, await plugin.issue(False), clock)
        access = make_access(server, namespace=chosen.namespace, origin=origin, credentials=issued)
        plugin.attach(access.ssl)
        return access
    credentials = await _credentials(user, origin, clock)
    access = make_access(server, namespace=chosen.namespace, origin=origin, credentials=credentials)
    if user.text("client-certificate-data") or user.text("client-key-data"):
        return access
    certificate, key = user.path("client-certificate"), user.path("client-key")
    if certificate is None or key is None:
        return access
    return replace(access, credentials=CertificateFiles(certificate, key, access.ssl, credentials, clock))


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
    if user.content.get("auth-provider"):
        provider = _providers(origin).AuthProvider(user.content, user.base, origin)
        first = await provider.issue(False)
        return IssuedCredentials(provider.issue, first, clock, period_seconds=PROVIDER_PERIOD_SECONDS)
    if token := user.text("token").strip():
        return FixedCredentials(bearer(token))
    if user.text("username"):
        pair = f"{user.text('username')}:{user.text('password')}"
        return FixedCredentials("Basic " + base64.b64encode(pair.encode()).decode())
    return FixedCredentials(None)

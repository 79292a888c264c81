"""Access from kubeconfig files, by way of the kubernetes package.

Does: let that package merge and read the files, and take over what it gets wrong
or leaves to its caller: exec plugins (it hides their errors and never runs them
again), token files (read once there), expired OIDC tokens, renewed client
certificates.  Refuses: to write to a kubeconfig.

Imported on demand only: it brings the kubernetes package with it.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import yaml
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config import ConfigException
from kubernetes.aio.config.exec_provider import ExecProvider
from kubernetes.aio.config.kube_config import (
    ENV_KUBECONFIG_PATH_SEPARATOR,
    ConfigNode,
    KubeConfigLoader,
    KubeConfigMerger,
)

from shardsdk.errors import ConfigurationError
from shardsdk.kube.certificates import CertificateFiles, load_pair
from shardsdk.kube.clock import Clock
from shardsdk.kube.credentials import (
    PROVIDER_PERIOD_SECONDS,
    Credentials,
    FileCredentials,
    FixedCredentials,
    Issued,
    IssuedCredentials,
)
from shardsdk.kube.server import DEFAULT_NAMESPACE, Access, Server, make_access

#: An exec plugin or identity provider that takes longer has failed.
PROVIDER_TIMEOUT_SECONDS: Final = 60.0

#: What goes wrong in a kubeconfig that is not what the kubernetes package expects.
_MALFORMED: Final = (ConfigException, OSError, ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError)


async def load_kubeconfig(paths: str, context: str | None, origin: str, clock: Clock) -> Access:
    """Read one kubeconfig, or several separated by `:`.  Raises: ConfigurationError."""
    _require_files(paths, origin)
    try:
        merged = KubeConfigMerger(paths).config
        name = context or merged["current-context"]
        chosen = merged["contexts"].get_with_name(name)["context"].value
        user, base = _take_user(merged, chosen.get("user"))
        loader = KubeConfigLoader(merged, active_context=name, config_base_path=None)
        configuration = Configuration()
        async with asyncio.timeout(PROVIDER_TIMEOUT_SECONDS):
            await loader.load_and_set(configuration)
    except TimeoutError as error:
        raise ConfigurationError(f"{origin}: the identity provider did not answer") from error
    except _MALFORMED as error:
        raise ConfigurationError(
            f"{origin} cannot be used: {error or type(error).__name__};"
            " check it with `kubectl config view --minify` (contexts: `kubectl config get-contexts`)"
        ) from error
    namespace = str(chosen.get("namespace") or DEFAULT_NAMESPACE)
    if user.get("exec") and not user.get("tokenFile"):
        plugin = ExecPlugin(user["exec"], base, origin)
        credentials: Credentials = IssuedCredentials(plugin.issue, await plugin.issue(False), clock)
        access = make_access(_server(configuration), namespace=namespace, origin=origin, credentials=credentials)
        plugin.attach(access.ssl)
        return access
    credentials = _credentials(user, base, loader, configuration, origin, clock)
    access = make_access(_server(configuration), namespace=namespace, origin=origin, credentials=credentials)
    files = [base / str(user[name]) for name in ("client-certificate", "client-key") if user.get(name)]
    if len(files) == 2 and not (user.get("client-certificate-data") or user.get("client-key-data")):
        return replace(access, credentials=CertificateFiles(files[0], files[1], access.ssl, credentials, clock))
    return access


def _server(configuration: Configuration) -> Server:
    """What the kubernetes package has read, in our words."""
    certificate = configuration.cert_file
    return Server(
        str(configuration.host),
        ca_file=configuration.ssl_ca_cert,
        ca_text=configuration.ca_cert_data,
        client_certificate=(certificate, configuration.key_file) if certificate else None,
        verify=configuration.verify_ssl,
        name=configuration.tls_server_name,
        proxy=configuration.proxy,
        proxy_headers=configuration.proxy_headers,
    )


def _require_files(paths: str, origin: str) -> None:
    names = [os.path.expanduser(name) for name in paths.split(ENV_KUBECONFIG_PATH_SEPARATOR) if name]
    if not any(os.path.exists(name) for name in names):
        raise ConfigurationError(f"{origin}: no such file; pass the path of a kubeconfig")


def _take_user(merged: Any, name: str | None) -> tuple[dict[str, Any], Path]:
    """The user's entry and the directory its paths are relative to.

    What we handle ourselves is taken out of the (private) copy that the
    kubernetes package reads, so that it does not do it too.
    """
    entry = merged["users"].get_with_name(name, safe=True) if name and merged.safe_get("users") else None
    if entry is None:
        return {}, Path()
    user = entry.value.get("user") or {}
    entry.value["user"] = {key: value for key, value in user.items() if key not in ("exec", "tokenFile")}
    return user, Path(entry.path or "").parent


def _credentials(
    user: Mapping[str, Any], base: Path, loader: Any, configuration: Any, origin: str, clock: Clock
) -> Credentials:
    if user.get("tokenFile"):
        return FileCredentials(base / str(user["tokenFile"]), clock)
    header = configuration.api_key.get("BearerToken")
    if user.get("auth-provider"):

        async def ask(rejected: bool) -> Issued:
            fresh = Configuration()
            try:
                async with asyncio.timeout(PROVIDER_TIMEOUT_SECONDS):
                    await loader.load_and_set(fresh)
            except (TimeoutError, *_MALFORMED) as error:
                raise ConfigurationError(f"{origin}: identity provider: {error or type(error).__name__}") from error
            return Issued(fresh.api_key.get("BearerToken"))

        return IssuedCredentials(ask, Issued(header), clock, period_seconds=PROVIDER_PERIOD_SECONDS)
    return FixedCredentials(header.strip() if header else None)


class ExecPlugin:
    """A command that issues tokens or client certificates (client.authentication.k8s.io)."""

    __slots__ = ("_context", "_description", "_node", "_pair")

    def __init__(self, plugin: Mapping[str, Any], base: Path, origin: str) -> None:
        command = str(plugin.get("command") or "")
        if os.sep in command:  # as client-go: a path is relative to the kubeconfig, a bare name is looked up in PATH
            plugin = {**plugin, "command": str(base / command)}
        self._node = ConfigNode("exec", dict(plugin))
        self._description = f"{origin}: exec plugin {command!r}"
        self._context: ssl.SSLContext | None = None
        self._pair: tuple[str, str] | None = None

    def attach(self, context: ssl.SSLContext) -> None:
        """Where client certificates go; new connections use the latest pair."""
        self._context = context
        self._install()

    async def issue(self, rejected: bool) -> Issued:
        """Run the command.  Raises: ConfigurationError with what the command said."""
        try:
            async with asyncio.timeout(PROVIDER_TIMEOUT_SECONDS):
                status = await ExecProvider(self._node).run()
            header = f"Bearer {str(status['token']).strip()}" if status.get("token") else None
            expires = _moment(status.get("expirationTimestamp"))
            if status.get("clientCertificateData") and status.get("clientKeyData"):
                self._pair = (str(status["clientCertificateData"]), str(status["clientKeyData"]))
                self._install()
            elif header is None:
                raise ValueError("it issued neither token nor clientCertificateData with clientKeyData")
        except TimeoutError as error:
            raise ConfigurationError(f"{self._description} took over {PROVIDER_TIMEOUT_SECONDS:.0f} s") from error
        except _MALFORMED as error:
            raise ConfigurationError(
                f"{self._description} failed: {error or type(error).__name__}; run it by hand to see why"
            ) from error
        return Issued(header, expires)

    def _install(self) -> None:
        if self._context is None or self._pair is None:
            return
        with tempfile.TemporaryDirectory() as directory:
            certificate, key = Path(directory, "client.crt"), Path(directory, "client.key")
            for path, text in zip((certificate, key), self._pair, strict=True):
                path.touch(0o600, exist_ok=False)
                path.write_text(text, encoding="utf-8")
            load_pair(self._context, certificate, key)


def _moment(text: object) -> datetime | None:
    """RFC 3339 as aware time; `None` when the plugin names no expiry."""
    if not text:
        return None
    moment = datetime.fromisoformat(str(text))
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)

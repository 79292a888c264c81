"""Who we are where a kubeconfig leaves that to others: exec plugins, auth providers (OIDC).

The kubernetes package knows how to ask them.  What it gets wrong or leaves to its
caller is done here: it hides the errors of exec plugins, never runs them again and
never ends one that hangs, and asks no provider a second time.  It checks no
certificate of an OIDC provider: those are asked by openid.py.

Imported where a kubeconfig names one: it brings the kubernetes package with it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import aiohttp
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config import ConfigException
from kubernetes.aio.config.exec_provider import ExecProvider
from kubernetes.aio.config.kube_config import ConfigNode, KubeConfigLoader

from shardsdk.errors import ConfigurationError
from shardsdk.kube.certificates import load_pair
from shardsdk.kube.clock import Clock
from shardsdk.kube.credentials import Issued, bearer
from shardsdk.kube.openid import OpenId
from shardsdk.kube.subprocesses import at_a_terminal, run

#: An exec plugin or identity provider that takes longer has failed.
PROVIDER_TIMEOUT_SECONDS: Final = 60.0
#: What a cluster's `extensions` calls the settings that it has for exec plugins.
#: Source: client-go, tools/clientcmd/client_config.go.
PLUGIN_EXTENSION: Final = "client.authentication.k8s.io/exec"

#: What goes wrong with a provider, or with an answer that is not what the kubernetes package expects.
_MALFORMED: Final = (
    ConfigException, aiohttp.ClientError, OSError, ValueError, TypeError, LookupError, AttributeError,
)  # fmt: skip


class AuthProvider:
    """A user's `auth-provider`; the kubernetes package knows OIDC and Google's."""

    __slots__ = ("_loader", "_openid", "_origin")

    def __init__(self, user: Mapping[str, Any], file: Path, origin: str, clock: Clock) -> None:
        self._origin = origin
        provider = user["auth-provider"]
        self._openid = OpenId(provider.get("config") or {}, file, clock) if provider.get("name") == "oidc" else None
        # The package reads whole kubeconfigs: here is one of nothing but this user.
        kubeconfig = {
            "current-context": origin,
            "contexts": [{"name": origin, "context": {"cluster": origin, "user": origin}}],
            "clusters": [{"name": origin, "cluster": {}}],
            "users": [{"name": origin, "user": dict(user)}],
        }
        self._loader = KubeConfigLoader(kubeconfig, config_base_path=str(file.parent))

    async def issue(self, rejected: bool) -> Issued:
        """Ask the provider where the token that the kubeconfig has is over.  Raises: ConfigurationError."""
        found = Configuration()
        try:
            async with asyncio.timeout(PROVIDER_TIMEOUT_SECONDS):
                if self._openid is not None:
                    return Issued(bearer(await self._openid.token(rejected=rejected)))
                await self._loader.load_and_set(found)
        except TimeoutError as error:
            raise ConfigurationError(f"{self._origin}: the identity provider did not answer") from error
        except _MALFORMED as error:
            raise ConfigurationError(f"{self._origin}: identity provider: {error or type(error).__name__}") from error
        return Issued(found.api_key.get("BearerToken"))


class ExecPlugin:
    """A command that issues tokens or client certificates (client.authentication.k8s.io)."""

    __slots__ = ("_cluster", "_description", "_hint", "_node", "_on_pair", "_pair")

    def __init__(
        self, plugin: Mapping[str, Any], base: Path, origin: str, cluster: Mapping[str, Any] | None = None
    ) -> None:
        command = str(plugin.get("command") or "")
        if os.sep in command:  # as client-go: a path is relative to the kubeconfig, a bare name is looked up in PATH
            plugin = {**plugin, "command": str(base / command)}
        self._node = ConfigNode("exec", dict(plugin))
        self._hint = " ".join(str(plugin.get("installHint") or "").split())
        self._cluster = cluster
        self._description = f"{origin}: exec plugin {command!r}"
        self._pair: tuple[str, str] | None = None
        self._on_pair: Callable[[], None] = lambda: None

    def follow(self, on_pair: Callable[[], None]) -> None:
        """Call `on_pair` from now on when there is another pair, which new contexts are to show."""
        self._on_pair = on_pair

    def attach(self, context: ssl.SSLContext, configured: Callable[[ssl.SSLContext], None] | None = None) -> None:
        """Show the latest pair in this context; `configured` is for as long as there is none."""
        if configured is not None:
            configured(context)
        if self._pair is not None:
            _show(context, self._pair)

    async def issue(self, rejected: bool) -> Issued:
        """Run the command.  Raises: ConfigurationError with what the command said."""
        try:
            async with asyncio.timeout(PROVIDER_TIMEOUT_SECONDS):
                status = await self._run()
            header = bearer(str(status["token"]).strip()) if status.get("token") else None
            expires = _moment(status.get("expirationTimestamp"))
            if status.get("clientCertificateData") and status.get("clientKeyData"):
                pair = str(status["clientCertificateData"]), str(status["clientKeyData"])
                _show(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), pair)  # else no context could be made any more
                self._pair = pair
                self._on_pair()
            elif header is None:
                raise ValueError("it issued neither token nor clientCertificateData with clientKeyData")
        except TimeoutError as error:
            raise ConfigurationError(f"{self._description} took over {PROVIDER_TIMEOUT_SECONDS:.0f} s") from error
        except _MALFORMED as error:
            raise ConfigurationError(
                f"{self._description} failed: {error or type(error).__name__}; run it by hand to see why"
            ) from error
        return Issued(header, expires)

    async def _run(self) -> Mapping[str, Any]:
        """What the command issues.  Raises: any of `_MALFORMED`."""
        command = ExecProvider(self._node)
        spec: dict[str, Any] = {"interactive": at_a_terminal()}
        if self._cluster is not None:
            spec["cluster"] = self._cluster
        asked = {"apiVersion": command.api_version, "kind": "ExecCredential", "spec": spec}
        try:
            status, printed, complaint = await run(
                command.args, {**command.env, "KUBERNETES_EXEC_INFO": json.dumps(asked)}
            )
        except FileNotFoundError as error:
            raise ConfigException(f"{error}; {self._hint}" if self._hint else str(error)) from error
        if status != 0:
            raise ConfigException(f"it returned {status}: {complaint.decode(errors='replace').strip()}")
        answer = json.loads(printed)
        if answer["apiVersion"] != command.api_version:
            raise ConfigException(f"it answered in {answer['apiVersion']}, asked in {command.api_version}")
        issued: Mapping[str, Any] = answer["status"]
        return issued


def _show(context: ssl.SSLContext, pair: tuple[str, str]) -> None:
    load_pair(context, *(text.encode() for text in pair))


def told_of(cluster: Mapping[str, Any], base: Path) -> Mapping[str, Any]:
    """What exec plugins that want it are told of a kubeconfig's cluster; `base` is where its paths begin.

    Raises: OSError when the file of its authority cannot be read.
    """
    names = ("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url", "disable-compression")
    said = {name: cluster[name] for name in names if cluster.get(name)}
    if authority := cluster.get("certificate-authority-data"):
        said["certificate-authority-data"] = authority
    elif file := cluster.get("certificate-authority"):
        said["certificate-authority-data"] = base64.b64encode((base / file).read_bytes()).decode()
    for extension in cluster.get("extensions") or ():
        if extension["name"] == PLUGIN_EXTENSION:
            said["config"] = extension["extension"]
    return said


def _moment(text: object) -> datetime | None:
    """RFC 3339 as aware time; `None` when the plugin names no expiry."""
    if not text:
        return None
    moment = datetime.fromisoformat(str(text))
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)

"""Who we are where a kubeconfig leaves that to others: exec plugins, auth providers (OIDC).

The kubernetes package knows how to ask them.  What it gets wrong or leaves to its
caller is done here: it hides the errors of exec plugins, never runs them again and
never ends one that hangs, and asks no provider a second time.

Imported where a kubeconfig names one: it brings the kubernetes package with it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
import sys
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config import ConfigException
from kubernetes.aio.config.exec_provider import ExecProvider
from kubernetes.aio.config.kube_config import ConfigNode, KubeConfigLoader

from shardsdk.errors import ConfigurationError
from shardsdk.kube.certificates import load_pair
from shardsdk.kube.credentials import Issued, bearer

#: An exec plugin or identity provider that takes longer has failed.
PROVIDER_TIMEOUT_SECONDS: Final = 60.0
#: How long a plugin that was killed is waited for.
REAP_SECONDS: Final = 1.0

#: What goes wrong with an answer that is not what the kubernetes package expects.
_MALFORMED: Final = (ConfigException, OSError, ValueError, TypeError, KeyError, AttributeError)


class AuthProvider:
    """A user's `auth-provider`; the kubernetes package knows OIDC and Google's."""

    __slots__ = ("_loader", "_origin")

    def __init__(self, user: Mapping[str, Any], base: Path, origin: str) -> None:
        # The package reads whole kubeconfigs: here is one of nothing but this user.
        kubeconfig = {
            "current-context": origin,
            "contexts": [{"name": origin, "context": {"cluster": origin, "user": origin}}],
            "clusters": [{"name": origin, "cluster": {}}],
            "users": [{"name": origin, "user": dict(user)}],
        }
        self._origin = origin
        self._loader = KubeConfigLoader(kubeconfig, config_base_path=str(base))

    async def issue(self, rejected: bool) -> Issued:
        """Ask the provider where the token that the kubeconfig has is over.  Raises: ConfigurationError."""
        found = Configuration()
        try:
            async with asyncio.timeout(PROVIDER_TIMEOUT_SECONDS):
                await self._loader.load_and_set(found)
        except TimeoutError as error:
            raise ConfigurationError(f"{self._origin}: the identity provider did not answer") from error
        except _MALFORMED as error:
            raise ConfigurationError(f"{self._origin}: identity provider: {error or type(error).__name__}") from error
        return Issued(found.api_key.get("BearerToken"))


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
                status = await self._run()
            header = bearer(str(status["token"]).strip()) if status.get("token") else None
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

    async def _run(self) -> Mapping[str, Any]:
        """What the command issues.  Whatever ends this ends the command: one that hangs would be left at each renewal.

        Raises: any of `_MALFORMED`.
        """
        command = ExecProvider(self._node)
        interactive = sys.stdout is not None and sys.stdout.isatty()
        asked = {"apiVersion": command.api_version, "kind": "ExecCredential", "spec": {"interactive": interactive}}
        environment = {**command.env, "KUBERNETES_EXEC_INFO": json.dumps(asked)}
        process = await asyncio.create_subprocess_exec(
            *command.args, env=environment, stdout=PIPE, stderr=PIPE,
            # So that what it has started can be ended with it; one that asks somebody needs their terminal.
            start_new_session=not interactive,
        )  # fmt: skip
        try:
            printed, complaint = await process.communicate()
        finally:
            if process.returncode is None:
                await _end(process, with_group=not interactive)
        if process.returncode != 0:
            raise ConfigException(f"it returned {process.returncode}: {complaint.decode(errors='replace').strip()}")
        answer = json.loads(printed)
        if answer["apiVersion"] != command.api_version:
            raise ConfigException(f"it answered in {answer['apiVersion']}, asked in {command.api_version}")
        status: Mapping[str, Any] = answer["status"]
        return status

    def _install(self) -> None:
        if self._context is None or self._pair is None:
            return
        with tempfile.TemporaryDirectory() as directory:
            certificate, key = Path(directory, "client.crt"), Path(directory, "client.key")
            for path, text in zip((certificate, key), self._pair, strict=True):
                path.touch(0o600, exist_ok=False)
                path.write_text(text, encoding="utf-8")
            load_pair(self._context, certificate, key)


async def _end(process: asyncio.subprocess.Process, *, with_group: bool) -> None:
    with suppress(ProcessLookupError):
        if with_group and sys.platform != "win32":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    # asyncio waits for the ends of its pipes as well, which what it has started may hold open for any time.
    with suppress(TimeoutError):
        async with asyncio.timeout(REAP_SECONDS):
            await process.wait()
    # Which would leave them open here too, one pair at each renewal; `Process` itself has no way to close them.
    process._transport.close()  # noqa: SLF001


def _moment(text: object) -> datetime | None:
    """RFC 3339 as aware time; `None` when the plugin names no expiry."""
    if not text:
        return None
    moment = datetime.fromisoformat(str(text))
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)

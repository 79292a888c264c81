"""OpenID Connect: the token of a kubeconfig's `auth-provider: oidc`, and its refresh.

The identity provider is shown a secret and a refresh token, so its certificate is
checked: by the kubeconfig's `idp-certificate-authority(-data)`, or the system's.

Where it gives out a new refresh token, the old one is spent: the new one goes into the
kubeconfig, or whoever starts next (kubectl, too) would have to log in again.

Source: client-go, plugin/pkg/client/auth/oidc/oidc.go.
"""

from __future__ import annotations

import base64
import json
import math
import os
import ssl
import stat
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote_plus

import aiohttp
import yaml
from yarl import URL

from shardsdk.kube.clock import Clock
from shardsdk.kube.credentials import EXPIRY_MARGIN
from shardsdk.kube.server import proxy_of_environment, proxy_options, verifying_context
from shardsdk.kube.sockets import make_connector
from shardsdk.logs import logger_of

log: Final = logger_of(__name__)

#: A token that was refreshed no longer ago is kept though it is rejected: the next one would be as well, and each
#: process would ask the provider all the time, for as long as the API server takes none.
REJECTED_AGAIN_SECONDS: Final = 60.0
#: How much of an identity provider's refusal is passed on.
REFUSAL_BYTES: Final = 300


class OpenId:
    """The token of one user; `config` is that of the auth provider in the kubeconfig `file`."""

    __slots__ = ("_clock", "_config", "_file", "_filed", "_refreshed_at")

    def __init__(self, config: Mapping[str, Any], file: Path, clock: Clock) -> None:
        self._config = {name: str(value) for name, value in config.items() if value}
        self._file = file
        #: The refresh token that the file has, as far as is known: an older one, if a later one could not be written.
        self._filed = self._config.get("refresh-token", "")
        self._clock = clock
        #: When a token was refreshed last, on the clock's `monotonic`.
        self._refreshed_at = -math.inf

    async def token(self, *, rejected: bool = False) -> str:
        """A token that is good for a while; `rejected`: the last one is not, whatever this clock makes of it.

        Raises: ValueError, LookupError, OSError, aiohttp.ClientError when the provider has to be asked, in vain.
        """
        token = self._config.get("id-token")
        rejected = rejected and self._clock.monotonic() - self._refreshed_at >= REJECTED_AGAIN_SECONDS
        if not token or rejected or self._runs_out(token):
            token = await self._refresh()
            self._refreshed_at = self._clock.monotonic()
        return token

    def _runs_out(self, token: str) -> bool:
        claims = token.split(".")[1]
        expires = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4))).get("exp")
        return expires is not None and expires - EXPIRY_MARGIN // timedelta(seconds=1) <= self._clock.now().timestamp()

    async def _refresh(self) -> str:
        missing = [name for name in ("idp-issuer-url", "client-id", "refresh-token") if name not in self._config]
        if missing:
            raise ValueError(
                f"there is no valid id-token, and no {' or '.join(missing)} to get another by; log in again"
            )
        issuer, client, spent = (self._config[name] for name in ("idp-issuer-url", "client-id", "refresh-token"))
        asked = {"grant_type": "refresh_token", "refresh_token": spent}
        headers = {"Accept": "application/json"}
        if secret := self._config.get("client-secret"):  # RFC 6749, 2.3.1: encoded as in a form
            headers["Authorization"] = aiohttp.encode_basic_auth(quote_plus(client), quote_plus(secret))
        else:
            asked["client_id"] = client
        connector = make_connector(ssl=self._context())
        async with aiohttp.ClientSession(connector=connector) as session:
            page = URL(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
            async with session.get(page, **proxy_options(page, proxy_of_environment(page))) as answer:
                endpoint = URL(str((await _read(answer))["token_endpoint"]))
            # Redirected, the secrets would go where neither the kubeconfig nor the provider's own page says.
            options = proxy_options(endpoint, proxy_of_environment(endpoint))
            async with session.post(endpoint, data=asked, headers=headers, allow_redirects=False, **options) as answer:
                issued = await _read(answer)
        token = str(issued["id_token"])
        self._config["id-token"] = token
        self._config["refresh-token"] = str(issued.get("refresh_token") or spent)
        if self._config["refresh-token"] != self._filed:
            self._keep(self._config["refresh-token"])
        return token

    def _context(self) -> ssl.SSLContext:
        """Read anew each time: authorities are replaced, too."""
        authority = None
        if data := self._config.get("idp-certificate-authority-data"):
            authority = base64.b64decode(data)
        elif file := self._config.get("idp-certificate-authority"):
            authority = (self._file.parent / file).read_bytes()
        return verifying_context(authority.decode("ascii", "ignore") if authority else None)  # as for API servers

    def _keep(self, fresh: str) -> None:
        try:
            replace_value(self._file, self._filed, fresh)
            self._filed = fresh
        except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
            log.warning(
                "The kubeconfig's refresh token is spent, and its successor was not written there",
                extra={"path": str(self._file), "error": str(error)},
            )


async def _read(answer: aiohttp.ClientResponse) -> Mapping[str, Any]:
    body = await answer.read()
    if answer.status != 200:
        said = body[:REFUSAL_BYTES].decode(errors="replace")
        raise ValueError(f"{answer.url.with_query(None)} answers {answer.status}: {said}")
    content: Mapping[str, Any] = json.loads(body)
    return content


def replace_value(file: Path, old: str, new: str) -> None:
    """Have `new` in a kubeconfig where `old` is, and leave the rest of its text alone, comments as well.

    Raises: OSError when it cannot be written, or somebody else just does; ValueError when `old` is not there once;
    RecursionError for what contains itself.
    """
    path = file.resolve()  # a link stays one, and kubectl locks its name
    lock = file.with_name(f"{file.name}.lock")  # Source: client-go, tools/clientcmd/config.go, lockName
    lock.touch(0o600, exist_ok=False)
    try:
        text = path.read_bytes().decode()  # with its line ends
        changed = text.replace(old, new)
        if text.count(old) != 1 or yaml.safe_load(changed) != _replaced(yaml.safe_load(text), old, new):
            raise ValueError("it is not there, or not as a value of its own")
        _write(path, changed)
    finally:
        lock.unlink()


def _replaced(content: object, old: str, new: str) -> object:
    if isinstance(content, dict):
        return {name: _replaced(value, old, new) for name, value in content.items()}
    if isinstance(content, list):
        return [_replaced(value, old, new) for value in content]
    return new if content == old else content


def _write(path: Path, text: str) -> None:
    """All of it or nothing; owner and mode stay."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "wb") as written:
            written.write(text.encode())
        if sys.platform != "win32":
            owner = path.stat()
            os.chown(name, owner.st_uid, owner.st_gid)
            os.chmod(name, stat.S_IMODE(owner.st_mode))
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise

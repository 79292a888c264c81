"""What a serving certificate is, and what a source of them promises.

Building the TLS context is the proof that certificate and key fit together, and
it happens before anything is switched.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from shardsdk.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class ServingPair:
    """A certificate chain and its private key, both PEM; the key never shows in a repr.

    `expires_at` is the end of the first certificate's validity (UTC).
    """

    certificate: bytes
    key: bytes = field(repr=False)
    expires_at: datetime


class Published:
    """The newest good pair and bundle, and who wants to hear of newer ones.

    `pair` is `None` until the first one is there; `loaded` is set from then on.
    `ca_bundle` is the PEM that webhook configurations must trust (`None`: not
    ours to inject).  `failure` says in a sentence what is wrong at the moment.

    Every handshake of a server uses the `newest` context; running connections keep theirs.  One that is in
    use is never loaded anew, which would break handshakes half-way.
    """

    def __init__(self) -> None:
        self.pair: ServingPair | None = None
        self.ca_bundle: bytes | None = None
        self.failure: str | None = None
        self.loaded: asyncio.Event = asyncio.Event()
        self._context = build_context(None)
        self._listeners: list[Callable[[], None]] = []

    def newest(self) -> ssl.SSLContext:
        """For the next handshake; none gets through while there is no certificate yet.

        OpenSSL's callback for server names could switch as well, but Python reads the name before
        it asks, and writes a stack to stderr where that is not ASCII.
        """
        return self._context

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever pair or bundle have changed, and now if there is a pair."""
        self._listeners.append(listener)
        if self.pair is not None:
            listener()

    def publish(self, pair: ServingPair, ca_bundle: bytes | None) -> bool:
        """Switch to `pair` and `ca_bundle`; whether that changed anything."""
        self.failure = None
        if pair == self.pair and ca_bundle == self.ca_bundle:
            return False
        self.pair, self.ca_bundle, self._context = pair, ca_bundle, build_context(pair)
        self.loaded.set()
        for listener in self._listeners:
            listener()
        return True


class CertificateSource(Protocol):
    """Where serving certificates come from: a Secret of our own, or a directory."""

    @property
    def published(self) -> Published:
        """What there is now."""
        ...

    async def run(self) -> None:
        """Keep `published` current, for ever; cancel to stop."""
        ...


def make_pair(certificate: bytes, key: bytes, expires_at: datetime) -> ServingPair:
    """A pair that fits together.

    Raises: ConfigurationError when either cannot be read or they do not match.
    """
    pair = ServingPair(certificate, key, expires_at)
    build_context(pair)
    return pair


def build_context(pair: ServingPair | None) -> ssl.SSLContext:
    """A server's TLS context that presents `pair` (`None`: one that cannot finish a handshake yet).

    Raises: ConfigurationError when certificate and key do not fit together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if pair is not None:
        try:
            with _readable_path(pair.certificate + b"\n" + pair.key) as path:
                context.load_cert_chain(path, password=_refuse_password)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigurationError(f"the serving certificate and its key do not fit together: {error}") from error
    return context


def _refuse_password() -> str:
    """Without this OpenSSL would ask the terminal, and the event loop would wait for somebody to type."""
    raise ConfigurationError("the private key is encrypted; store it without a password")


@contextlib.contextmanager
def _readable_path(content: bytes) -> Iterator[str]:
    """A path that `content` can be read from, because ssl takes files only.

    Where the system has memory files the key never touches a disk, and a
    container with a read-only file system works.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("serving-pair")
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{descriptor}"
    else:
        with tempfile.NamedTemporaryFile() as temporary:
            temporary.write(content)
            temporary.flush()
            yield temporary.name

"""A client certificate in files that somebody replaces from time to time, as kubelet and cert-manager do.

The files are read again once a minute and when the API server rejects us; new
connections show the new pair.  A pair that does not fit together (half of it is
written yet) does not get into the context that connections are made with.

Connections that are open keep the certificate that they were opened with; one
that is rejected is closed by the transport, and for a minute after a change a
rejected request is worth another try, over another connection.
"""

from __future__ import annotations

import math
import ssl
import tempfile
from pathlib import Path
from typing import Final

from shardsdk.errors import ConfigurationError
from shardsdk.kube.clock import Clock
from shardsdk.kube.credentials import Credentials
from shardsdk.logs import logger_of

log: Final = logger_of(__name__)

#: How long a pair is used before its files are read again.
#: Source: client-go, transport/cert_rotation.go, which looks when it connects and each five minutes;
#: here as often as at a token's file.
CERTIFICATE_PERIOD_SECONDS: Final = 60.0


def load_pair(context: ssl.SSLContext, certificate: Path | bytes, key: Path | bytes) -> None:
    """Have new connections of `context` show this pair; each part is a file or PEM.

    Raises: OSError when a file cannot be read, or they do not fit each other; ConfigurationError where PEM cannot be
    written to a file for OpenSSL, which reads nothing else.  `context` keeps what it has then.
    """
    if isinstance(certificate, Path) and isinstance(key, Path):
        _load_files(context, certificate, key)
        return
    try:
        directory = tempfile.TemporaryDirectory()
    except OSError as error:
        raise ConfigurationError(
            f"a client certificate has to be written to a file for a moment, and cannot be: {error.strerror};"
            " have TMPDIR name a directory that is writable (in a pod, an emptyDir in memory)"
        ) from error
    with directory as folder:
        files = (
            _in_file(each, Path(folder, name)) for each, name in ((certificate, "client.crt"), (key, "client.key"))
        )
        _load_files(context, *files)


def _in_file(part: Path | bytes, path: Path) -> Path:
    if isinstance(part, Path):
        return part
    path.touch(0o600, exist_ok=False)
    path.write_bytes(part)
    return path


def _load_files(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    # A pair that does not fit would break the live context: try it elsewhere first.
    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(certificate, key)
    context.load_cert_chain(certificate, key)


class CertificateFiles:
    """`Credentials` that keep the client certificate of `context` current; the header is that of `others`."""

    __slots__ = ("_certificate", "_changed_at", "_clock", "_context", "_key", "_others", "_read_at", "_text")

    def __init__(
        self, certificate: Path, key: Path, context: ssl.SSLContext, others: Credentials, clock: Clock
    ) -> None:
        self._certificate = certificate
        self._key = key
        self._context = context
        self._others = others
        self._clock = clock
        self._text = self._read()
        self._read_at = clock.monotonic()
        self._changed_at = -math.inf

    async def header(self) -> str | None:
        """What goes with the certificate, if anything does; looks at the files once a minute."""
        if self._clock.monotonic() - self._read_at >= CERTIFICATE_PERIOD_SECONDS:
            self._reload()
        return await self._others.header()

    async def renew(self, rejected: str | None) -> bool:
        """Look at the files now; `True`: there is another pair since a moment, or another header."""
        self._reload()
        changed = self._clock.monotonic() - self._changed_at < CERTIFICATE_PERIOD_SECONDS
        return await self._others.renew(rejected) or changed

    def _reload(self) -> None:
        self._read_at = self._clock.monotonic()
        try:
            text = self._read()
            if text == self._text:
                return
            load_pair(self._context, self._certificate, self._key)
        except (OSError, ValueError) as error:
            log.warning("Client certificate not read, the last one is used", extra={"error": str(error)})
            return
        self._text = text
        self._changed_at = self._clock.monotonic()
        log.info("Client certificate was replaced", extra={"path": str(self._certificate)})

    def _read(self) -> tuple[bytes, bytes]:
        return self._certificate.read_bytes(), self._key.read_bytes()

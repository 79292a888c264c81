"""A client certificate in files that somebody replaces from time to time, as kubelet and cert-manager do.

The files are read again once a minute and when the API server rejects us; new
connections show the new pair.  With a pair that does not fit together (half of it is
written yet) no context is made for them.

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
from shardsdk.kube.authority import AuthorityContext
from shardsdk.kube.clock import Clock
from shardsdk.kube.credentials import Credentials
from shardsdk.logs import logger_of

log: Final = logger_of(__name__)

#: How long a pair is used before its files are read again.
#: Source: client-go, transport/cert_rotation.go, which looks when it connects and each five minutes;
#: here as often as at a token's file.
CERTIFICATE_PERIOD_SECONDS: Final = 60.0


def load_pair(context: ssl.SSLContext, certificate: Path | bytes, key: Path | bytes) -> None:
    """Have `context`, with which no connection has been made yet, show this pair; each part is a file or PEM.

    Raises: OSError when a file cannot be read, or they do not fit each other; ConfigurationError where PEM cannot be
    written to a file for OpenSSL, which reads nothing else.  Make no connection with `context` then.
    """
    if isinstance(certificate, Path) and isinstance(key, Path):
        context.load_cert_chain(certificate, key)
        return
    try:
        directory = tempfile.TemporaryDirectory()
    except OSError as error:
        raise ConfigurationError(
            f"a client certificate has to be written to a file for a moment, and cannot be: {error.strerror};"
            " have TMPDIR name a directory that is writable (in a pod, an emptyDir in memory)"
        ) from error
    with directory as folder:
        context.load_cert_chain(
            _in_file(certificate, Path(folder, "client.crt")), _in_file(key, Path(folder, "client.key"))
        )


def _in_file(part: Path | bytes, path: Path) -> Path:
    if isinstance(part, Path):
        return part
    path.touch(0o600, exist_ok=False)
    path.write_bytes(part)
    return path


class CertificateFiles:
    """`Credentials` that have another `context` made once the files have changed; the header is that of `others`."""

    __slots__ = ("_certificate", "_changed_at", "_clock", "_context", "_key", "_others", "_read_at", "_text")

    def __init__(
        self, certificate: Path, key: Path, context: AuthorityContext, others: Credentials, clock: Clock
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
            self._context.remake()
        except (ConfigurationError, OSError, ValueError) as error:
            log.warning("Client certificate not read, the last one is used", extra={"error": str(error)})
            return
        self._text = text
        self._changed_at = self._clock.monotonic()
        log.info("Client certificate was replaced", extra={"path": str(self._certificate)})

    def _read(self) -> tuple[bytes, bytes]:
        return self._certificate.read_bytes(), self._key.read_bytes()

"""Serving certificates from a directory that someone else keeps, as cert-manager's mounted Secret.

The pair is read again and again and published when it has changed; a symlink
swap (as Kubernetes mounts Secrets) and files replaced one after the other are
both just new content.  While a pair does not fit together, the old one stays.
The CA is whoever's made the pair: it is not injected anywhere.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from shardsdk.errors import ConfigurationError, ShardingError
from shardsdk.kube.clock import Clock
from shardsdk.serving.expiry import ExpiryWarnings
from shardsdk.serving.published import Published, ServingPair, make_pair
from shardsdk.serving.x509_messages import ReadValidity, Refused, Validity
from shardsdk.serving.x509_process import Ask, ask_here

log: Final = logging.getLogger(__name__)

#: controller-runtime's names. Source: controller-runtime, pkg/webhook, Options.
CERTIFICATE_NAME: Final = "tls.crt"
KEY_NAME: Final = "tls.key"

#: Below the directory for temporary files.  Source: as above.
DEFAULT_DIRECTORY: Final = "k8s-webhook-server/serving-certs"

#: Reading two small files this often costs nothing, and sees every kind of change.
POLL_SECONDS: Final = 5.0
#: A chain with its intermediates is a few KiB; anything larger is no certificate.
FILE_MAX_BYTES: Final = 1 << 20


def find_default_directory(
    certificate_name: str = CERTIFICATE_NAME, key_name: str = KEY_NAME, *, temporary: Path | None = None
) -> Path | None:
    """controller-runtime's default directory if it holds a pair, else `None`."""
    try:
        base = temporary if temporary is not None else Path(tempfile.gettempdir())
    except FileNotFoundError:  # none can be written to, so nobody has put a pair there
        return None
    directory = base / DEFAULT_DIRECTORY
    there = (directory / certificate_name).is_file() and (directory / key_name).is_file()
    return directory if there else None


class Directory:
    """Publishes the pair in `directory`, which `setting` names, whenever it changes."""

    def __init__(
        self,
        directory: Path,
        *,
        setting: str = "the directory of the certificate",
        clock: Clock,
        certificate_name: str = CERTIFICATE_NAME,
        key_name: str = KEY_NAME,
        ask: Ask = ask_here,
        on_load: Callable[[bool], None] = lambda good: None,
    ) -> None:
        self.published: Published = Published()
        self._certificate = directory / certificate_name
        self._key = directory / key_name
        self._setting = setting
        self._clock = clock
        self._ask = ask
        self._on_load = on_load
        self._seen: ServingPair | None = None
        #: What was last found not to be a pair, and why: to look again takes a process of its own.
        self._refused: tuple[bytes, bytes, str] | None = None
        self._begins_at = datetime.min.replace(tzinfo=UTC)
        self._expiry = ExpiryWarnings(
            clock, "renew it where it is made, and look whether the new one is in these files"
        )

    async def run(self) -> None:
        """Look for a changed pair every few seconds, for ever."""
        while True:
            await self.refresh()
            await self._clock.sleep(POLL_SECONDS)

    async def refresh(self) -> None:
        """Read the pair now; one that cannot be used changes nothing but `published.failure`."""
        try:
            pair = await self._load()
        except ShardingError as error:
            self._complain(str(error))
        else:
            mended = self.published.failure is not None
            if self.published.publish(pair, ca_bundle=None) or mended:
                self._on_load(True)
                self._tell_loaded(pair)
        self._tell_expiry()

    def _tell_loaded(self, pair: ServingPair) -> None:
        """One that is not valid is served all the same: this clock may be the one that is wrong."""
        where = {**self._where(), "expires_at": pair.expires_at.isoformat()}
        log.info("webhook certificate loaded", extra=where)
        if self._clock.now() < self._begins_at:
            log.warning("webhook certificate is not valid now", extra=where)

    def _tell_expiry(self) -> None:
        """Whoever makes it renews it earlier than in the last tenth of its life."""
        if (pair := self.published.pair) is not None:
            self._expiry.look(pair.expires_at, (pair.expires_at - self._begins_at) / 10, self._where())

    def _where(self) -> dict[str, str]:
        return {"path": str(self._certificate), "begins_at": self._begins_at.isoformat()}

    async def _load(self) -> ServingPair:
        certificate, key = self._read(self._certificate), self._read(self._key)
        if self._seen is not None and (certificate, key) == (self._seen.certificate, self._seen.key):
            return self._seen
        if self._refused is not None and (certificate, key) == self._refused[:2]:
            raise ConfigurationError(self._refused[2])
        answer = await self._ask(ReadValidity(certificate))
        try:
            match answer:
                case Validity(begins_at, expires_at):
                    self._seen, self._begins_at = make_pair(certificate, key, expires_at), begins_at
                    return self._seen
                case Refused(message):
                    raise ConfigurationError(f"the serving certificate is not readable: {message}")
                case _:
                    raise TypeError(f"no expiry: {type(answer).__name__}")
        except ConfigurationError as error:
            self._refused = certificate, key, str(error)
            raise

    def _read(self, path: Path) -> bytes:
        try:
            with path.open("rb") as file:
                content = file.read(FILE_MAX_BYTES + 1)
        except OSError as error:
            raise ConfigurationError(f"cannot read {path}: {error.strerror}; see {self._setting}") from error
        if len(content) > FILE_MAX_BYTES:
            raise ConfigurationError(
                f"{path} is larger than {FILE_MAX_BYTES} bytes; it should hold one certificate or key"
            )
        return content

    def _complain(self, problem: str) -> None:
        failure = f"{self._certificate} and {self._key}: {problem}"
        if failure != self.published.failure:
            self.published.failure = failure
            self._on_load(False)
            kept = "the previous pair stays" if self.published.pair else "the webhook cannot serve yet"
            log.error("webhook certificate not loaded", extra={"reason": failure, "consequence": kept})

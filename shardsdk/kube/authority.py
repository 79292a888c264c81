"""The CA of an API server in a file that somebody replaces, as kubelet does when a cluster's CA is rotated.

The file is read whenever a connection is made: it is small, and a handshake costs a thousand times as much.
So a new CA counts from the next connection on, and one that was taken out counts for no further one.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any, Final, Self, TypeAlias

from shardsdk.errors import ConfigurationError
from shardsdk.logs import logger_of

log: Final = logger_of(__name__)

_File: TypeAlias = "str | bytes | PathLike[str] | PathLike[bytes]"


class AuthorityContext(ssl.SSLContext):
    """The context that `make` makes of the text in `path`, and another one once that text has changed.

    Another one, because no CA can be taken out of a context.  It is handed on as one, because loops, connectors and
    whoever renews a client certificate have to know nothing of it; of a context's abilities it has those that they use.
    A file that cannot be used changes nothing.

    Raises: OSError, ValueError, ConfigurationError when the first cannot be made.
    """

    def __new__(cls, *_: object) -> Self:
        """A context of its own that trusts nobody, should anything ever ask that one."""
        return super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)

    def __init__(self, path: Path, make: Callable[[str], ssl.SSLContext]) -> None:
        self._path = path
        self._make = make
        self._text = self._read()
        self._current = make(self._text)
        self._complaint = ""
        #: Held while another context is made, and while one gets a client certificate: the latter is to be in the last.
        self._lock: Final = threading.Lock()

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        """For a new connection of an event loop."""
        self._refresh()
        return self._current.wrap_bio(*args, **options)

    def wrap_socket(self, *args: Any, **options: Any) -> ssl.SSLSocket:
        """For a new connection of a thread."""
        self._refresh()
        return self._current.wrap_socket(*args, **options)

    def load_cert_chain(self, certfile: _File, keyfile: _File | None = None, password: Any = None) -> None:
        """Show this client certificate; to the next context `make` has to give it."""
        with self._lock:
            self._current.load_cert_chain(certfile, keyfile, password)

    def cert_store_stats(self) -> dict[str, int]:
        """How many certificates are trusted."""
        return self._current.cert_store_stats()

    def _refresh(self) -> None:
        with self._lock:
            try:
                text = self._read()
                if text != self._text:
                    self._current = self._make(text)
                    self._text = text
                    log.info("CA was replaced", extra={"path": str(self._path)})
                self._complaint = ""
            except (ConfigurationError, OSError, ValueError) as error:
                if str(error) == self._complaint:  # told once, and not with each connection
                    return
                self._complaint = str(error)
                log.warning("CA not read, the last one is used", extra={"path": str(self._path), "error": str(error)})

    def _read(self) -> str:
        # Comments may be in any language, certificates are not.
        text = self._path.read_bytes().decode("ascii", "ignore")
        if not text.strip():  # which would stand for the CAs of this machine
            raise ValueError(f"{self._path} is empty")
        return text

"""The CA of an API server in a file that somebody replaces, as kubelet does when a cluster's CA is rotated.

The file is read whenever a connection is made: it is small, and a handshake costs a thousand times as much.
So a new CA counts from the next connection on, and one that was taken out counts for no further one.

A new client certificate comes the same way: OpenSSL crashes where one is put into a context while another thread
begins a connection with that.  Whoever keeps connections asks for them by `latest`, as by another key: no request is to
go over one that was opened with the certificate before, which may have run out by then.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self

from shardsdk.errors import ConfigurationError
from shardsdk.logs import logger_of

log: Final = logger_of(__name__)


class AuthorityContext(ssl.SSLContext):
    """The context that `make` makes of the text in `path`, and another one once that text has changed.

    `path` `None`: of no text, and once.  In both cases another one once `remake` is called.

    Another one, because no CA can be taken out of a context.  It is handed on as one, because loops and connectors have
    to know nothing of it; of a context's abilities it has those that they use.  A file that cannot be used changes
    nothing.

    Raises: OSError, ValueError, ConfigurationError when the first cannot be made.
    """

    def __new__(cls, *_: object) -> Self:
        """A context of its own that trusts nobody, should anything ever ask that one."""
        return super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)

    def __init__(self, path: Path | None, make: Callable[[str | None], ssl.SSLContext]) -> None:
        self._path = path
        self._make = make
        self._text = self._read()
        self._current = make(self._text)
        self._complaint = ""
        #: Another name of this one since `remake`.
        self.latest: AuthorityContext = self
        #: Held while another context is made: the last is to have the last of all that goes into it.
        self._lock: Final = threading.Lock()

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        """For a new connection of an event loop."""
        self._refresh()
        return self._current.wrap_bio(*args, **options)

    def wrap_socket(self, *args: Any, **options: Any) -> ssl.SSLSocket:
        """For a new connection of a thread."""
        self._refresh()
        return self._current.wrap_socket(*args, **options)

    def remake(self) -> None:
        """Have another one made for new connections: the client certificate that `make` gives it has changed.

        Raises: OSError, ValueError, ConfigurationError; the last one is used then.
        """
        with self._lock:
            self._current = self._make(self._text)
            latest = AuthorityContext.__new__(AuthorityContext)
            latest.__dict__ = self.__dict__  # one state, whichever of them is asked
            self.latest = latest

    def __repr__(self) -> str:
        """As aiohttp's errors call the context of its connector."""
        return "default"

    def cert_store_stats(self) -> dict[str, int]:
        """How many certificates are trusted."""
        return self._current.cert_store_stats()

    def _refresh(self) -> None:
        replaced, complaint = False, ""
        with self._lock:
            try:
                text = self._read()
                if text != self._text:
                    self._current = self._make(text)
                    self._text, replaced = text, True
            except (ConfigurationError, OSError, ValueError) as error:
                complaint = str(error)
            told, self._complaint = self._complaint, complaint
        # Not under the lock: a handler may take its time, for which nobody else is to wait who connects.
        if replaced:
            log.info("CA was replaced", extra={"path": str(self._path)})
        elif complaint and complaint != told:  # once, and not with each connection
            log.warning("CA not read, the last one is used", extra={"path": str(self._path), "error": complaint})

    def _read(self) -> str | None:
        if self._path is None:
            return None
        # Comments may be in any language, certificates are not.
        text = self._path.read_bytes().decode("ascii", "ignore")
        if not text.strip():  # which would stand for the CAs of this machine
            raise ValueError(f"{self._path} is empty")
        return text


def latest_of(context: ssl.SSLContext) -> ssl.SSLContext | bool:
    """What aiohttp is to be asked by for a connection: another one since another client certificate is to be shown.

    `True`: that of its connector, which is `context`.
    """
    latest = context.latest if isinstance(context, AuthorityContext) else context
    return True if latest is context else latest

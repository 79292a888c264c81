"""Changes the certificate of a listening server without dropping a connection.

Every handshake uses the newest good pair; running connections keep theirs.  A
context that is in use is never loaded anew, which would break handshakes half-way.
"""

from __future__ import annotations

import ssl

from shardsdk.serving.published import Published, build_context


class TlsSwitch:
    """A context to listen with; each handshake is passed on to the newest one.

    OpenSSL calls the server name callback for clients that name no server too
    (an API server that calls an IP address does not), so every handshake
    comes through here.  tests/unit/shardsdk/serving/test_server.py proves it.
    """

    def __init__(self, published: Published) -> None:
        self._published = published
        self._newest: ssl.SSLContext | None = None
        self.listening: ssl.SSLContext = build_context(None)
        self.listening.sni_callback = self._switch
        published.on_change(self._renew)

    def _renew(self) -> None:
        self._newest = build_context(self._published.pair)

    def _switch(self, connection: ssl.SSLObject, server_name: str | None, context: ssl.SSLContext) -> int | None:
        """Pass the handshake on; an alert (int) refuses it while there is no certificate yet."""
        if self._newest is None:
            return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
        connection.context = self._newest
        return None

"""Changes the certificate of a listening server without dropping a connection.

Every handshake uses the newest good pair; running connections keep theirs.  A
context that is in use is never loaded anew, which would break handshakes half-way.
"""

from __future__ import annotations

import ssl

from shardsdk.serving.published import Published, build_context


class TlsSwitch:
    """The context for the next handshake; none gets through while there is no certificate yet.

    OpenSSL's callback for server names could switch as well, but Python reads the name before
    it asks, and writes a stack to stderr where that is not ASCII.
    """

    def __init__(self, published: Published) -> None:
        self._published = published
        self._newest = build_context(None)
        published.on_change(self._renew)

    def newest(self) -> ssl.SSLContext:
        """With the newest certificate."""
        return self._newest

    def _renew(self) -> None:
        self._newest = build_context(self._published.pair)

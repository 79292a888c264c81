"""`python -m bench.empty CERTDIR PORT PATCH`: a webhook that decides nothing, the least that any sharder's has to do.

It answers each review at once with the same JSON patch, without reading more of it than its uid: what the API server
takes to ask, TLS and HTTP are left, and nothing of a sharder.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
import sys
from pathlib import Path
from typing import Final, cast

import uvloop

from localcluster.ports import LOOPBACK

_END: Final = b"\r\n\r\n"
_LENGTH: Final = b"content-length:"
_UID: Final = b'"uid":"'


class Reviews(asyncio.Protocol):
    """One connection of an API server."""

    def __init__(self, patch: bytes) -> None:
        answer = b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"%s","allowed":true,'
        rest = b'"patchType":"JSONPatch","patch":"%s"}}' % base64.b64encode(patch)
        self._before, self._after = (answer + rest).split(b"%s", 1)
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep where answers go."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Answer what has arrived whole."""
        self._received += data
        while (end := self._received.find(_END)) >= 0:
            head = self._received[:end].lower()
            begins = head.index(_LENGTH) + len(_LENGTH)
            whole = end + len(_END) + int(head[begins:].split(b"\r\n", 1)[0])
            if len(self._received) < whole:
                return
            self._answer(self._received[end:whole])
            self._received = self._received[whole:]

    def _answer(self, review: bytes) -> None:
        # The request's own comes first in what an API server sends.
        begins = review.index(_UID) + len(_UID)
        body = self._before + review[begins : review.index(b'"', begins)] + self._after
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
        self._transport.write(head + body)


async def serve(certificates: Path, port: int, patch: bytes) -> None:
    """Serve until the process is ended."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "tls.crt", certificates / "tls.key")
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Reviews(patch), LOOPBACK, port, ssl=context)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3].encode()))

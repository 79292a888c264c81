"""A TLS server whose connections end wherever they like: `python -m tests.tls_cutter FOLDER SEED`.

It prints its port, serves until its input ends, and prints how many connections ended
where.  A process of its own: its threads would take turns with the
loop that is tested.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import ssl
import struct
import sys
import threading
from collections import Counter
from pathlib import Path

CERTIFICATE, KEY = "cert", "key"
BODY = b'{"metadata":{"name":"a","namespace":"default","uid":"u","resourceVersion":"1"}}'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
WHERE = (
    "before the handshake",
    "amid the handshake",
    "idle",
    "headers",
    "continue",
    "half an answer",
    "answer",
    "later",
)
HOW = ("reset", "closed", "goodbye", "goodbye, then more", "garbage")


class Cutter:
    """A TLS server whose connections end here and there; `folder` has its certificate and key."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(folder / CERTIFICATE, folder / KEY)
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=512)
        self._rng = random.Random(seed)
        self.ends: Counter[str] = Counter()
        self.port: int = self._listening.getsockname()[1]

    def serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                threading.Thread(target=self._handle, args=(connection,), daemon=True).start()

    def stop(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _handle(self, raw: socket.socket) -> None:
        where, how = self._rng.choice(WHERE), self._rng.choice(HOW)
        raw.settimeout(5)
        self.ends[where] += 1
        current = raw
        try:
            if where == "amid the handshake":
                raw.recv(100)
            if where not in WHERE[:2]:
                current = self._tls.wrap_socket(raw, server_side=True)
                self._talk(current, where)
            _end(current, how)
        except OSError:
            current.close()

    def _talk(self, connection: ssl.SSLSocket, where: str) -> None:
        if where == "idle":
            return
        for _ in range(4):
            heard = b""
            while b"\r\n\r\n" not in heard:
                if not (piece := connection.recv(65536)):
                    return
                heard += piece
            if where == "headers":
                return
            if b"100-continue" in heard.lower():
                connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
                if where == "continue":
                    return
                connection.recv(65536)
            if where == "half an answer":
                connection.sendall(HEAD % 100_000 + b"x" * 5_000)
                return
            connection.sendall(HEAD % len(BODY) + BODY)
            if where == "answer":
                return


def _end(connection: socket.socket, how: str) -> None:
    if how == "reset":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    elif isinstance(connection, ssl.SSLSocket) and how != "closed":
        with socket.socket(fileno=os.dup(connection.fileno())) as below:
            if how == "garbage":
                below.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
            else:
                connection.settimeout(0.1)
                with contextlib.suppress(OSError):
                    connection.unwrap()
                if how == "goodbye, then more":
                    below.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
    connection.close()


def main(folder: str, seed: str) -> None:
    """Serve until nobody listens any more."""
    cutter = Cutter(Path(folder), int(seed))
    serving = threading.Thread(target=cutter.serve, daemon=True)
    serving.start()
    sys.stdout.write(f"{cutter.port}\n")
    sys.stdout.flush()
    sys.stdin.read()
    cutter.stop()
    serving.join()
    sys.stdout.write(json.dumps(cutter.ends))


if __name__ == "__main__":
    main(*sys.argv[1:])

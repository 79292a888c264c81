"""What keeps a process small: large pieces go back to the system, and TLS reads in smaller ones."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
from asyncio import sslproto
from pathlib import Path
from typing import Any

import pytest

from shardsdk.process.memory import TLS_BUFFER_BYTES, spare_memory
from tests.kube_configs import certificate

#: What uvloop reads of a TLS connection at once, into a piece of its own (its SSL_READ_MAX_SIZE).
READ_BYTES = 256 * 1024
#: Prints how many of ten pieces the allocator has taken from the system alone, after it has freed a larger one.
PIECES = """
import ctypes, sys
from shardsdk.process.memory import spare_memory
libc = ctypes.CDLL(None)
class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks u f k".split()]
if not hasattr(libc, "mallinfo2"):
    sys.exit("unknown")
libc.mallinfo2.restype = Info
if sys.argv[1] == "spare":
    spare_memory()
large = bytearray(20_000_000)
del large
before = libc.mallinfo2().hblks
pieces = [bytes(int(sys.argv[2])) for _ in range(10)]
print(libc.mallinfo2().hblks - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
@pytest.mark.parametrize(
    ("how", "size", "pieces"),
    [("spare", 2 * READ_BYTES, "10"), ("leave", 2 * READ_BYTES, "0"), ("spare", READ_BYTES, "0")],
)
def test_large_pieces_are_the_systems_whatever_was_freed_before_but_for_what_is_read_at_once(
    how: str, size: int, pieces: str
) -> None:
    command = [sys.executable, "-c", PIECES, how, str(size)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unknown" in result.stderr:
        pytest.skip("this C library does not tell")
    assert result.stdout.strip() == pieces


async def test_tls_reads_whole_answers_through_smaller_buffers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sslproto.SSLProtocol, "max_size", 256 * 1024)
    spare_memory()
    cert, key = certificate("localhost")
    (tmp_path / "cert").write_text(cert)
    (tmp_path / "key").write_text(key)
    listening = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    listening.load_cert_chain(tmp_path / "cert", tmp_path / "key")
    trusting = ssl.create_default_context(cadata=cert)
    trusting.check_hostname = False
    sent = bytes(range(256)) * 8192

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=listening)
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
    transport: Any = writer.transport
    assert len(transport._ssl_protocol._ssl_buffer) == TLS_BUFFER_BYTES
    assert await reader.read() == sent
    writer.close()
    server.close()


def test_a_buffer_that_is_smaller_already_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sslproto.SSLProtocol, "max_size", 1024)
    spare_memory()
    protocol: Any = sslproto.SSLProtocol
    assert protocol.max_size == 1024

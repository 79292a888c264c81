"""Many connections to one port that say too little: run in a process of its own, which holds their file descriptors.

    python -m tests.fuzz.crowd PORT COUNT MANNER

Prints `held` once all have been opened, then holds what the server leaves open until its standard input ends.
"""

from __future__ import annotations

import asyncio
import resource
import ssl
import sys
from typing import Final

#: What each sends once it is connected; `mute` does not even begin the TLS handshake.
MANNERS: Final = {
    "mute": b"",
    "idle": b"",
    "half-head": b"POST /webhooks/sharder/clusterring/checksum HTTP/1.1\r\nHost: a\r\nX-",
    "half-body": b"POST /webhooks/sharder/clusterring/checksum HTTP/1.1\r\nHost: a\r\nContent-Length: 9000\r\n\r\n{",
    "endless-head": b"POST / HTTP/1.1\r\n" + b"X-A: b\r\n" * 40_000,
}
#: Handshakes at once: more than that fill the queue of the listening socket.
AT_ONCE: Final = 200


async def hold(port: int, count: int, manner: str) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    turn = asyncio.Semaphore(AT_ONCE)
    held: list[asyncio.StreamWriter] = []

    async def join() -> None:
        async with turn:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=None if manner == "mute" else trust)
                writer.write(MANNERS[manner])
            except OSError:  # the server may well refuse it
                return
            held.append(writer)

    await asyncio.gather(*(join() for _ in range(count)))
    sys.stdout.write("held\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for writer in held:
        writer.transport.abort()


if __name__ == "__main__":
    asyncio.run(hold(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))

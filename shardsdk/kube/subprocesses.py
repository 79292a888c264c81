"""Commands of others (exec plugins, kubectl): what they print, and their end, whatever they have started.

What a command starts inherits its output, and may hold that open for any time; asyncio
waits for it.  Here only the command itself is waited for.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from typing import Final

#: How long a command that was killed is waited for.
REAP_SECONDS: Final = 1.0
#: How long output is waited for once the command itself has ended: a `tee` behind it may have some still.
DRAIN_SECONDS: Final = 1.0


def at_a_terminal() -> bool:
    """Whether somebody may be asked; a command that does so needs their terminal: it has no session of its own then."""
    return sys.stdout is not None and sys.stdout.isatty()


async def run(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, bytes, bytes]:
    """Status, output and complaints of a command.  Whatever ends this ends the command.

    What it has started goes with it when it has to be ended, and goes on when it ends by itself: an agent, say.

    Raises: OSError when it cannot be started.
    """
    apart = not at_a_terminal()
    transport, output = await asyncio.get_running_loop().subprocess_exec(
        _Output, *command, env=dict(environment), stdin=None, start_new_session=apart
    )
    try:
        await output.exited.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                await output.closed.wait()
    finally:
        if transport.get_returncode() is None:
            await end(transport, output.exited.wait(), with_group=apart)
        transport.close()
    return transport.get_returncode() or 0, bytes(output.printed[1]), bytes(output.printed[2])


async def end(transport: asyncio.SubprocessTransport, ended: Awaitable[object], *, with_group: bool) -> None:
    """Kill a command, `with_group` if it has a session of its own, and wait a moment until it has `ended`."""
    with suppress(ProcessLookupError):
        if with_group and sys.platform != "win32":
            os.killpg(transport.get_pid(), signal.SIGKILL)
        else:
            transport.kill()
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(REAP_SECONDS):
                await ended
    finally:
        transport.close()  # or pipes that somebody else holds open would stay open here as well


class _Output(asyncio.SubprocessProtocol):
    """What a command prints."""

    def __init__(self) -> None:
        self.printed: Mapping[int, bytearray] = {1: bytearray(), 2: bytearray()}
        self.exited: Final = asyncio.Event()
        #: Nobody can print anything more.
        self.closed: Final = asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Called with a piece of either."""
        self.printed[fd].extend(data)

    def process_exited(self) -> None:
        """Called when the command itself has ended."""
        self.exited.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called when both pipes have ended too."""
        self.closed.set()

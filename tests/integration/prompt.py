"""`shardsdk` as people run it: a directory with a program, and an identity."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from localcluster.installation import NO_AUTHORITIES, ROOT
from tests.walking import runtime_directory

SECONDS = 120


@dataclass(frozen=True, slots=True)
class Prompt:
    """A directory with a program, and an identity."""

    folder: Path
    kubeconfig: Path

    @property
    def runtime(self) -> Path:
        """Where its processes can be asked."""
        return runtime_directory(self.folder)

    @property
    def environment(self) -> dict[str, str]:
        names = ("PATH", "HOME")
        return {name: os.environ[name] for name in names if name in os.environ} | {
            "KUBECONFIG": str(self.kubeconfig), "PYTHONPATH": str(ROOT), "XDG_RUNTIME_DIR": str(self.runtime),
            "PYTHONUNBUFFERED": "1",
            **NO_AUTHORITIES,
        }  # fmt: skip

    async def start(self, *arguments: str, **environment: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "shardsdk", *arguments, cwd=self.folder, env=self.environment | environment,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, process_group=0,
        )  # fmt: skip

    async def run(self, *arguments: str, **environment: str) -> tuple[int, str, str]:
        """Run `shardsdk ARGUMENTS` to its end."""
        process = await self.start(*arguments, **environment)
        async with asyncio.timeout(SECONDS):
            out, err = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()

    async def explained(self, *arguments: str) -> str:
        """What `shardsdk explain ARGUMENTS` says once a process that runs here knows of the object and answers."""
        async with asyncio.timeout(SECONDS):
            while True:
                code, out, _ = await self.run("explain", *arguments)
                if code == 0:
                    return out

    @asynccontextmanager
    async def running(self, *arguments: str, **environment: str) -> AsyncIterator[Callable[[str], Awaitable[str]]]:
        """Run it within this context, and have it end in order; what is given awaits a line of its log."""
        process = await self.start(*arguments, **environment)
        assert process.stderr is not None
        seen: list[str] = []

        async def line(text: str) -> str:
            assert process.stderr is not None
            async with asyncio.timeout(SECONDS):
                while said := (await process.stderr.readline()).decode():
                    seen.append(said)
                    if text in said:
                        return said
            raise AssertionError(f"it ended without {text!r}:\n{''.join(seen)}")

        try:
            yield line
            os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does
            async with asyncio.timeout(SECONDS):
                _, rest = await process.communicate()
            assert process.returncode == 0, "".join([*seen, rest.decode()])
        finally:
            if process.returncode is None:
                process.kill()
                await process.communicate()

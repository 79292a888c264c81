"""Programs of a test that are shards in processes of their own, under the rights of rbac/shard.yaml."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from localcluster.installation import NO_AUTHORITIES
from tests.integration.harness import REPOSITORY, Stage

#: Time for what a slow machine does in a second.
PATIENCE_SECONDS = 60.0
#: What the sharder does with a lease that has run out.
TAKEN = {"spec": {"holderIdentity": "shardlease-controller", "leaseDurationSeconds": 60}}


@dataclass
class Program:
    """A process, and what a test does to it."""

    name: str
    process: asyncio.subprocess.Process
    log: Path

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def suspend(self) -> None:
        """SIGSTOP; returns once it stands still."""
        self.send(signal.SIGSTOP)
        await until_suspended(self.process.pid)

    async def exit_code(self) -> int:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.process.wait()

    async def stop(self) -> int:
        self.send(signal.SIGTERM)
        return await self.exit_code()

    async def until_it_says(self, text: str) -> None:
        """Wait until its output has `text`.  Raises: AssertionError when it has ended without."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while text not in self.log.read_text():
                assert self.process.returncode is None, self.log.read_text()
                await asyncio.sleep(0.02)


@dataclass
class Programs:
    """What runs in one test; each has its output in `folder`."""

    kubeconfig: Path
    namespace: str
    folder: Path
    started: list[Program] = field(default_factory=list)

    async def start(self, name: str, *arguments: str, environment: dict[str, str] | None = None) -> Program:
        """`python ARGUMENTS`, with KUBECONFIG, and POD_NAMESPACE as the downward API gives it."""
        path = self.folder / f"{len(self.started)}-{name}.log"
        own = {"KUBECONFIG": str(self.kubeconfig), "POD_NAMESPACE": self.namespace, "PYTHONPATH": str(REPOSITORY)}
        with path.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, *arguments, cwd=self.folder, stdout=log, stderr=log,
                env={**os.environ, **NO_AUTHORITIES, **own, "PYTHONUNBUFFERED": "1", **(environment or {})},
            )  # fmt: skip
        self.started.append(Program(name, process, path))
        return self.started[-1]

    async def end(self) -> None:
        for each in self.started:
            with suppress(ProcessLookupError):
                each.process.kill()
            await each.process.wait()


@asynccontextmanager
async def programs_on(stage: Stage, folder: Path, account: str = "shard") -> AsyncIterator[Programs]:
    """Programs with the rights that the stage's ring gives to its shards' account; make the ring first."""
    kubeconfig = await stage.plane.service_account_kubeconfig(stage.namespace, account)
    made = Programs(kubeconfig, stage.namespace, folder)
    try:
        yield made
    except BaseException:
        for each in made.started:
            sys.stdout.write(f"--- {each.name}\n{each.log.read_text()[-6000:]}\n")  # shown with the failure
        raise
    finally:
        await made.end()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that no event tells."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():
            await asyncio.sleep(0.02)


async def until_suspended(pid: int) -> None:
    """Wait until none of the threads runs of a process that SIGSTOP was sent to.

    With all cores busy that takes longer than a request.
    """
    await until(lambda: _states(pid) == {"T"})


def _states(pid: int) -> set[str]:
    """The states of a process's threads, as in proc(5): `T` is stopped."""
    found = set()
    for each in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that ends meanwhile
            found.add((each / "stat").read_text().rpartition(")")[2].split()[0])
    return found


@dataclass(frozen=True, slots=True)
class Span:
    """Some shard's work on an object, by the machine's monotonic clock; `end` None: it never ended."""

    shard: str
    thing: str
    begin: float
    end: float | None


def read_spans(chronicle: Path) -> list[Span]:
    """Lines `SHARD OBJECT KEY begin|end SECONDS`, as the programs append them; begin and end share a key."""
    spans: dict[str, Span] = {}
    for line in chronicle.read_text().splitlines():
        shard, thing, key, edge, seconds = line.split()
        if edge == "begin":
            spans[key] = Span(shard, thing, float(seconds), None)
        else:
            spans[key] = Span(shard, thing, spans[key].begin, float(seconds))
    return list(spans.values())


def overlaps(spans: Sequence[Span]) -> list[tuple[Span, Span]]:
    """Work of two shards on one object at the same time; who was killed is done when the next one begins."""
    found = []
    for thing in {each.thing for each in spans}:
        mine = sorted((each for each in spans if each.thing == thing), key=lambda each: each.begin)
        found += [
            (earlier, later)
            for index, earlier in enumerate(mine)
            for later in mine[index + 1 :]
            if later.shard != earlier.shard and earlier.end is not None and later.begin < earlier.end
        ]
    return found

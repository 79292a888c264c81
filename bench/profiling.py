"""Where the sharder's CPU time goes: stacks of its process, sampled from outside by py-spy while it works.

A sample belongs to one layer: that of the innermost frame whose file has one, so
that what the standard library does counts for whoever calls it.  What is left is
the event loop's own: its sockets, its timers, and TLS below them.
"""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

#: Stacks a second, of which those count in which the process was at work.
RATE: Final = 200
#: Functions that are named, those with most samples.
NAMED: Final = 15
PY_SPY: Final = Path(sys.executable).with_name("py-spy")
LOOP: Final = "event loop, sockets, TLS"
#: Which files are which layer; the first that fits.
LAYERS: Final = (
    ("decision", r"^sharder/core/"),
    ("webhook: review and answer", r"^sharder/webhook/|^shardsdk/serving/body"),
    ("HTTP server", r"^shardsdk/serving/|(^|/)(uvicorn|httptools|fastapi|starlette)/"),
    ("watches and lists", r"^shardsdk/kube/(reflector|reading|mirror|decoding|listing|watching|store|slices|models)"),
    ("requests: fence, turns, errors", r"^shardsdk/kube/"),
    ("HTTP client", r"(^|/)(aiohttp|yarl|multidict|aiohappyeyeballs)/"),
    ("placement, queue, caches", r"^sharder/|^shardsdk/"),
    ("metrics", r"(^|/)prometheus_client/"),
    (LOOP, r"(^|/)(uvloop/|ssl\.py|asyncio/runners\.py)"),
)
_FRAME: Final = re.compile(r"(?P<function>.+) \((?P<file>[^()]+?)(:\d+)?\)")


class NoProfiler(Exception):
    """py-spy is not there, or may not look into the process."""


@dataclass(slots=True)
class Profile:
    """Samples of one process: how many there were, in which layer, and in which function of ours or below it."""

    samples: int = 0
    layers: Counter[str] = field(default_factory=Counter)
    functions: Counter[str] = field(default_factory=Counter)

    def add(self, line: str) -> None:
        """One stack and how often it was seen, as py-spy writes it: `outermost;…;innermost COUNT`."""
        stack, _, count = line.rpartition(" ")
        number, frames = int(count), [found for each in stack.split(";") if (found := _FRAME.fullmatch(each))]
        self.samples += number
        layers = ((layer_of(frame["file"]), frame) for frame in reversed(frames))
        layer, frame = next(((layer, frame) for layer, frame in layers if layer), (LOOP, None))
        self.layers[layer] += number
        if frame is not None:
            self.functions[f"{frame['function']} ({frame['file']})"] += number

    def shares(self) -> dict[str, float]:
        """Per cent of all samples by layer, the largest first."""
        return {layer: 100 * number / self.samples for layer, number in self.layers.most_common()}


def layer_of(file: str) -> str | None:
    """Which layer a frame's file is of; `None`: that of its caller."""
    return next((layer for layer, files in LAYERS if re.search(files, file)), None)


async def profiled(pid: int, work: Callable[[], Awaitable[None]]) -> Profile:
    """What process `pid` does until `work` is done.  Raises: NoProfiler."""
    with TemporaryDirectory(prefix="bench-profile-") as folder:
        path = Path(folder, "stacks")
        options = ["--pid", str(pid), "--format", "raw", "--rate", str(RATE), "--output", str(path)]
        # It would end after some seconds by itself.
        options += ["--duration", "unlimited", "--nolineno"]
        try:
            spying = await asyncio.create_subprocess_exec(
                PY_SPY, "record", *options, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
            )
        except FileNotFoundError as error:
            raise NoProfiler(f"{PY_SPY} is not there: make setup") from error
        try:
            await work()
        finally:
            if spying.returncode is None:
                spying.send_signal(signal.SIGINT)
            said, _ = await spying.communicate()
        profile = _read(path)
    if not profile.samples:
        raise NoProfiler(f"py-spy saw nothing of process {pid} (it may need root): {said.decode().strip()}")
    return profile


def _read(stacks: Path) -> Profile:
    profile = Profile()
    for line in stacks.read_text().splitlines() if stacks.exists() else ():
        profile.add(line)
    return profile


def tell(profile: Profile, what: str) -> None:
    """Print the functions."""
    print(f"  {what}: functions by their own time, and what the standard library does for them", flush=True)
    for function, number in profile.functions.most_common(NAMED):
        print(f"    {100 * number / profile.samples:5.1f} %  {function}", flush=True)

"""A process that is stopped for longer than its hold writes nothing when it wakes up."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from localcluster import AdminClient, ControlPlane

#: How long a hold lasts from its last renewal.
HOLD_SECONDS = 3.0
#: Writes a counter as fast as it can; its hold is renewed until it has written 20 times, however long that takes.
_WRITER = """
import asyncio, json, sys
from shardsdk.errors import FenceClosed, ShardingError
from shardsdk.kube.access import load_access
from shardsdk.kube.client import Client
from shardsdk.kube.clock import SystemClock
from shardsdk.protocol.objects import Resource

class Hold:
    name = "a short one"
    def __init__(self, clock, seconds):
        self.clock, self.seconds = clock, seconds
        self.renew()
    def renew(self):
        self.until = self.clock.monotonic() + self.seconds
    def remaining(self):
        return self.until - self.clock.monotonic()

async def main(kubeconfig, namespace, seconds):
    configmaps = Resource("", "v1", "configmaps", "ConfigMap")
    async with Client(await load_access(kubeconfig)) as client:
        await client.get(configmaps, "counter", namespace)
        hold, written, failed = Hold(SystemClock(), float(seconds)), 0, []
        async def renew():
            while written < 20:
                hold.renew()
                await asyncio.sleep(0.1)
        async def write(task):
            nonlocal written
            while True:
                try:
                    await client.patch(configmaps, "counter", namespace, {"data": {task: str(written)}}, fences=[hold])
                    written += 1
                    if written == 20:
                        print("writing", flush=True)
                except FenceClosed:
                    if written >= 20:
                        return
                    await asyncio.sleep(0.1)  # the machine was slower than the renewal
                except ShardingError as error:
                    failed.append(type(error).__name__)
        await asyncio.gather(renew(), *(write(f"t{number}") for number in range(8)))
        await client.writes_settled()
        print(json.dumps({"written": written, "left": hold.remaining(), "failed": failed}), flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@asynccontextmanager
async def writing(kubeconfig: Path, namespace: str) -> AsyncIterator[asyncio.subprocess.Process]:
    root = Path(__file__).parents[2]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _WRITER, str(kubeconfig), namespace, str(HOLD_SECONDS)),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def test_after_a_stop_longer_than_its_hold_nothing_is_written(
    control_plane: ControlPlane, admin: AdminClient, namespace: str
) -> None:
    async def version() -> str:
        found: dict[str, Any] = await admin.get("v1/configmaps", "counter", namespace)
        return str(found["metadata"]["resourceVersion"])

    await admin.create("v1/configmaps", {"metadata": {"name": "counter"}}, namespace)
    async with writing(control_plane.admin_kubeconfig, namespace) as process:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"writing\n"
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(HOLD_SECONDS + 0.5)  # what was sent before is answered or refused by now
        asleep = await version()
        process.send_signal(signal.SIGCONT)
        told = json.loads(await process.stdout.readline())
        assert told["left"] < 0
        assert told["written"] >= 20
        assert await version() == asleep

"""What is left of the API server's rates when a webhook decides nothing, and nobody watches: the limit of any sharder.

The webhook is called for what a ring's is called for (bench/empty.py answers).  A move is what the wire contract asks
for at least: a drain, and an acknowledgement that the webhook answers with the new shard.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.certificates import write_certificates
from bench.load import CONFIGMAPS, Figures, Usage, creates, measure
from localcluster.installation import Process
from localcluster.ports import LOOPBACK, reserve_port
from localcluster.process import Supervisor
from sharder.core.ringspec import ResolvedMain, ResolvedRing, parse_ring
from sharder.core.webhookconfig import WEBHOOK_CONFIGURATIONS, render_webhook
from shardsdk.kube.client import Client
from shardsdk.protocol.labels import parse_ring_name
from shardsdk.protocol.objects import NAMESPACES

RING: Final = "floor"
LABELS: Final = parse_ring_name(RING)
#: Of the webhook; no ring's is called so.
CONFIGURATION: Final = "bench-floor"
#: Whoever writes here is not the sharder.
ACCOUNT: Final = "nobody"
LOOK_SECONDS: Final = 0.05
START_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Floor:
    """Creates and moves (two writes each) with a webhook that decides nothing, and its CPU for a review, in ms."""

    made: Figures
    moved: Figures
    cpu: float


@dataclass(frozen=True, slots=True)
class Limits:
    """What the API server does without a ring, and for a sharder that decides nothing."""

    made: Figures
    patched: Figures
    floor: Floor

    def of_creates(self, rate: float) -> str:
        """How far creates are from it."""
        return f"[{rate / self.made.rate:.2f} of raw, {rate / self.floor.made.rate:.2f} of an empty webhook's]"

    def of_moves(self, rate: float) -> str:
        """How far moves of two writes each are from it."""
        return (
            f"[{2 * rate / self.patched.rate:.2f} of half the raw patches,"
            f" {rate / self.floor.moved.rate:.2f} of an empty webhook's]"
        )

    def of_patches(self, rate: float) -> str:
        """How far moves of one write each are from it."""
        return f"[{rate / self.patched.rate:.2f} of raw patches]"


async def measure_floor(api: Client, objects: int, warming: int) -> Floor:
    """Make `objects` ConfigMaps and move each, in a namespace of their own."""
    await api.create(NAMESPACES, {"metadata": {"name": RING}})
    async with _webhook(api) as process:
        await measure(creates(api, RING, "warm", warming))
        before = Usage.of(process.pid)
        made = await measure(creates(api, RING, "object", objects))
        after = Usage.of(process.pid)
        await measure(_moves(api, "warm", warming))
        moved = await measure(_moves(api, "object", objects))
        return Floor(made, moved, (after.cpu_seconds - before.cpu_seconds) * 1000 / objects)


def _moves(api: Client, prefix: str, count: int) -> Iterable[Callable[[], Awaitable[None]]]:
    def move(number: int) -> Callable[[], Awaitable[None]]:
        return lambda: _move(api, f"{prefix}-{number}")

    return (move(number) for number in range(count))


async def _move(api: Client, name: str) -> None:
    drained = await api.patch(CONFIGMAPS, name, RING, {"metadata": {"labels": {LABELS.drain: "true"}}})
    labels = {LABELS.shard: None, LABELS.drain: None}
    body = {"metadata": {"resourceVersion": drained.metadata.resource_version, "labels": labels}}
    moved = await api.patch(CONFIGMAPS, name, RING, body)
    assert moved.metadata.label(LABELS.shard) is not None


@asynccontextmanager
async def _webhook(api: Client) -> AsyncIterator[Process]:
    """The webhook is called for what is made in the namespace."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        port, supervisor = reserve_port(), Supervisor()
        stack.callback(port.release)
        stack.push(lambda kind, *_: supervisor.close(keep_logs=kind is not None))
        certificates = write_certificates(folder)
        patch = [{"op": "add", "path": "/metadata/labels", "value": {LABELS.shard: "shard-1"}}]
        argv = [sys.executable, "-m", "bench.empty", str(certificates), str(port.number), json.dumps(patch)]
        process = Process("empty", argv, supervisor)
        process.start()
        wanted = render_webhook(
            _ring(),
            client_config={"url": f"https://{LOOPBACK}:{port.number}"},
            ca_bundle=(certificates / "ca.crt").read_bytes(),
            account=ACCOUNT,
        )
        # There is no such ring: the garbage collector, and the sharder by its label, would take its configuration away.
        wanted["metadata"] = {"name": CONFIGURATION}
        await api.create(WEBHOOK_CONFIGURATIONS, wanted)
        await _until_called(api, process)
        yield process
        await api.delete(WEBHOOK_CONFIGURATIONS, CONFIGURATION)


def _ring() -> ResolvedRing:
    """What the webhook is called for: ConfigMaps of the namespace."""
    spec = {
        "resources": [{"group": "", "resource": "configmaps"}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": RING}},
    }
    return ResolvedRing(parse_ring({"metadata": {"name": RING}, "spec": spec}), (ResolvedMain(CONFIGMAPS),))


async def _until_called(api: Client, process: Process) -> None:
    """Raises: ComponentFailed when what is made gets no label in time."""
    try:
        async with asyncio.timeout(START_SECONDS):
            while True:
                probe = {"metadata": {"generateName": "probe-"}}
                if (await api.create(CONFIGMAPS, probe, RING)).metadata.label(LABELS.shard) is not None:
                    return
                await asyncio.sleep(LOOK_SECONDS)
    except TimeoutError:
        raise process.failure("was not called by the API server") from None

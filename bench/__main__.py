"""`python -m bench [PART] [--objects N] [--json FILE]`: what it costs, measured.

PART `sharder` (the default): rates, latencies, CPU and memory of the sharder.
The figures in brackets are limits, measured in the same run: what the API
server does without a ring, by the same clients, and what it does with a webhook
that decides nothing.

With --sharder COMMAND another sharder is measured after ours, by the same driver, and the ratios stand side by side:
`--sharder "/bin/their-sharder {kubeconfig} {certdir} {port}"`; docs/performance.md says what a command has to do.

PART `shards`: three shards of the example next to one replica of it.
PART `reconciles`: events a second through a cache, a queue and an empty reconcile: by kind, typed by hand, as dicts.
PART `frameworks`: the same controller as a kopf operator, as one operator, and as three shards.
PART `imports`: how long a program waits for the names that it imports.
PART `cache`: memory of an object in a shard's cache.
PART `families`: owners with children when a shard joins: how long nobody has them.
PART `conditions`: what the comparison of labels in the API server costs.
PART `rest`: CPU of a leader and a standby while nothing moves.
PART `join`: many objects when a shard joins: what writes, another ring and users wait for.
PART `ranges`: a handover by ranges beside one by labels, with real shards; what four of them receive of each change.
PART `profile`: where the sharder's CPU time goes, by layer and by function.
PART `scale`: very many objects, and many namespaces, shards and rings: rest, a pass, a shard that joins and leaves.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bench.caching import sizes
from bench.chart import draw
from bench.conditions import comparing
from bench.families import joining
from bench.floor import Limits, measure_floor
from bench.frameworks import comparing_frameworks
from bench.handover import handing_over
from bench.imports import TIMES, importing
from bench.joining import joining_many
from bench.load import Usage, creates, generated, measure, patches
from bench.peer import PeerError, beside
from bench.peer import Size as PeerSize
from bench.profiling import NoProfiler, profiled, tell
from bench.receiving import MOST_OBJECTS, receiving
from bench.reconciles import rates
from bench.replicas import one_and_three
from bench.rest import resting
from bench.scale import Size, scaling
from bench.shards import Owners, Shard, due_to
from localcluster import ControlPlane
from localcluster.errors import ComponentFailed
from localcluster.installation import Installation, SharderTimings
from shardsdk.kube.access import load_access
from shardsdk.kube.client import Client
from shardsdk.protocol.objects import NAMESPACES

RING = "bench"
NAMESPACE = "bench"
BASELINE = "bench-raw"
MOST_WARMING = 300
MOST_GENERATED = 500
PARTS = (
    *("sharder", "shards", "rest", "reconciles", "imports", "frameworks", "cache", "families", "join", "scale"),
    *("ranges", "conditions", "profile"),
)


@dataclass(slots=True)
class Bench:
    """One run and what it found."""

    plane: ControlPlane
    api: Client
    installation: Installation
    objects: int
    owners: Owners
    lease_seconds: int
    rest_seconds: float
    shards: dict[str, Shard] = field(default_factory=dict)
    report: dict[str, float] = field(default_factory=dict)

    @property
    def warming(self) -> int:
        """Objects that are made before any is measured."""
        return min(self.objects, MOST_WARMING)

    def say(self, name: str, value: float, unit: str, limit: str = "") -> None:
        """Note and print one figure."""
        say(self.report, name, value, unit, limit)

    def usage(self) -> Usage:
        """What the sharder has used."""
        (replica,) = self.installation.sharders.values()
        return Usage.of(replica.process.pid)

    def spent(self) -> dict[str, float]:
        """CPU seconds that everything else has used, whose work is the limit; clients and shards are one."""
        pids = {"API server": self.plane.apiserver.pid, "etcd": self.plane.etcd.pid, "clients": os.getpid()}
        return {who: Usage.of(pid).cpu_seconds for who, pid in pids.items()}

    def say_spent(self, name: str, before: dict[str, float], count: int) -> None:
        """What each of `count` took of it since `before`."""
        for who, now in self.spent().items():
            self.say(f"{name}, {who}", (now - before[who]) * 1000 / max(count, 1), "ms")

    async def start_shard(self, name: str, *, fenced: bool = True) -> Shard:
        """Add a shard."""
        lease = self.lease_seconds
        shard = self.shards[name] = Shard(self.api, RING, name, "default", lease_seconds=lease, fenced=fenced)
        await shard.start()
        return shard


def say(report: dict[str, float], name: str, value: float, unit: str, limit: str = "") -> None:
    """Note and print one figure."""
    report[name] = round(value, 4)
    print(f"  {name:<44} {value:>10.2f} {unit:<12} {limit}", flush=True)


async def limits(bench: Bench) -> Limits:
    """What the API server does without us."""
    await measure(creates(bench.api, BASELINE, "warm", bench.warming))
    made = await measure(creates(bench.api, BASELINE, "raw", bench.objects))
    before = bench.spent()
    patched = await measure(patches(bench.api, BASELINE, "raw", bench.objects))
    print("raw API server", flush=True)
    bench.say_spent("raw patches: CPU each", before, bench.objects)
    bench.say("raw creates", made.rate, "/s")
    bench.say("raw creates p99", made.p99, "ms")
    bench.say("raw patches", patched.rate, "/s")
    print("with a webhook that decides nothing, and nobody who watches", flush=True)
    floor = await measure_floor(bench.api, bench.objects, bench.warming)
    bench.say("empty webhook: creates", floor.made.rate, "/s", f"[{floor.made.rate / made.rate:.2f} of raw]")
    bench.say("empty webhook: creates p99", floor.made.p99, "ms", f"[{floor.made.p99 / made.p99:.2f} of raw]")
    bench.say("empty webhook: CPU per review", floor.cpu, "ms")
    moves = f"[{2 * floor.moved.rate / patched.rate:.2f} of half the raw patches]"
    bench.say("empty webhook: drained and acknowledged", floor.moved.rate, "objects/s", moves)
    return Limits(made, patched, floor)


async def creating(bench: Bench, limits: Limits) -> None:
    """Creates through the ring."""
    print("creates through the ring (webhook)", flush=True)
    for name in ("shard-1", "shard-2", "shard-3"):
        await bench.start_shard(name)
    await measure(creates(bench.api, NAMESPACE, "warm", bench.warming))
    before = bench.usage()
    made = await measure(creates(bench.api, NAMESPACE, "object", bench.objects))
    after = bench.usage()
    total = bench.objects + bench.warming
    await bench.owners.until(lambda counts: owned(counts) == total)
    raw, floor = limits.made, limits.floor.made
    bench.say("creates", made.rate, "/s", limits.of_creates(made.rate))
    bench.say("creates p50", made.p50, "ms", f"[{raw.p50:.1f} raw, {floor.p50:.1f} with an empty webhook]")
    bench.say("creates p99", made.p99, "ms", f"[{raw.p99:.1f} raw, {floor.p99:.1f} with an empty webhook]")
    cpu = (after.cpu_seconds - before.cpu_seconds) * 1000 / bench.objects
    bench.say("CPU per placement (webhook)", cpu, "ms")
    began = time.perf_counter()
    unnamed = min(bench.objects, MOST_GENERATED)
    named = await measure(generated(bench.api, NAMESPACE, "generated", unnamed))
    await bench.owners.until(lambda counts: owned(counts) == total + unnamed)
    bench.say("generateName creates", named.rate, "/s")
    bench.say("generateName: all placed after", time.perf_counter() - began, "s")


def owned(counts: Counter[str]) -> int:
    """How many objects carry a shard's label."""
    return sum(number for name, number in counts.items() if name)


async def scaling_out(bench: Bench, limits: Limits) -> None:
    """A shard joins: its share is drained, acknowledged and handed over."""
    print("scale-out (drain, acknowledge, assign)", flush=True)
    label_counts = bench.owners.counts.copy()
    expected = await due_to("shard-4", bench.api, RING, bench.shards)
    before, spent, began = bench.usage(), bench.spent(), time.perf_counter()
    await bench.start_shard("shard-4")
    await bench.owners.until(lambda counts: counts["shard-4"] >= expected)
    moving(bench, "scale-out", expected, time.perf_counter() - began, before, limits.of_moves)
    bench.say_spent("scale-out: CPU per move", spent, expected)
    assert label_counts["shard-4"] == 0


def moving(bench: Bench, name: str, count: int, seconds: float, before: Usage, limit: Callable[[float], str]) -> None:
    """Figures of one handover of `count` objects."""
    after = bench.usage()
    bench.say(f"{name}: objects moved", count, "")
    bench.say(f"{name}: rate", count / seconds, "objects/s", limit(count / seconds))
    bench.say(f"{name}: CPU per move", (after.cpu_seconds - before.cpu_seconds) * 1000 / max(count, 1), "ms")


async def leaving(bench: Bench, limits: Limits) -> None:
    """A shard releases its lease."""
    print("graceful exit", flush=True)
    count = bench.owners.counts["shard-2"]
    before, spent, began = bench.usage(), bench.spent(), time.perf_counter()
    await bench.shards.pop("shard-2").release()
    await bench.owners.until(lambda counts: counts["shard-2"] == 0)
    moving(bench, "graceful exit", count, time.perf_counter() - began, before, limits.of_patches)
    bench.say_spent("graceful exit: CPU per move", spent, count)


async def crashing(bench: Bench, limits: Limits) -> None:
    """Shards stop renewing: a fenced one (our SDK), then one that promises nothing (a Go shard)."""
    for name, kind in (("shard-3", "fenced"), ("shard-5", "unfenced")):
        print(f"crash of a {kind} shard (lease of {bench.lease_seconds} s)", flush=True)
        if name not in bench.shards:
            await bench.start_shard(name, fenced=kind == "fenced")
            await bench.owners.until(lambda counts, name=name: counts[name] > 0)
            await asyncio.sleep(
                bench.lease_seconds
            )  # a last drain may be on its way; what follows counts from a renewal
        count = bench.owners.counts[name]
        before = bench.usage()
        renewed = bench.shards.pop(name).crash()
        await bench.owners.until(lambda counts, name=name, count=count: counts[name] < count)
        first = time.monotonic()
        await bench.owners.until(lambda counts, name=name: counts[name] == 0)
        last, after = time.monotonic(), bench.usage()
        bench.say(f"{kind} crash: last renewal to last object", last - renewed, "s")
        rate = (count - 1) / max(last - first, 0.001)
        bench.say(f"{kind} crash: rate once it moves", rate, "objects/s", limits.of_patches(rate))
        cpu = (after.cpu_seconds - before.cpu_seconds) * 1000 / max(count, 1)
        bench.say(f"{kind} crash: CPU per move", cpu, "ms", f"[{count} objects]")


async def growing(bench: Bench) -> None:
    """Memory and CPU at rest, with few and with many objects."""
    print("memory and CPU at rest", flush=True)
    bench.say("resident memory", bench.usage().resident_mib, "MiB", f"[{owned(bench.owners.counts)} objects]")
    more = 10 * bench.objects
    await measure(creates(bench.api, NAMESPACE, "more", more))
    before = bench.usage()
    await asyncio.sleep(bench.rest_seconds)  # what rest costs can only be measured by resting
    after = bench.usage()
    bench.say("resident memory", after.resident_mib, "MiB", f"[{owned(bench.owners.counts)} objects]")
    bench.say("CPU at rest", (after.cpu_seconds - before.cpu_seconds) / bench.rest_seconds * 100, "% of a core")


async def main(objects: int, lease_seconds: int = 15, rest_seconds: float = 20.0) -> dict[str, float]:
    """Run everything; returns the figures by name."""
    async with _staged(objects, lease_seconds, rest_seconds) as bench:
        found = await limits(bench)
        await creating(bench, found)
        await scaling_out(bench, found)
        await leaving(bench, found)
        await crashing(bench, found)
        await growing(bench)
        return bench.report


async def profiling(objects: int) -> dict[str, float]:
    """Where the CPU time of placements and of moves goes; returns per cent by layer.

    Raises: NoProfiler.
    """
    async with _staged(objects, 15, 0.0) as bench:
        found = await limits(bench)
        (replica,) = bench.installation.sharders.values()
        for name, phase in (("creates", creating), ("moves", scaling_out)):
            profile = await profiled(replica.process.pid, partial(phase, bench, found))
            for layer, share in profile.shares().items():
                bench.say(f"{name}: {layer}", share, "% of CPU")
            tell(profile, name)
        return bench.report


@asynccontextmanager
async def _staged(objects: int, lease_seconds: int, rest_seconds: float) -> AsyncIterator[Bench]:
    """A control plane with a leader, a ring of ConfigMaps and no shard yet."""
    timings = SharderTimings(lease_duration=15, renew_deadline=10, retry_period=2, staleness=10)
    async with ControlPlane() as plane, Installation(plane, timings) as installation:
        access = await load_access(str(plane.admin_kubeconfig))
        async with Client(access) as api, Client(access) as watching:
            for name in (NAMESPACE, BASELINE):
                body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
                await api.create(NAMESPACES, body)
            selector = {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}
            resources = [{"group": "", "resource": "configmaps"}]
            await installation.ring(RING, {"resources": resources, "namespaceSelector": selector})
            await installation.start_sharder("sharder-1")
            await installation.leader()
            owners = Owners(watching, RING, NAMESPACE)
            watch = asyncio.create_task(owners.run())
            bench = Bench(plane, api, installation, objects, owners, lease_seconds, rest_seconds)
            try:
                yield bench
            finally:
                watch.cancel()
                for shard in bench.shards.values():
                    shard.crash()


def run() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "part",
        nargs="?",
        choices=PARTS,
        default="sharder",
    )
    parser.add_argument(
        "--objects",
        type=int,
        help="objects per figure (default: 2000; families 3000, a cache 10000, join 30000, ranges 1000, scale 100000)",
    )
    parser.add_argument("--lease-seconds", type=int, default=15, help="lease of the sharder's shards (default: 15)")
    parser.add_argument(
        "--rest-seconds",
        type=float,
        help="how long rest is measured (default: 20; rest, scale 60; at most, join and families)",
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    parser.add_argument("--namespaces", type=int, help="namespaces of scale (default: one for 100 objects)")
    parser.add_argument("--shards", type=int, default=50, help="shards of scale (default: 50)")
    parser.add_argument("--rings", type=int, default=20, help="rings of scale, at least 2 (default: 20)")
    parser.add_argument("--chart", type=Path, help="frameworks: draw the figures into this file (SVG)")
    parser.add_argument("--sharder", metavar="COMMAND", help="measure this sharder, too (see above)")
    options = parser.parse_args()
    if options.sharder is not None and options.part != "sharder":
        parser.error(f"--sharder goes with the part sharder, not with {options.part}: leave one of them out")
    try:
        report = _play(options)
    except (PeerError, ComponentFailed, NoProfiler) as error:
        parser.error(str(error))
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=2))
    return 0


def _play(options: argparse.Namespace) -> dict[str, float]:
    """Measure the part that the command line names.  Raises: PeerError, ComponentFailed, NoProfiler."""
    report: dict[str, float] = {}
    match options.part:
        case "shards":
            asyncio.run(one_and_three(options.objects or 2000, partial(say, report)))
        case "rest":
            seconds = options.rest_seconds or 60.0
            asyncio.run(resting(options.objects or 300, options.lease_seconds, seconds, partial(say, report)))
        case "families":
            asyncio.run(joining(options.objects or 3000, options.rest_seconds or 60.0, partial(say, report)))
        case "conditions":
            asyncio.run(comparing(options.objects or 500, partial(say, report)))
        case "join":
            asyncio.run(joining_many(options.objects or 30_000, options.rest_seconds or 60.0, partial(say, report)))
        case "scale":
            objects = options.objects or 100_000
            namespaces = options.namespaces or max(objects // 100, 1)
            size = Size(objects, namespaces, options.rest_seconds or 60.0, options.shards, options.rings)
            asyncio.run(scaling(size, partial(say, report)))
        case "ranges":
            asyncio.run(handing_over(options.objects or 1000, partial(say, report)))
            asyncio.run(receiving(min(options.objects or 1000, MOST_OBJECTS), partial(say, report)))
        case "reconciles":
            asyncio.run(rates(options.objects or 2000, partial(say, report)))
        case "frameworks":
            objects = options.objects or 5000
            asyncio.run(comparing_frameworks(objects, partial(say, report)))
            if options.chart is not None:
                options.chart.write_text(draw(report, f"{objects} Secrets, each with a ConfigMap"))
        case "imports":
            importing(options.objects or TIMES, partial(say, report))
        case "profile":
            report = asyncio.run(profiling(options.objects or 2000))
        case "cache":
            asyncio.run(sizes(options.objects or 10_000, partial(say, report)))
        case _ if options.sharder is not None:
            peer_size = PeerSize(options.objects or 2000, options.lease_seconds, options.rest_seconds or 20.0)
            asyncio.run(beside(options.sharder, peer_size, partial(say, report)))
        case _:
            report = asyncio.run(main(options.objects or 2000, options.lease_seconds, options.rest_seconds or 20.0))
    return report


if __name__ == "__main__":
    sys.exit(run())

"""Load on an API server: creates and patches over a fixed number of connections, with their latencies."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardsdk.kube.client import Client
from shardsdk.protocol.objects import Resource

CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")
CONNECTIONS = 16


@dataclass(frozen=True, slots=True)
class Figures:
    """What a run of equal requests took."""

    count: int
    seconds: float
    latencies: tuple[float, ...]

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.count / self.seconds

    @property
    def p50(self) -> float:
        """Median latency in milliseconds."""
        return statistics.median(self.latencies) * 1000

    @property
    def p99(self) -> float:
        """99th percentile of the latency in milliseconds."""
        return sorted(self.latencies)[int(len(self.latencies) * 0.99)] * 1000


async def measure(requests: Iterable[Callable[[], Awaitable[Any]]], connections: int = CONNECTIONS) -> Figures:
    """Run all `requests`, `connections` at a time."""
    waiting = list(reversed(list(requests)))
    count, latencies = len(waiting), []

    async def work() -> None:
        while waiting:
            request = waiting.pop()
            began = time.perf_counter()
            await request()
            latencies.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(connections)))
    return Figures(count, time.perf_counter() - began, tuple(latencies))


def creates(api: Client, namespace: str, prefix: str, count: int) -> Iterable[Callable[[], Awaitable[Any]]]:
    """Creates of `count` ConfigMaps."""

    def create(number: int) -> Callable[[], Awaitable[Any]]:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{prefix}-{number}"}}
        return lambda: api.create(CONFIGMAPS, body, namespace)

    return (create(number) for number in range(count))


def generated(api: Client, namespace: str, prefix: str, count: int) -> Iterable[Callable[[], Awaitable[Any]]]:
    """Creates of `count` ConfigMaps that the API server names."""
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": f"{prefix}-"}}
    return ((lambda: api.create(CONFIGMAPS, body, namespace)) for _ in range(count))


def patches(api: Client, namespace: str, prefix: str, count: int) -> Iterable[Callable[[], Awaitable[Any]]]:
    """Small merge patches, one for each ConfigMap."""

    def patch(number: int) -> Callable[[], Awaitable[Any]]:
        body = {"metadata": {"labels": {"bench": str(number)}}}
        return lambda: api.patch(CONFIGMAPS, f"{prefix}-{number}", namespace, body)

    return (patch(number) for number in range(count))


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU seconds that a process has used, and its resident memory in MiB.

    Source: proc_pid_stat(5).
    """

    cpu_seconds: float
    resident_mib: float

    @classmethod
    def of(cls, pid: int) -> Usage:
        """What the process has used up to now."""
        import os

        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[11]) + int(fields[12])
        pages = int(fields[21])
        return cls(ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE") / 2**20)

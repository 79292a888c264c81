"""The same controller as a kopf operator, as one operator of the SDK, and as three shards; one after the other.

It keeps for every Secret a ConfigMap with the checksum of its data.  Secrets are
made while it runs, all are changed while it runs, and all are changed while it is
away, after which it starts again.  Measured: time until every ConfigMap is right,
CPU and memory of its processes (without the sharder, which is told apart), and
the writes on Secrets and ConfigMaps that the API server was asked for.
"""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from bench.load import Usage, measure
from bench.replicas import FAMILY, RING, SECRETS, VALUE_BYTES, only, until_done, until_held, writes
from localcluster import ControlPlane
from localcluster.installation import Installation, Process, SharderTimings
from shardsdk.kube.access import load_access
from shardsdk.kube.client import Client
from shardsdk.protocol.objects import NAMESPACES

WRITES: Final = ("POST", "PUT", "PATCH", "APPLY", "DELETE")
_REQUESTS: Final = re.compile(r"^apiserver_request_total\{(?P<labels>.*)\} (?P<count>\S+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')

Say = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Contender:
    """What is measured: a Python module, started under each of these names."""

    label: str
    module: str
    names: Sequence[str] = ("one",)
    sharded: bool = False

    @property
    def namespace(self) -> str:
        """Where its objects are."""
        return self.label.replace(" ", "-")


CONTENDERS: Final = (
    Contender("kopf", "bench.kopf_operator"),
    Contender("one operator", "bench.our_operator"),
    Contender("three shards", "bench.our_operator", ("one", "two", "three"), sharded=True),
)
PHASES: Final = ("made", "changed", "changed while away")
MEASURED: Final = ("seconds", "CPU", "memory", "writes per object")


@dataclass(slots=True)
class Run:
    """One contender, on its cluster."""

    contender: Contender
    installation: Installation
    api: Client
    objects: int
    say: Say

    async def start(self) -> list[Process]:
        """Start its processes."""
        arguments = ["--namespace", "default" if self.contender.sharded else self.contender.namespace]
        arguments += ["--ring", RING] if self.contender.sharded else []
        admin = self.installation.plane.admin_kubeconfig
        return [
            await self.installation.start_shard(
                name,
                module=self.contender.module,
                arguments=arguments,
                kubeconfig=admin,
                environment={"KUBECONFIG": str(admin)},
            )
            for name in self.contender.names
        ]

    async def play(self) -> None:
        """All phases."""
        processes = await self.start()
        if self.contender.sharded:
            await until_held(self.api, set(self.contender.names))
        await self._warm_up()
        await self._phase("made", processes, b"a", patch=False)
        await self._phase("changed", processes, b"b", patch=True)
        for process in processes:
            await process.stop()
        asked = await self._asked()
        await measure(writes(self.api, self.contender.namespace, self.objects, b"c", patch=True))
        begun = time.perf_counter()
        processes = await self.start()
        await until_done(self.api, self.contender.namespace, self.objects, b"c")
        await self._told("changed while away", begun, processes, [Usage(0.0, 0.0)] * len(processes), asked)
        for process in processes:
            await process.stop()

    async def _warm_up(self) -> None:
        """Wait until it works: what starting takes is told by the last phase."""
        data = {"key": base64.b64encode(b"w" * VALUE_BYTES).decode()}
        await self.api.create(SECRETS, {"metadata": {"name": "warm"}, "data": data}, self.contender.namespace)
        await until_done(self.api, self.contender.namespace, 1, b"w")

    async def _phase(self, name: str, processes: Sequence[Process], letter: bytes, *, patch: bool) -> None:
        before, asked, begun = [Usage.of(each.pid) for each in processes], await self._asked(), time.perf_counter()
        await measure(writes(self.api, self.contender.namespace, self.objects, letter, patch=patch))
        await until_done(self.api, self.contender.namespace, self.objects, letter)
        await self._told(name, begun, processes, before, asked)

    async def _told(
        self, phase: str, begun: float, processes: Sequence[Process], before: Sequence[Usage], asked: float
    ) -> None:
        seconds = time.perf_counter() - begun
        after = [Usage.of(each.pid) for each in processes]
        spent = sum(now.cpu_seconds - then.cpu_seconds for now, then in zip(after, before, strict=True))
        memory = [each.resident_mib for each in after]
        written = (await self._asked() - asked) / self.objects - 1  # ours, one for each
        each = f"[{max(memory):.0f} MiB the largest of {len(memory)}]" if len(memory) > 1 else ""
        for figure, value, unit, further in (
            ("seconds", seconds, "s", ""),
            ("CPU", spent, "s", ""),
            ("memory", sum(memory), "MiB", each),
            ("writes per object", written, "", ""),
        ):
            self.say(f"{self.contender.label}, {phase}: {figure}", value, unit, further)

    async def _asked(self) -> float:
        """Writes on Secrets and ConfigMaps since the API server has started, whoever asked."""
        text = (await self.api.raw("GET", "/metrics")).decode()
        total = 0.0
        for found in _REQUESTS.finditer(text):
            labels = dict(_LABEL.findall(found["labels"]))
            if labels["resource"] in ("secrets", "configmaps") and labels["verb"] in WRITES:
                total += float(found["count"])
        return total


async def comparing_frameworks(objects: int, say: Say) -> None:
    """Measure each of them."""
    print(f"{objects} Secrets, each with a ConfigMap", flush=True)
    timings = SharderTimings(lease_duration=15, renew_deadline=10, retry_period=2, staleness=10)
    async with ControlPlane(controllers=()) as plane, Installation(plane, timings) as installation:
        async with Client(await load_access(str(plane.admin_kubeconfig))) as api:
            for contender in CONTENDERS:
                await api.create(NAMESPACES, {"metadata": {"name": contender.namespace}})
                if contender.sharded:
                    selector = only(contender.namespace)
                    await installation.ring(RING, {"resources": [FAMILY], "namespaceSelector": selector})
                    await installation.start_sharder("sharder-1")
                    await installation.leader()
                await Run(contender, installation, api, objects, say).play()
        (sharder,) = installation.sharders.values()
        usage = Usage.of(sharder.process.pid)
        say("the sharder beside them: CPU", usage.cpu_seconds, "s")
        say("the sharder beside them: memory", usage.resident_mib, "MiB")

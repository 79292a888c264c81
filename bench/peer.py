"""Another sharder next to ours: the same driver, the same figures, in one run, on control planes alike.

A sharder is a command.  Both get the same: a control plane of their own with CRDs, a ring, three shards that
acknowledge at once, one ConfigMap that waits, and a ServiceAccount with every right, which API servers throttle as any
other.  Ours is started in the same way (bench/ourselves.py).
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import string
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.certificates import write_certificates
from bench.load import CONFIGMAPS, Figures, Usage, creates, measure, patches
from bench.shards import Owners, Shard
from localcluster import ControlPlane
from localcluster.installation import Installation, Process
from localcluster.ports import reserve_port
from localcluster.process import Supervisor
from shardsdk.kube.access import load_access
from shardsdk.kube.client import Client
from shardsdk.protocol.labels import parse_ring_name
from shardsdk.protocol.objects import NAMESPACES

RING: Final = "peer"
NAMESPACE: Final = "peer"
#: Of no ring: what the API server does without one.
WITHOUT: Final = "peer-without"
SHARDS: Final = ("one", "two", "three")
JOINS: Final = "four"
LEAVES: Final = "two"
PLACEHOLDERS: Final = ("kubeconfig", "certdir", "port")
OURSELVES: Final = f"{shlex.quote(sys.executable)} -m bench.ourselves {{kubeconfig}} {{certdir}} {{port}}"
MOST_WARMING: Final = 300
START_SECONDS: Final = 120.0
MOVE_SECONDS: Final = 600.0
LOOK_SECONDS: Final = 0.05
#: How many objects move to a shard that joins, the sharder's own hash says: all have come once none has for so long.
QUIET_SECONDS: Final = 5.0
ACCOUNT: Final = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: measured, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: measured}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: measured, namespace: default}]
"""

Say = Callable[..., None]


class PeerError(Exception):
    """A sharder's command cannot be measured; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Command:
    """How a sharder is started: words with `{kubeconfig}`, `{certdir}` and `{port}` in them."""

    words: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Command:
        """Take a command as a shell's words.

        Raises: PeerError when a placeholder is unknown or missing, or the program is not there.
        """
        try:
            words = shlex.split(text)
            named = {name for word in words for _, name, _, _ in string.Formatter().parse(word) if name is not None}
        except ValueError as error:
            raise PeerError(f"--sharder {text!r}: {error}; close each quote, and write {{{{ for a brace") from None
        for name in sorted(named - set(PLACEHOLDERS)):
            raise PeerError(f"--sharder: {{{name}}} is unknown; there are {_listed()}; write {{{{ for a brace")
        for name in PLACEHOLDERS:
            if name not in named:
                raise PeerError(f"--sharder: {{{name}}} is missing; the command has to take each of {_listed()}")
        program = shutil.which(words[0])
        if program is None:
            raise PeerError(f"--sharder: there is no program {words[0]!r}; name it by its absolute path")
        command = cls((os.path.abspath(program), *words[1:]))
        try:
            command.filled(Path(), Path(), 0)
        except ValueError as error:
            raise PeerError(f"--sharder: {error}; write placeholders as in {_listed()}") from None
        return command

    def filled(self, kubeconfig: Path, certdir: Path, port: int) -> list[str]:
        """The command's words for one run."""
        values = {"kubeconfig": str(kubeconfig), "certdir": str(certdir), "port": str(port)}
        return [word.format_map(values) for word in self.words]


def _listed() -> str:
    return ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured; `start_seconds`: how long a command may take until it places objects."""

    objects: int
    lease_seconds: int = 15
    rest_seconds: float = 20.0
    start_seconds: float = START_SECONDS


@dataclass(slots=True)
class Scene:
    """One sharder and what it is measured on."""

    who: str
    size: Size
    process: Process
    api: Client
    owners: Owners
    shards: dict[str, Shard]
    say: Say

    @property
    def usage(self) -> Usage:
        """What the sharder has used."""
        return Usage.of(self.process.pid)

    def tell(self, name: str, value: float, unit: str, limit: str = "") -> None:
        """Note one figure of this sharder."""
        self.say(f"{self.who}: {name}", value, unit, limit)

    async def until(self, what: str, done: Callable[[], object], timeout_seconds: float) -> None:
        """Wait for what the watch of objects will show.

        Raises: ComponentFailed with the end of its log when the sharder ends meanwhile, or takes too long.
        """
        limit = time.monotonic() + timeout_seconds
        while not done():
            if not self.process.running:
                raise self.process.failure(f"ended before {what}: the command has to stay in the foreground")
            if time.monotonic() > limit:
                raise self.process.failure(f"took more than {timeout_seconds:g} s until {what}")
            self.owners.changed.clear()
            try:
                async with asyncio.timeout(0.5):
                    await self.owners.changed.wait()
            except TimeoutError:
                continue  # the process is looked at again

    def owned(self) -> int:
        """Objects with a shard."""
        return sum(number for name, number in self.owners.counts.items() if name)


async def beside(text: str, size: Size, say: Say) -> None:
    """Measure our sharder, then the command's, and print the ratios side by side.

    Raises: PeerError, ComponentFailed.
    """
    theirs = Command.parse(text)
    figures: dict[str, dict[str, float]] = {}
    for who, command in (("ours", Command.parse(OURSELVES)), ("peer", theirs)):
        print(f"{who}: {size.objects} ConfigMaps", flush=True)
        noted = figures[who] = {}

        def note(name: str, value: float, *rest: str, noted: dict[str, float] = noted) -> None:
            noted[name.partition(": ")[2]] = value
            say(name, value, *rest)

        await _one(who, command, size, note)
    print("peer / ours", flush=True)
    for name, value in figures["ours"].items():
        if value > 0:
            theirs_value = figures["peer"][name]
            say(f"peer / ours: {name}", theirs_value / value, "", f"[{theirs_value:.2f} / {value:.2f}]")


async def _one(who: str, command: Command, size: Size, say: Say) -> None:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        plane = await stack.enter_async_context(ControlPlane())
        installation = await stack.enter_async_context(Installation(plane))
        await _declare(plane, installation)
        access = await load_access(str(plane.admin_kubeconfig))
        api, watching = [await stack.enter_async_context(Client(access)) for _ in range(2)]
        for name in (NAMESPACE, WITHOUT):
            await api.create(NAMESPACES, {"metadata": {"name": name}})
        port = reserve_port()
        stack.callback(port.release)
        kubeconfig = await plane.service_account_kubeconfig("default", "measured", folder / "kubeconfig")
        argv = command.filled(kubeconfig, write_certificates(folder), port.number)
        supervisor = Supervisor()
        stack.push(lambda kind, *_: supervisor.close(keep_logs=kind is not None))
        process = Process(who, argv, supervisor, {"PATH": os.environ.get("PATH", os.defpath)})
        owners = Owners(watching, RING, NAMESPACE)
        shards: dict[str, Shard] = {}
        stack.callback(lambda: [shard.crash() for shard in shards.values()])
        for name in SHARDS:
            shard = Shard(watching, RING, name, "default", lease_seconds=size.lease_seconds)
            await shard.start()
            shards[name] = shard
        watch = asyncio.create_task(owners.run())
        stack.callback(watch.cancel)
        await _measure(Scene(who, size, process, api, owners, shards, say))


async def _declare(plane: ControlPlane, installation: Installation) -> None:
    await plane.apply(stdin=ACCOUNT)
    selector = {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}
    resources = [{"group": "", "resource": "configmaps"}]
    await installation.ring(RING, {"resources": resources, "namespaceSelector": selector})


async def _measure(scene: Scene) -> None:
    await measure(creates(scene.api, WITHOUT, "warm", min(scene.size.objects, MOST_WARMING)))
    made = await measure(creates(scene.api, WITHOUT, "raw", scene.size.objects))
    patched = await measure(patches(scene.api, WITHOUT, "raw", scene.size.objects))
    there = await _start(scene)
    await _create(scene, made, there)
    await _join(scene, patched)
    await _leave(scene, patched)
    await _rest(scene)
    began = time.perf_counter()
    try:
        await scene.process.stop()
    except TimeoutError:
        raise scene.process.failure("did not end after SIGTERM; it has to, or exec the program that does") from None
    scene.tell("stop", time.perf_counter() - began, "s", "[from SIGTERM to its end]")


async def _start(scene: Scene) -> int:
    """Until the object that waits has a shard, and the webhook is asked about new ones; returns how many were made."""
    await scene.api.create(CONFIGMAPS, {"metadata": {"name": "waits"}}, NAMESPACE)
    began = time.perf_counter()
    scene.process.start()
    await scene.until("it placed an object that was there already", scene.owned, scene.size.start_seconds)
    scene.tell("start to first placement", time.perf_counter() - began, "s")
    label, limit, number = parse_ring_name(RING).shard, began + scene.size.start_seconds, 0
    while True:
        made = await scene.api.create(CONFIGMAPS, {"metadata": {"name": f"probe-{number}"}}, NAMESPACE)
        number += 1
        if made.metadata.label(label):
            return 1 + number
        if time.perf_counter() > limit or not scene.process.running:
            raise scene.process.failure(
                "places objects, but new ones get no shard from its webhook: it has to make a"
                " MutatingWebhookConfiguration for https://127.0.0.1:{port} with {certdir}/ca.crt as caBundle;"
                f" it was started as {shlex.join(scene.process.argv)}"
            )
        await asyncio.sleep(LOOK_SECONDS)


async def _create(scene: Scene, raw: Figures, there: int) -> None:
    warming = min(scene.size.objects, MOST_WARMING)
    await measure(creates(scene.api, NAMESPACE, "warm", warming))
    before = scene.usage
    made = await measure(creates(scene.api, NAMESPACE, "object", scene.size.objects))
    cpu = scene.usage.cpu_seconds - before.cpu_seconds
    wanted = there + warming + scene.size.objects
    await scene.until("each object had a shard", lambda: scene.owned() == wanted, MOVE_SECONDS)
    scene.tell(
        "creates through the ring / without", made.rate / raw.rate, "", f"[{made.rate:.0f} / {raw.rate:.0f} a s]"
    )
    scene.tell("creates p99 / without", made.p99 / raw.p99, "", f"[{made.p99:.1f} / {raw.p99:.1f} ms]")
    scene.tell("CPU per placement", cpu * 1000 / scene.size.objects, "ms")


async def _join(scene: Scene, raw: Figures) -> None:
    shard = scene.shards[JOINS] = Shard(
        scene.shards[LEAVES].api, RING, JOINS, "default", lease_seconds=scene.size.lease_seconds
    )
    counts = scene.owners.counts
    await _move(scene, "scale-out", None, shard.start, lambda: counts[JOINS], raw)


async def _leave(scene: Scene, raw: Figures) -> None:
    counts = scene.owners.counts
    count, leave = counts[LEAVES], scene.shards.pop(LEAVES).release
    await _move(scene, "graceful exit", count, leave, lambda: count - counts[LEAVES], raw)


async def _move(
    scene: Scene, name: str, count: int | None, change: Callable[[], Any], moved: Callable[[], int], raw: Figures
) -> None:
    """Until `moved` is `count`; `None`: until it has been more than nothing, and the same, for QUIET_SECONDS."""
    before, began = scene.usage, time.perf_counter()
    so_far, last, after = 0, began, before
    await change()

    def done() -> bool:
        nonlocal so_far, last, after
        if moved() != so_far:
            so_far, last, after = moved(), time.perf_counter(), scene.usage
        if count is not None:
            return so_far == count
        return so_far > 0 and time.perf_counter() - last > QUIET_SECONDS

    await scene.until(f"objects had moved ({name})", done, MOVE_SECONDS)
    seconds, cpu = max(last - began, LOOK_SECONDS), after.cpu_seconds - before.cpu_seconds
    scene.tell(f"{name}: rate", so_far / seconds, "objects/s", f"[{so_far} moved; {raw.rate:.0f} patches/s without]")
    scene.tell(f"{name}: CPU per move", cpu * 1000 / max(so_far, 1), "ms")


async def _rest(scene: Scene) -> None:
    before = scene.usage
    # What rest costs can only be measured by resting.
    await asyncio.sleep(scene.size.rest_seconds)
    cpu = scene.usage.cpu_seconds - before.cpu_seconds
    scene.tell("CPU at rest", cpu / scene.size.rest_seconds * 1000, "millicores")
    scene.tell("memory (PSS)", _proportional(scene.process.pid), "MiB", f"[{scene.owned()} objects]")


def _proportional(pid: int) -> float:
    """Memory of a process in MiB, shared pages divided among those who share them.  Source: proc_pid_smaps_rollup."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024

"""Three shards next to one replica: what each needs for the same objects, net of a process that has none.

The controller is examples/checksum.py as it is.  Each of its objects is made, and changed once.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from bench.load import CONFIGMAPS, Usage, measure
from localcluster import ControlPlane
from localcluster.installation import Installation, Process, SharderTimings
from shardsdk.kube.access import load_access
from shardsdk.kube.client import Client
from shardsdk.kube.selectors import Selector
from shardsdk.protocol.labels import LEASE_RING_LABEL
from shardsdk.protocol.objects import NAMESPACES, ObjectMeta, Resource

SECRETS: Final = Resource("", "v1", "secrets", "Secret")
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease")
FAMILY: Final = {
    "group": "",
    "resource": "secrets",
    "controlledResources": [{"group": "", "resource": "configmaps"}],
}
RING: Final = "checksum"
IDLE: Final = "idle"
LOOK_SECONDS: Final = 1.0
#: What a Secret holds: a certificate and its key are about that large.
VALUE_BYTES: Final = 2048

Say = Callable[..., None]


class _Made(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    data: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class Needs:
    """What a process needed for its objects: CPU seconds, MiB; net of an idle one."""

    cpu_seconds: float
    resident_mib: float


async def one_and_three(objects: int, say: Say) -> None:
    """Measure one replica, then three, each time with a ring and objects of their own."""
    print(f"{objects} Secrets, each made and changed once, by one replica and by three shards", flush=True)
    timings = SharderTimings(lease_duration=15, renew_deadline=10, retry_period=2, staleness=10)
    async with ControlPlane() as plane, Installation(plane, timings) as installation:
        await installation.ring(IDLE, {"resources": [FAMILY], "namespaceSelector": only("nowhere")})
        await installation.start_sharder("sharder-1")
        await installation.leader()
        async with Client(await load_access(str(plane.admin_kubeconfig))) as api:
            (alone,) = await _measure(installation, api, ["alone"], objects, say)
            shards = await _measure(installation, api, ["one", "two", "three"], objects, say)
    for name, of_one, of_each in (
        ("memory", alone.resident_mib, [each.resident_mib for each in shards]),
        ("CPU", alone.cpu_seconds, [each.cpu_seconds for each in shards]),
    ):
        unit = "MiB" if name == "memory" else "s"
        say(f"{name}: one replica, net", of_one, unit)
        say(f"{name}: each of three, net, mean", sum(of_each) / len(of_each), unit)
        say(f"{name}: each of three / one replica, mean", sum(of_each) / len(of_each) / of_one, "", "[0.33 ideal]")
        say(f"{name}: fullest of three / one replica", max(of_each) / of_one, "", "[0.33 ideal]")


async def _measure(installation: Installation, api: Client, names: list[str], objects: int, say: Say) -> list[Needs]:
    ring = namespace = f"{RING}-{len(names)}"
    idle = f"{IDLE}-{len(names)}"
    await api.create(NAMESPACES, {"metadata": {"name": namespace}})
    await installation.ring(ring, {"resources": [FAMILY], "namespaceSelector": only(namespace)})
    processes = [await _start(installation, ring, name) for name in names]
    processes.append(await _start(installation, IDLE, idle))
    await until_held(api, {*names, idle})
    before = {each.name: Usage.of(each.pid) for each in processes}
    await measure(writes(api, namespace, objects, b"a"))
    await until_done(api, namespace, objects, b"a")
    await measure(writes(api, namespace, objects, b"b", patch=True))
    await until_done(api, namespace, objects, b"b")
    gc.collect()
    after = {each.name: Usage.of(each.pid) for each in processes}
    spent = {name: after[name].cpu_seconds - before[name].cpu_seconds for name in after}
    say(f"idle process beside {len(names)}: memory", after[idle].resident_mib, "MiB")
    say(f"idle process beside {len(names)}: CPU", spent[idle], "s")
    for process in processes:
        await process.stop()
    return [Needs(spent[name] - spent[idle], after[name].resident_mib - after[idle].resident_mib) for name in names]


def only(namespace: str) -> dict[str, Any]:
    return {"matchLabels": {"kubernetes.io/metadata.name": namespace}}


async def _start(installation: Installation, ring: str, name: str) -> Process:
    arguments = ["--ring", ring, "--namespace", "default"]
    return await installation.start_shard(
        name, module="examples.checksum", arguments=arguments, kubeconfig=installation.plane.admin_kubeconfig
    )


async def until_held(api: Client, names: set[str]) -> None:
    of_rings = Selector(LEASE_RING_LABEL)
    while True:
        held = [lease async for page in api.pages(LEASES, "default", selector=of_rings, model=dict) for lease in page]
        if names <= {each["spec"].get("holderIdentity") for each in held}:
            return
        await asyncio.sleep(LOOK_SECONDS)


def writes(
    api: Client, namespace: str, count: int, letter: bytes, *, patch: bool = False
) -> list[Callable[[], Awaitable[Any]]]:
    data = {"key": base64.b64encode(letter * VALUE_BYTES).decode()}

    def write(number: int) -> Callable[[], Awaitable[Any]]:
        name = f"secret-{number}"
        if patch:
            return lambda: api.patch(SECRETS, name, namespace, {"data": data})
        return lambda: api.create(SECRETS, {"metadata": {"name": name}, "data": data}, namespace)

    return [write(number) for number in range(count)]


async def until_done(api: Client, namespace: str, count: int, letter: bytes) -> None:
    wanted = hashlib.sha256(b"key\0" + letter * VALUE_BYTES + b"\0").hexdigest()
    while True:
        done = 0
        not_ours = Selector(fields="metadata.name!=kube-root-ca.crt")
        async for page in api.pages(CONFIGMAPS, namespace, selector=not_ours, model=_Made):
            done += sum(each.data.get("sha256") == wanted for each in page)
        if done == count:
            return
        await asyncio.sleep(LOOK_SECONDS)

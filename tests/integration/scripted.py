"""A shard that knows nothing but the wire contract, and does what a test tells it to.

It shares no code with shardsdk: what it shows holds for shards of any make.
It holds its lease, watches the objects that carry its name, and acknowledges
drains; it can be slow, crash, leave, come back and stand still.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import aiohttp

from localcluster import AdminClient, AdminError

Object = dict[str, Any]
#: Resource, namespace, name.
Key = tuple[str, str, str]

LEASES: Final = "coordination.k8s.io/v1/leases"
RING_LABEL: Final = "alpha.sharding.timebertt.dev/clusterring"
INSTANCE: Final = "alpha.sharding.timebertt.dev/instance"
FENCED: Final = "alpha.sharding.timebertt.dev/fenced"
TROUBLE: Final = (AdminError, aiohttp.ClientError, OSError, TimeoutError)
_instances = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Script:
    """How a shard is made.

    `go_like`: as shards of the Go library are: no fence, no instance, whoever
    bears the name holds the lease.
    """

    lease_seconds: int = 3
    renew_seconds: float = 0.5
    retry_seconds: float = 0.1
    go_like: bool = False


class ScriptedShard:
    """One shard of one ring.

    `acknowledge_after` seconds pass between a drain and its acknowledgement,
    none happens while `acknowledging` is not set, and
    `before_acknowledging(object)` is what the shard still does meanwhile.
    `objects` is what its watches show, `lost` is set once it has lost its lease.
    """

    def __init__(
        self,
        client: AdminClient,
        ring: str,
        labels: tuple[str, str],
        namespace: str,
        name: str,
        mains: Sequence[str],
        script: Script | None = None,
    ) -> None:
        self.client = client
        self.ring = ring
        self.namespace = namespace
        self.name = name
        self.script = script or Script()
        self.acknowledge_after = 0.0
        self.acknowledging = asyncio.Event()
        self.acknowledging.set()
        self.before_acknowledging: Callable[[Object], Awaitable[None]] | None = None
        self.objects: dict[str, dict[Key, Object]] = {main: {} for main in mains}
        self.acknowledged: list[str] = []
        self.lost = asyncio.Event()
        self.instance = ""
        self._label, self._drain_label = labels
        self._mains = tuple(mains)
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy: set[Key] = set()
        self._going = asyncio.Event()
        self._going.set()
        self._changed = asyncio.Event()
        self._version = ""
        self._renewed_at = 0.0

    # -- what a test does with it --------------------------------------------

    async def start(self, *, same_pod: bool = False) -> None:
        """Acquire the lease, however long that takes, and begin to work.

        `same_pod`: as a container that was restarted, which has the instance that it had.
        """
        if not (same_pod and self.instance):
            self.instance = f"{self.name}-{next(_instances)}"
        self.lost.clear()
        self._going.set()
        await self._acquire()
        self._spawn(self._renew())
        for main in self._mains:
            self._spawn(self._watch(main))

    async def crash(self) -> None:
        """Be gone from one moment to the next; the lease stays as it is."""
        tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        self._busy.clear()
        self.objects = {main: {} for main in self._mains}
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def release(self) -> None:
        """Leave in order: stop working, then let the lease go."""
        await self.crash()
        await self._write_ours({"holderIdentity": "", "leaseDurationSeconds": 1})

    async def restart(self, *, release: bool = False) -> None:
        """Come back under the same name, as another process."""
        await (self.release() if release else self.crash())
        await self.start()

    def pause(self) -> None:
        """Stand still as a stopped process does; `resume` goes on where it was."""
        self._going.clear()

    def resume(self) -> None:
        """Go on."""
        self._going.set()

    async def usurp(self) -> None:
        """Have the lease say that this process made its last write."""
        while True:
            lease = await self.client.get(LEASES, self.name, self.namespace)
            said = f"{self.instance}@{lease['spec']['renewTime']}"
            metadata = {"resourceVersion": lease["metadata"]["resourceVersion"], "annotations": {INSTANCE: said}}
            try:
                await self.client.patch(LEASES, self.name, {"metadata": metadata}, self.namespace)
            except AdminError as error:
                if error.status != 409:
                    raise
            else:
                return

    # -- lease ---------------------------------------------------------------

    async def _acquire(self) -> None:
        observed: Any = None
        observed_at = 0.0
        while True:
            lease = await self.client.find(LEASES, self.name, self.namespace)
            now = asyncio.get_running_loop().time()
            spec = (lease or {}).get("spec") or {}
            if spec != observed:
                observed, observed_at = spec, now
            if lease is None or self._may_take(lease) or now >= observed_at + (spec.get("leaseDurationSeconds") or 15):
                if await self._take(lease):
                    return
            else:
                await asyncio.sleep(self.script.retry_seconds)

    def _may_take(self, lease: Object) -> bool:
        holder = lease["spec"].get("holderIdentity") or ""
        if holder != self.name:
            return holder == ""
        return self.script.go_like or _instance_of(lease) in ("", self.instance)

    async def _take(self, lease: Object | None) -> bool:
        spec = (lease or {}).get("spec") or {}
        changed_hands = bool(lease) and spec.get("holderIdentity") != self.name
        now = _now()
        body: Object = {
            "metadata": {"name": self.name, "labels": {RING_LABEL: self.ring}, "annotations": self._annotations(now)},
            "spec": {
                "holderIdentity": self.name,
                "leaseDurationSeconds": self.script.lease_seconds,
                "acquireTime": now,
                "renewTime": now,
                "leaseTransitions": (spec.get("leaseTransitions") or 0) + int(changed_hands),
            },
        }
        try:
            if lease is None:
                self._note(asyncio.get_running_loop().time(), await self.client.create(LEASES, body, self.namespace))
            else:
                body["metadata"]["resourceVersion"] = lease["metadata"]["resourceVersion"]
                await self._write(body)
        except AdminError as error:
            if error.status == 409:
                return False
            raise
        return True

    async def _renew(self) -> None:
        while True:
            await self._going.wait()
            try:
                async with asyncio.timeout(self.script.lease_seconds):
                    if not await self._write_ours({}):
                        break
            except TROUBLE:
                if self._hold() <= self.script.lease_seconds / 3:
                    break
                await asyncio.sleep(self.script.retry_seconds)
            else:
                await asyncio.sleep(self.script.renew_seconds)
        self.lost.set()
        me = asyncio.current_task()
        for task in self._tasks - {me}:
            task.cancel()

    async def _write_ours(self, spec: Object) -> bool:
        """Write the lease as long as it is ours, whatever version it has by now; False: it is another's."""
        while True:
            now = _now()
            metadata = {"resourceVersion": self._version, "annotations": self._annotations(now)}
            body = {"metadata": metadata, "spec": {**spec, "renewTime": now}}
            try:
                await self._write(body)
            except AdminError as error:
                if error.status not in (404, 409):
                    raise
                lease = await self.client.find(LEASES, self.name, self.namespace)
                if lease is None or not self._is_mine(lease):
                    return False
                self._version = lease["metadata"]["resourceVersion"]
            else:
                return True

    def _is_mine(self, lease: Object) -> bool:
        same = self.script.go_like or _instance_of(lease) == self.instance
        return same and lease["spec"].get("holderIdentity") == self.name

    def _annotations(self, now: str) -> dict[str, str]:
        """What a write that sets renewTime to `now` says besides; client-go says nothing, and leaves what it finds."""
        return {} if self.script.go_like else {INSTANCE: f"{self.instance}@{now}", FENCED: now}

    async def _write(self, body: Object) -> None:
        began = asyncio.get_running_loop().time()
        self._note(began, await self.client.patch(LEASES, self.name, body, self.namespace))

    def _note(self, began: float, lease: Object) -> None:
        self._version, self._renewed_at = lease["metadata"]["resourceVersion"], began

    def _hold(self) -> float:
        return self._renewed_at + self.script.lease_seconds - asyncio.get_running_loop().time()

    # -- objects -------------------------------------------------------------

    async def _watch(self, main: str) -> None:
        def saw(objects: list[Object]) -> bool:
            self._saw(main, objects)
            return False

        await self.client.eventually(main, saw, labels=f"{self._label}={self.name}", timeout_seconds=3600)

    def _saw(self, main: str, objects: list[Object]) -> None:
        self.objects[main] = {
            (main, obj["metadata"].get("namespace", ""), obj["metadata"]["name"]): obj for obj in objects
        }
        for key, obj in self.objects[main].items():
            if self._drains(obj) and key not in self._busy:
                self._busy.add(key)
                self._spawn(self._acknowledge(key))
        self._changed.set()
        self._changed = asyncio.Event()

    async def _acknowledge(self, key: Key) -> None:
        if self.acknowledge_after:
            await asyncio.sleep(self.acknowledge_after)
        main, namespace, name = key
        while (obj := self.objects[main].get(key)) is not None and self._drains(obj):
            changed = self._changed
            await self.acknowledging.wait()
            await self._going.wait()
            if self.before_acknowledging is not None:
                await self.before_acknowledging(obj)
            if not self.script.go_like and self._hold() <= 0:
                break
            version = obj["metadata"]["resourceVersion"]
            patch = {"metadata": {"resourceVersion": version, "labels": {self._label: None, self._drain_label: None}}}
            try:
                await self.client.patch(main, name, patch, namespace or None)
            except AdminError as error:
                if error.status == 404:
                    break
                if error.status == 409:
                    await changed.wait()
                else:
                    await asyncio.sleep(self.script.retry_seconds)
            except (aiohttp.ClientError, OSError, TimeoutError):
                await asyncio.sleep(self.script.retry_seconds)
            else:
                self.acknowledged.append(name)
                break
        self._busy.discard(key)

    def _drains(self, obj: Object) -> bool:
        return self._drain_label in obj["metadata"].get("labels", {})

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)


def _instance_of(lease: Object) -> str | None:
    """Who wrote this renewTime, if it says so."""
    instance, mark, said_at = (lease["metadata"].get("annotations") or {}).get(INSTANCE, "").rpartition("@")
    return instance if mark and said_at == lease["spec"].get("renewTime") else None


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

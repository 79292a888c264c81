"""What a ring's world looks like from outside, and whether it is as it should be.

Everything here reads the API server as an administrator and works out anew
where objects belong; of the sharder only the hash ring is taken over, which has
tests of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp

from localcluster import AdminClient
from localcluster.admin import AdminError, path_of
from sharder.core.hashring import HashRing
from shardsdk.protocol.labels import parse_ring_name
from tests.integration.scripted import LEASES, RING_LABEL, Object

RINGS: Final = "sharding.timebertt.dev/v1alpha1/clusterrings"
WEBHOOKS: Final = "admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
#: How long what changes is left to change further before the whole world is compared again.
LOOK_SECONDS: Final = 0.2
#: How long it is not looked at if nothing is said to change: a watch tells of nothing that was gone when it began.
BLIND_SECONDS: Final = 5.0
#: For what takes seconds when nothing else runs.  No longer: what was missed and is found by some later pass would do.
TIMEOUT_SECONDS: Final = 60.0
NOBODY: Final = "-"

_CONTAINERS: Final = {"containers": [{"name": "main", "image": "example.invalid/none"}]}
_APP: Final = {"app": "main"}
#: What an object needs besides its metadata.
BODIES: Final[dict[str, Object]] = {
    "apps/v1/deployments": {
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": _APP},
            "template": {"metadata": {"labels": _APP}, "spec": _CONTAINERS},
        }
    },
    "v1/pods": {"spec": _CONTAINERS},
}


@dataclass(frozen=True, slots=True)
class Family:
    """A main resource (`v1/secrets`) with its kind, and the resources that it controls."""

    main: str
    kind: str
    controlled: tuple[str, ...] = ()
    namespaced: bool = True

    @property
    def group(self) -> str:
        """API group; empty for the core group."""
        return group_and_plural(self.main)[0]

    def render(self) -> Object:
        """The entry in a ring's `spec.resources`."""
        group, plural = group_and_plural(self.main)
        controlled = [dict(zip(("group", "resource"), group_and_plural(each), strict=True)) for each in self.controlled]
        return {"group": group, "resource": plural, "controlledResources": controlled}


SECRETS: Final = Family("v1/secrets", "Secret", ("v1/configmaps",))
LONE_SECRETS: Final = Family("v1/secrets", "Secret")
DEPLOYMENTS: Final = Family("apps/v1/deployments", "Deployment", ("apps/v1/replicasets",))
REPLICASETS: Final = Family("apps/v1/replicasets", "ReplicaSet", ("v1/pods",))


def group_and_plural(resource: str) -> tuple[str, str]:
    """`apps/v1/deployments` → `apps`, `deployments`."""
    version, _, plural = resource.rpartition("/")
    return (version.partition("/")[0] if "/" in version else ""), plural


@dataclass
class History:
    """Where objects were, in order: a shard's name, followed by `*` while draining, or `-` for nobody."""

    stops: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def of(self, name: str) -> list[str]:
        return self.stops[name]


@dataclass
class Ring:
    """A ring of one test, in its namespace."""

    admin: AdminClient
    name: str
    namespace: str
    families: tuple[Family, ...]
    numbers: Any = field(default_factory=lambda: itertools.count(1))

    @property
    def labels(self) -> tuple[str, str]:
        """Shard label and drain label."""
        labels = parse_ring_name(self.name)
        return labels.shard, labels.drain

    # -- objects -------------------------------------------------------------

    async def create(
        self, resource: str = "v1/secrets", *, namespace: str | None = None, dry_run: bool = False, **metadata: Any
    ) -> Object:
        """Create an object; without `name` or `generateName` it gets a name."""
        if not metadata.keys() & {"name", "generateName"}:
            metadata["name"] = f"object-{next(self.numbers)}"
        query = {"dryRun": "All"} if dry_run else None
        path = path_of(resource, self.namespace_of(resource, namespace))
        body = {**self._type_of(resource), **BODIES.get(resource, {}), "metadata": metadata}
        made: Object = await self.admin.request("POST", path, body=body, query=query)
        return made

    def _type_of(self, resource: str) -> Object:
        """What types that are not built in have to say of themselves."""
        kinds = {family.main: family.kind for family in self.families}
        return {"apiVersion": resource.rpartition("/")[0], "kind": kinds[resource]} if resource in kinds else {}

    async def create_child(self, owner: Object, resource: str = "v1/configmaps", **metadata: Any) -> Object:
        """Create an object that `owner` controls."""
        namespace = owner["metadata"].get("namespace")
        return await self.create(resource, namespace=namespace, ownerReferences=self.reference_to(owner), **metadata)

    def reference_to(self, owner: Object) -> list[Object]:
        """Owner references of a child that `owner`, a main object of this ring, controls."""
        meta = owner["metadata"]
        kind = owner.get("kind") or self.families[0].kind
        family = next(each for each in self.families if each.kind == kind)
        version = family.main.rpartition("/")[0]
        return [{"apiVersion": version, "kind": kind, "name": meta["name"], "uid": meta["uid"], "controller": True}]

    async def create_families(self, each: int, shards: Collection[str], *, children: int = 1) -> dict[str, str]:
        """Create main objects of the first family, `each` for every one of `shards`, with children.

        Returns where each of them belongs if those are the ring's shards.
        """
        family, places = self.families[0], self.pick_names(each, shards)

        async def create(name: str) -> None:
            owner = await self.create(family.main, name=name)
            for resource in family.controlled * children:
                await self.create_child(owner, resource)

        await asyncio.gather(*map(create, places))
        return places

    def pick_names(self, each: int, shards: Collection[str]) -> dict[str, str]:
        """Names of main objects of which `each` belong to every one of `shards`, with the shard."""
        ring, left, places = HashRing(shards), dict.fromkeys(shards, each), dict[str, str]()
        for number in self.numbers:
            name = f"object-{number}"
            shard = ring.owner(self.key({"metadata": {"name": name, "namespace": self.namespace}}))
            if shard is not None and left[shard]:
                left[shard] -= 1
                places[name] = shard
            if not any(left.values()):
                break
        return places

    async def get(self, name: str, resource: str = "v1/secrets") -> Object:
        return await self.admin.get(resource, name, self.namespace_of(resource))

    async def patch(self, name: str, body: Object, resource: str = "v1/secrets") -> Object:
        return await self.admin.patch(resource, name, body, self.namespace_of(resource))

    async def objects(self, resource: str = "v1/secrets") -> list[Object]:
        objects = await self.admin.list(resource, self.namespace_of(resource))
        return [obj for obj in objects if obj["metadata"]["name"] != "kube-root-ca.crt"]

    def namespace_of(self, resource: str, namespace: str | None = None) -> str | None:
        scoped = any(resource == family.main and not family.namespaced for family in self.families)
        return None if scoped else namespace or self.namespace

    def shard_of(self, obj: Object) -> str | None:
        shard: str | None = (obj["metadata"].get("labels") or {}).get(self.labels[0])
        return shard

    def drains(self, obj: Object) -> bool:
        return self.labels[1] in (obj["metadata"].get("labels") or {})

    def where(self, obj: Object) -> str:
        return (self.shard_of(obj) or NOBODY) + ("*" if self.drains(obj) else "")

    async def shards_of(self, resource: str = "v1/secrets") -> dict[str, str | None]:
        """Shard of each object of the test's namespace, by name."""
        return {obj["metadata"]["name"]: self.shard_of(obj) for obj in await self.objects(resource)}

    async def versions(self, *resources: str) -> dict[tuple[str, str], str]:
        """resourceVersion of each object."""
        return {
            (resource, obj["metadata"]["name"]): obj["metadata"]["resourceVersion"]
            for resource in resources or self.resources
            for obj in await self.objects(resource)
        }

    @property
    def resources(self) -> tuple[str, ...]:
        """Main and controlled resources."""
        return tuple(each for family in self.families for each in (family.main, *family.controlled))

    async def until(
        self, name: str, holds: Callable[[Object], Any], resource: str = "v1/secrets", timeout: float = TIMEOUT_SECONDS
    ) -> Object:
        """Wait until something true can be said of one object; returns the object."""

        def look(objects: list[Object]) -> Object | None:
            return next((obj for obj in objects if obj["metadata"]["name"] == name and holds(obj)), None)

        return await self.admin.eventually(resource, look, self.namespace_of(resource), timeout_seconds=timeout)

    async def until_on(self, name: str, shard: str | None, resource: str = "v1/secrets") -> Object:
        """Wait until the object belongs to `shard` and does not drain."""
        return await self.until(name, lambda obj: self.where(obj) == (shard or NOBODY), resource)

    @asynccontextmanager
    async def history(self, resource: str = "v1/secrets") -> AsyncIterator[History]:
        """Write down where each object goes meanwhile."""
        history, began = History(), asyncio.Event()

        def look(objects: list[Object]) -> bool:
            for obj in objects:
                stops = history.stops[obj["metadata"]["name"]]
                if not stops or stops[-1] != self.where(obj):
                    stops.append(self.where(obj))
            began.set()
            return False

        watch = self.admin.eventually(resource, look, self.namespace_of(resource), timeout_seconds=3600)
        task = asyncio.ensure_future(watch)
        try:
            await began.wait()
            yield history
            # What was written until now is to be in it.
            last = {obj["metadata"]["name"]: self.where(obj) for obj in await self.objects(resource)}
            while any(history.stops[name][-1:] != [where] for name, where in last.items()):
                await asyncio.sleep(0.01)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def key(self, obj: Object, family: Family | None = None) -> str:
        """The ring key of a main object, of the first family unless told otherwise."""
        family, meta = family or self.families[0], obj["metadata"]
        namespace = meta.get("namespace", "") if family.namespaced else ""
        return f"{family.group}/{family.kind}/{namespace}/{meta['name']}"

    # -- the world -----------------------------------------------------------

    async def available(self) -> set[str]:
        """Shards that hold their lease, in one namespace only."""
        leases = await self.admin.list(LEASES, labels=f"{RING_LABEL}={self.name}")
        held = [
            lease["metadata"]["name"]
            for lease in leases
            if lease["spec"].get("holderIdentity") == lease["metadata"]["name"]
        ]
        return {name for name in held if held.count(name) == 1}

    async def faults(self, *, strict: bool = True) -> list[str]:
        """Everything that is not as it should be; `strict`: also objects that are only on another shard than theirs."""
        available = await self.available()
        ring = HashRing(available)
        found: list[str] = []
        for family in self.families:
            owners = {obj["metadata"]["uid"]: obj for obj in await self.objects(family.main)}
            for obj in owners.values():
                found += self._main_faults(family, obj, available, ring if strict else None)
            for resource in family.controlled:
                for child in await self.objects(resource):
                    found += self._child_faults(resource, child, owners)
        return found

    def _main_faults(self, family: Family, obj: Object, available: set[str], ring: HashRing | None) -> list[str]:
        meta, shard = obj["metadata"], self.shard_of(obj)
        what = f"{family.main} {meta['name']}"
        if self.drains(obj):
            return [f"{what} drains on {shard}"]
        if shard is None:
            return [f"{what} has no shard"]
        if shard not in available:
            return [f"{what} is on {shard}, which is not available"]
        if ring is not None and shard != (owner := ring.owner(self.key(obj, family))):
            return [f"{what} is on {shard}, not on {owner}"]
        return []

    def _child_faults(self, resource: str, child: Object, owners: dict[str, Object]) -> list[str]:
        references = child["metadata"].get("ownerReferences") or []
        owner = next((owners[each["uid"]] for each in references if each["uid"] in owners), None)
        if owner is None or self.shard_of(child) == self.shard_of(owner):
            return []
        name = child["metadata"]["name"]
        return [f"{resource} {name} is on {self.shard_of(child)}, its owner on {self.shard_of(owner)}"]

    async def in_place(
        self, shards: Collection[str] | None = None, *, timeout: float = TIMEOUT_SECONDS, strict: bool = True
    ) -> None:
        """Wait until every object is on exactly the available shard where it belongs, children with their owners.

        `shards`: and until these are the available ones.
        """
        faults: list[str] = []

        async def look() -> bool:
            available = await self.available()
            if shards is not None and available != set(shards):
                faults[:] = [f"{sorted(available)} are available"]
            else:
                faults[:] = await self.faults(strict=strict)
            return not faults

        try:
            async with asyncio.timeout(timeout):
                if await look():
                    return
                async with self._changing() as changed:
                    while not await look():
                        with contextlib.suppress(TimeoutError):
                            await asyncio.wait_for(changed.wait(), BLIND_SECONDS)
                        changed.clear()
                        await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            raise TimeoutError(f"not in place after {timeout} s: {'; '.join(faults[:20])}") from None

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator[asyncio.Event]:
        """What is set whenever one of the ring's leases or objects has changed."""
        changed = asyncio.Event()

        async def follow(resource: str, namespace: str | None, labels: str) -> None:
            while True:
                with contextlib.suppress(AdminError, aiohttp.ClientError, ConnectionError):
                    async for _ in self.admin.changes(resource, namespace, labels=labels):
                        changed.set()
                changed.set()
                await asyncio.sleep(LOOK_SECONDS)

        followed: list[tuple[str, str | None, str]] = [(LEASES, None, f"{RING_LABEL}={self.name}")]
        followed += [(each, self.namespace_of(each), "") for each in dict.fromkeys(self.resources)]
        tasks = [asyncio.create_task(follow(*each)) for each in followed]
        try:
            yield changed
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # -- the ring's own object -----------------------------------------------

    async def update(self, spec: Object) -> Object:
        """Replace parts of the spec (a merge patch)."""
        return await self.admin.patch(RINGS, self.name, {"spec": spec})

    def condition_of(self, ring: Object, kind: str) -> Object:
        conditions = (ring.get("status") or {}).get("conditions") or []
        found: Object = next((each for each in conditions if each["type"] == kind), {})
        current = found.get("observedGeneration") == ring["metadata"]["generation"]
        return found if current else {}

    async def condition(
        self, kind: str, status: str = "True", timeout: float = TIMEOUT_SECONDS, *, says: str = ""
    ) -> Object:
        """Wait until the ring's present generation has the condition, with a message that says so; returns it."""

        def look(rings: list[Object]) -> Object | None:
            for ring in rings:
                if ring["metadata"]["name"] == self.name:
                    found = self.condition_of(ring, kind)
                    return found if found.get("status") == status and says in found["message"] else None
            return None

        return await self.admin.eventually(RINGS, look, timeout_seconds=timeout)

    async def events(self, reason: str, timeout: float = TIMEOUT_SECONDS) -> Object:
        """Wait for an Event about the ring; returns it."""

        def look(events: list[Object]) -> Object | None:
            for event in events:
                if event["involvedObject"]["name"] == self.name and event["reason"] == reason:
                    return event
            return None

        return await self.admin.eventually("v1/events", look, "default", timeout_seconds=timeout)

    async def in_force(self, resource: str = "v1/secrets") -> None:
        """Return once the webhook labels what is created; the ring needs an available shard."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while self.shard_of(await self.create(resource, dry_run=True, name="probe")) is None:
                await asyncio.sleep(LOOK_SECONDS)

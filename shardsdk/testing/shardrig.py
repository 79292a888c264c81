"""A shard with its API server in memory; `drive` runs it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Final, TypeVar, overload

from shardsdk.admission.webhook import Webhook
from shardsdk.cache.objects import Request, controller_reference, metadata_of
from shardsdk.errors import ConfigurationError
from shardsdk.events.recorder import EVENTS
from shardsdk.kinds import Kind, body_of, resource_of
from shardsdk.kube.api import Operation
from shardsdk.kube.clock import Clock
from shardsdk.kube.definitions import CRDS
from shardsdk.kube.selectors import Selector
from shardsdk.lease.leadership import Election
from shardsdk.lease.timings import LeaseTimings
from shardsdk.process.checks import check_indexes
from shardsdk.process.manager import Manager
from shardsdk.protocol.labels import DRAIN_VALUE, RingLabels, parse_ring_name
from shardsdk.protocol.objects import LEASES, GroupResource, Resource
from shardsdk.queueing.workers import Outcome
from shardsdk.reconcile.spec import ControllerSpec, Scope
from shardsdk.testing.admission import WebhooksAsked
from shardsdk.testing.memory import EVERYTHING, Change, MemoryServer, Object
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.noted import Noted
from shardsdk.testing.shardprocess import UNSHOWN, ShardProcess, move_objects
from shardsdk.testing.typed import Served, resource_named, schemas_of, shown_as, without_status
from shardsdk.testing.unchanged import indexing_only
from shardsdk.testing.virtual import VirtualClock

#: Ring, first shard and namespace of a rig.
RING: Final = "test"
SHARD: Final = "shard-1"
NAMESPACE: Final = "default"
#: So many turns without news, a millisecond apart, and nothing is left to do.  Turns
#: and not time, so that a slow machine sees the same.
_QUIET_TURNS: Final = 200
_TURN_SECONDS: Final = 0.001
#: Whoever has not come to rest by then never will.
_MAX_TURNS: Final = 20_000

#: The lease is not what a rig is about: it is renewed so seldom that a story may go on for days.
_TIMINGS: Final = LeaseTimings(lease_duration=3600, renew_deadline=2400, retry_period=480)

K = TypeVar("K", bound=Kind)


class Rig:
    """A shard with its API server in memory: what a test arranges, and what it looks at."""

    def __init__(
        self,
        specs: Sequence[ControllerSpec[Any]],
        clock: Clock,
        rng: Random,
        like: Manager | None = None,
        webhooks: Sequence[Webhook] = (),
        remake: Callable[[], Sequence[ControllerSpec[Any]]] | None = None,
        only: Iterable[Resource | type[Kind]] | None = None,
    ) -> None:
        """`like`: its objects are cached and watched as this manager's would be; `webhooks` are asked about writes.

        `remake`: makes the controllers of a process that takes over; `None`: these again.  `only`: `served` of `drive`.
        """
        self.clock = clock
        asked = WebhooksAsked(webhooks)
        #: Warnings of webhooks: (webhook, warning).
        self.warnings: list[tuple[str, str]] = asked.warnings
        self.server: MemoryServer = MemoryServer(
            asked.admit, asked.admit_deletion, now=clock.now, schema_of=schemas_of(specs)
        )
        self.api: MemoryApi = MemoryApi(self.server, clock)
        served = Served()
        self.api.served = served
        served.extend(source.resource for spec in specs for source in spec.resources)
        if only is not None:
            served.extend(map(resource_named, only))
            defined = self.server.objects.setdefault(CRDS.group_resource, {})
            self.server.serves = lambda resource: served.has(resource, defined.values())
        self.server.without_status.update(without_status(specs))
        self.labels_of_ring: RingLabels = parse_ring_name(RING)
        self._noted: Noted = Noted()
        #: What each reconcile returned or raised, with the object's name, in order.
        self.outcomes: list[tuple[str, Outcome | Exception | None]] = self._noted.outcomes
        self._rng = rng
        self._changes = 0
        self.server.listeners += (self._count, self._noted.saw)
        self._main = {spec.main.resource.group_resource for spec in specs if spec.scope in (None, Scope.SHARDED)}
        #: Clients of unsharded work; what they write shows in `writes` as well.
        self._others: list[MemoryApi] = []
        self._leads: bool = any(spec.scope is Scope.LEADER for spec in specs)
        self._like = like
        self._remake: Callable[[], Sequence[ControllerSpec[Any]]] = remake or (lambda: specs)
        self._shard: ShardProcess = self._make_shard(SHARD, specs)

    # -- arranging ------------------------------------------------------------

    @overload
    def create(self, thing: Resource, body: Mapping[str, Any]) -> Object: ...

    @overload
    def create(self, thing: K) -> K: ...

    def create(self, thing: Resource | Kind, body: Mapping[str, Any] | None = None) -> Any:
        """Create an object, with its status; one of a main resource is the shard's unless it carries a shard label.

        Raises: Forbidden, Invalid, with what a webhook says.
        """
        if isinstance(thing, Kind):
            return shown_as(type(thing), self.create(resource_of(thing), body_of(thing)))
        resource, body = thing, body or {}
        if resource not in self.api.served:
            self.api.served.append(resource)
        metadata = dict(body.get("metadata") or {})
        if resource.namespaced:
            metadata.setdefault("namespace", NAMESPACE)
        if resource.group_resource in self._main:
            metadata["labels"] = {self.labels_of_ring.shard: self._shard.name, **(metadata.get("labels") or {})}
        return self.server.arrange(resource, {**body, "metadata": metadata})

    @overload
    def create_child(
        self,
        main: Resource | type[Kind],
        owner: str,
        resource: Resource,
        body: Mapping[str, Any],
        namespace: str = NAMESPACE,
    ) -> Object: ...

    @overload
    def create_child(
        self, main: Resource | type[Kind], owner: str, resource: K, *, namespace: str = NAMESPACE
    ) -> K: ...

    def create_child(
        self,
        main: Resource | type[Kind],
        owner: str,
        resource: Resource | Kind,
        body: Mapping[str, Any] | None = None,
        namespace: str = NAMESPACE,
    ) -> Any:
        """Create an object that the object `owner` of `main` controls, as this shard would.

        The owner is in `namespace`, and so is the child unless it says otherwise.
        """
        if isinstance(resource, Kind):
            made = self.create_child(main, owner, resource_of(resource), body_of(resource), namespace)
            return shown_as(type(resource), made)
        of_main, body = resource_named(main), body or {}
        reference = controller_reference(of_main, metadata_of(self.get(of_main, owner, namespace)))
        metadata = {**({"namespace": namespace} if resource.namespaced else {}), **(body.get("metadata") or {})}
        metadata["labels"] = {self.labels_of_ring.shard: self._shard.name, **(metadata.get("labels") or {})}
        return self.create(resource, {**body, "metadata": {**metadata, "ownerReferences": [reference]}})

    def patch(
        self, kind: Resource | type[Kind], name: str, body: Mapping[str, Any], namespace: str = NAMESPACE
    ) -> Object:
        """Change an object by a merge patch, as somebody else does; a status in it goes where it is written."""
        resource = resource_named(kind)
        return self.server.rearrange(resource, name, _where(resource, namespace), body)

    def delete(self, kind: Resource | type[Kind], name: str, namespace: str = NAMESPACE) -> None:
        """Delete an object; finalizers hold it as they do in a cluster."""
        resource = resource_named(kind)
        self.server.delete(resource, name, _where(resource, namespace))

    def drain(self, kind: Resource | type[Kind], name: str, namespace: str = NAMESPACE) -> None:
        """Ask the shard for an object, as the sharder does."""
        self.patch(kind, name, {"metadata": {"labels": {self.labels_of_ring.drain: DRAIN_VALUE}}}, namespace)

    async def settle(self) -> None:
        """Wait until nothing happens any more; what is only due later (RequeueAfter, long backoffs) is not waited for.

        Raises: AssertionError when it never comes to rest.
        """
        quiet, before, written = 0, self._progress(), len(self.writes)
        for _ in range(_MAX_TURNS):
            await asyncio.sleep(_TURN_SECONDS)
            now = self._progress()
            quiet = quiet + 1 if now == before and not self._noted.running and not self._writing() else 0
            before = now
            if quiet >= _QUIET_TURNS:
                return
        running = f", {self._noted.running} have not ended" if self._noted.running else ""
        last = "; ".join(" ".join(each) for each in dict.fromkeys(self.writes[written:][-2:]))
        raise AssertionError(
            f"the controller does not come to rest; it reconciled {len(self.outcomes)} times{running}:"
            f" {self._noted.last}" + (f", the last writes are {last}" if last else "")
        )

    # -- crashing -------------------------------------------------------------

    async def crash(self, after_writes: int = 0) -> None:
        """Kill the shard's process where it is, as `kill -9` does; `after_writes`: once it has made so many from now.

        Of those the last was carried out, and nobody learned of it.  Nothing that the process had begun goes on, and
        it cleans nothing up: its lease stays, and its objects wait, until another one is there (`take_over`).

        Raises: AssertionError when it comes to rest before it has made so many writes, or has crashed before;
        ConfigurationError for controllers that are plain functions: threads cannot be killed.
        """
        if not isinstance(self.clock, VirtualClock):
            raise ConfigurationError("a shard whose reconciles are plain functions cannot crash: write them async")
        shard = self._shard
        if shard.crashed:
            raise AssertionError(f"{shard.name} has crashed before; the next is there after take_over()")
        before, made = self.api, len(self.writes)

        def crashed() -> None:
            self._noted.forget()
            self.api = before.anew()

        shard.kill_after(after_writes, crashed)
        try:
            await self.settle()
        finally:
            shard.spare()
        if not shard.crashed:
            raise AssertionError(f"{shard.name} came to rest after {len(self.writes) - made} writes")

    async def take_over(self) -> None:
        """Have another shard take over from the one that has crashed, and settle.

        As with a sharder it has the objects of the other one once that one's lease has run out: an hour later in
        virtual time.  What does not go by shards goes to it once it is elected, two hours later.

        Raises: AssertionError when none has crashed.
        """
        dead = self._shard
        if not dead.crashed:
            raise AssertionError(f"{dead.name} has not crashed")
        await self.clock.sleep(_TIMINGS.lease_duration)
        self._shard = self._make_shard(f"shard-{int(dead.name.rpartition('-')[2]) + 1}", self._remake())
        self._shard.start()
        await self.settle()
        move_objects(self.server, self.labels_of_ring, dead.name, self._shard.name)
        if self._leads:
            await self.clock.sleep(_TIMINGS.lease_duration)
        await self.settle()

    # -- looking --------------------------------------------------------------

    @overload
    def get(self, kind: Resource, name: str, namespace: str = NAMESPACE) -> Object: ...

    @overload
    def get(self, kind: type[K], name: str, namespace: str = NAMESPACE) -> K: ...

    def get(self, kind: Resource | type[Kind], name: str, namespace: str = NAMESPACE) -> Any:
        """One object, as it is stored, or as one of its kind.  Raises: NotFound."""
        resource = resource_named(kind)
        return shown_as(kind, self.server.get(resource, name, _where(resource, namespace)))

    @overload
    def find(self, kind: Resource, name: str, namespace: str = NAMESPACE) -> Object | None: ...

    @overload
    def find(self, kind: type[K], name: str, namespace: str = NAMESPACE) -> K | None: ...

    def find(self, kind: Resource | type[Kind], name: str, namespace: str = NAMESPACE) -> Any:
        """One object; `None`: there is none."""
        resource = resource_named(kind)
        found = self.server.find(resource, name, _where(resource, namespace))
        return None if found is None else self.get(kind, name, namespace)

    @overload
    def objects(self, kind: Resource, selector: Selector = EVERYTHING) -> list[Object]: ...

    @overload
    def objects(self, kind: type[K], selector: Selector = EVERYTHING) -> list[K]: ...

    def objects(self, kind: Resource | type[Kind], selector: Selector = EVERYTHING) -> list[Any]:
        """All objects of a kind, by name."""
        return [shown_as(kind, each) for each in self.server.select(resource_named(kind), None, selector)]

    @overload
    def children(
        self, main: Resource | type[Kind], owner: str, kind: Resource, namespace: str = NAMESPACE
    ) -> list[Object]: ...

    @overload
    def children(
        self, main: Resource | type[Kind], owner: str, kind: type[K], namespace: str = NAMESPACE
    ) -> list[K]: ...

    def children(
        self, main: Resource | type[Kind], owner: str, kind: Resource | type[Kind], namespace: str = NAMESPACE
    ) -> list[Any]:
        """The objects of a kind that the object `owner` of `main`, in `namespace`, controls, by name."""
        uid = metadata_of(self.get(resource_named(main), owner, namespace)).uid
        found = self.objects(resource_named(kind))
        controllers = ((each, metadata_of(each).controller) for each in found)
        return [shown_as(kind, each) for each, owned in controllers if owned is not None and owned.uid == uid]

    def labels(self, kind: Resource | type[Kind], name: str, namespace: str = NAMESPACE) -> dict[str, str]:
        """The labels of an object."""
        return dict(self.get(resource_named(kind), name, namespace)["metadata"].get("labels") or {})

    @property
    def writes(self) -> list[tuple[str, str, str]]:
        """(verb, resource, name) of every write but those of Events and leases, in order."""
        return [(each.verb, each.resource.plural, each.name) for each in self.sent]

    @property
    def sent(self) -> list[Operation[Any]]:
        """The same writes, with all that was sent: `body`, `subresource`, `field_manager`."""
        return [each for each in self.api.sent if each.resource.group_resource not in UNSHOWN]

    @property
    def events(self) -> list[tuple[str, str, str]]:
        """(object, reason, message) of every Event but those about leases."""
        found = self.server.objects.get(EVENTS.group_resource, {}).values()
        regarding = ((each, each["involvedObject"]) for each in found)
        lease = {"apiVersion": LEASES.api_version, "kind": LEASES.kind}.items()
        return [
            (whom["name"], each["reason"], each["message"]) for each, whom in regarding if not lease <= whom.items()
        ]

    def explain(self, kind: Resource | type[Kind], name: str, namespace: str = NAMESPACE) -> str:
        """What an object waits for, in a sentence for each of its controllers; for a story, while they run.

        assert "the last time with RuntimeError: full" in rig.explain(SECRETS, "a")
        """
        resource = resource_named(kind)
        found = self._manager.explain(Request(_where(resource, namespace) or "", name))
        told = [each.text for each in found if each.resource == resource.group_resource]
        if not told:
            raise AssertionError(f"no controller of {resource.plural} runs; ask in the story")
        return "\n".join(told)

    @property
    def failures(self) -> list[Exception]:
        """What reconciles raised, but for what asks for another look (Conflict), or says what is wrong (Permanent).

        Where the last looks at an object all ended so, the last of them; what mappings of watched objects raised comes
        last.
        """
        return self._noted.failures

    # -- inside ---------------------------------------------------------------

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the shard; `drive` does."""
        if not self._manager.controllers:  # an operator that has webhooks, and nothing else
            yield
            return
        self._shard.start()
        try:
            yield
            await self._shard.end()
        finally:
            await self._shard.cancel()

    @property
    def _manager(self) -> Manager:
        return self._shard.manager

    def _make_shard(self, name: str, specs: Sequence[ControllerSpec[Any]]) -> ShardProcess:
        election = Election("test", NAMESPACE, identity=f"of {name}") if self._leads else None
        of_shard: dict[str, Any] = {"ring": RING, "shard": name, "fenced": True} if self._main else {}
        manager = Manager(
            **of_shard,
            election=election,
            namespace=NAMESPACE,
            timings=_TIMINGS,
            watch_namespace=self._like.watch_namespaces if self._like else None,
        )
        for resource, settings in (self._like.cached if self._like else {}).items():
            manager.cached[resource] = indexing_only(settings, self._noted.of_mappings.append)
        for spec in specs:
            manager.add(spec if spec.function is None else self._noted.watched(spec))
        check_indexes(manager.controllers, manager.cached)  # the log alone would tell
        return ShardProcess(name, manager, self.api, self._others, self._rng)

    def _progress(self) -> tuple[int, int, int]:
        """Changes whenever something has happened; renewals of the lease are nothing."""
        return self._changes, len(self.outcomes), len(self.api.lists)

    def _writing(self) -> int:
        return sum(api.inflight_writes for api in (self.api, *self._others))

    def _count(self, change: Change) -> None:
        self._changes += change.resource not in _UNOBSERVED


_UNOBSERVED: Final[frozenset[GroupResource]] = frozenset({LEASES.group_resource})


def _where(resource: Resource, namespace: str) -> str | None:
    """The namespace of an object of a resource; `None`: it is in none."""
    return namespace if resource.namespaced else None

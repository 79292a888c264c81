"""Drive a controller with objects, on an API server in memory, until nothing is left to do.

    def test_every_secret_gets_its_config_map() -> None:
        rig = drive(CONTROLLER, [(SECRETS, {"metadata": {"name": "a"}})])
        assert rig.get(CONFIGMAPS, "a-seen")["data"] == {"by": "me"}
        assert rig.writes == [("create", "configmaps", "a-seen")]

What runs is the whole shard as in production (lease, caches, queue, guard,
drains, expectations, Events), only the API server and the time are others.  A
longer story is a function that is told the rig:

    async def story(rig: Rig) -> None:
        rig.drain(SECRETS, "a")
        await rig.settle()
        assert not rig.labels(SECRETS, "a")

    drive(CONTROLLER, [(SECRETS, {"metadata": {"name": "a"}})], story)

A manager can be driven instead, with what it caches (`Manager.cache`), and an
operator, with objects of its kinds:

    rig = drive(operator, [Website("home", WebsiteSpec("<h1>hi</h1>"))])
    assert rig.get(ConfigMap, "home").data == {"index.html": "<h1>hi</h1>"}

Guarantees (tests/unit/shardsdk/testing/test_rig.py): async reconciles run in virtual time, so
that hours pass at once and each run takes the same steps; what a reconcile
or a mapping raises comes out of `drive`.  Plain functions run in threads and real time.

Refuses what an API server in memory refuses: schemas, defaulting, permissions,
garbage collection.  `shardsdk.testing.ControlPlane` is for those.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Any, Final, TypeVar, overload

from shardsdk.admission.webhook import Webhook
from shardsdk.cache.objects import Request, controller_reference, metadata_of
from shardsdk.events.recorder import EVENTS
from shardsdk.kinds import Kind, body_of, resource_of
from shardsdk.kube.api import Operation
from shardsdk.kube.clock import Clock, SystemClock
from shardsdk.kube.selectors import Selector
from shardsdk.lease.leadership import Election
from shardsdk.lease.timings import LeaseTimings
from shardsdk.operator.operator import Operator
from shardsdk.process.manager import Manager
from shardsdk.process.process import ExitCode
from shardsdk.protocol.labels import DRAIN_VALUE, RingLabels, parse_ring_name
from shardsdk.protocol.objects import LEASES, GroupResource, Resource
from shardsdk.queueing.workers import Outcome
from shardsdk.reconcile.spec import ControllerSpec, Scope
from shardsdk.reconcile.threads import is_async
from shardsdk.testing.admission import WebhooksAsked
from shardsdk.testing.memory import EVERYTHING, Change, MemoryServer, Object
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.noted import Noted
from shardsdk.testing.rights import RightsCheck
from shardsdk.testing.typed import Served, resource_named, schemas_of, shown_as, without_status
from shardsdk.testing.virtual import Deadlock, Livelock, run_virtual
from shardsdk.testing.world import world_in

#: Ring, shard and namespace of a rig.
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
#: An object to begin with: its resource and its body, or one of a kind.
Given = tuple[Resource, Mapping[str, Any]] | Kind
Story = Callable[["Rig"], Awaitable[object]]


def drive(
    controller: ControllerSpec[Any] | Sequence[ControllerSpec[Any]] | Manager | Operator,
    objects: Iterable[Given] = (),
    story: Story | None = None,
    *,
    raises: bool = True,
    rights: bool = True,
    seed: int = 1,
) -> Rig:
    """Run a shard with these controllers until nothing is left to do, then `story`, then stop it; returns what is left.

    Of a manager, or an operator, its controllers run, sharded or not as it would run them, on its watched namespaces
    and on what its `cache` was told; its tasks do not.  An operator's webhooks are asked about every write.
    Objects go to the namespace `default` unless they say otherwise; those of
    main resources are the shard's unless they carry a shard label.

    Raises: what a reconcile raised first, but Conflict and Permanent, or a mapping of watched objects, unless `raises`
    is False; whatever `story` raises; Livelock, which names the last reconcile, if time ceases to pass; RightsLack for
    what `shardsdk manifests` grants no such operator, unless `rights` is False.
    """
    if isinstance(controller, Operator):
        check = RightsCheck(controller, NAMESPACE, RING) if rights else None
        with controller.declaring.ended_meanwhile():
            return _drive(controller.manager(), objects, story, raises, seed, controller.webhooks(), check)
    return _drive(controller, objects, story, raises, seed)


def _drive(
    controller: ControllerSpec[Any] | Sequence[ControllerSpec[Any]] | Manager,
    objects: Iterable[Given], story: Story | None, raises: bool, seed: int,
    webhooks: Sequence[Webhook] = (), check: RightsCheck | None = None,
) -> Rig:  # fmt: skip
    manager = controller if isinstance(controller, Manager) else None
    specs = _specs_of(controller)

    rigs = list[Rig]()

    async def run(clock: Clock) -> Rig:
        rig = Rig(specs, clock, Random(seed), manager, webhooks)
        rigs.append(rig)
        rig.api.on_request = check.note if check else None
        for each in objects:
            rig.create(*((each,) if isinstance(each, Kind) else each))
        async with rig.running():
            await rig.settle()
            if story is not None:
                await story(rig)
                await rig.settle()
        if raises and rig.failures:
            raise rig.failures[0]
        if check:
            check.check()
        return rig

    if all(is_async(spec.function) for spec in specs):
        try:
            return run_virtual(run)
        except (Deadlock, Livelock) as error:
            raise type(error)(f"{rigs[0]._noted.last}: {error}") from None
    return asyncio.run(run(SystemClock()))


class Rig:
    """A shard with its API server in memory: what a test arranges, and what it looks at."""

    def __init__(
        self,
        specs: Sequence[ControllerSpec[Any]],
        clock: Clock,
        rng: Random,
        like: Manager | None = None,
        webhooks: Sequence[Webhook] = (),
    ) -> None:
        """`like`: its objects are cached and watched as this manager's would be; `webhooks` are asked about writes."""
        self.clock = clock
        asked = WebhooksAsked(webhooks)
        #: Warnings of webhooks: (webhook, warning).
        self.warnings: list[tuple[str, str]] = asked.warnings
        self.server: MemoryServer = MemoryServer(
            asked.admit, asked.admit_deletion, now=clock.now, schema_of=schemas_of(specs)
        )
        self.api: MemoryApi = MemoryApi(self.server, clock)
        served: list[Resource] = Served()
        self.api.served = served
        served.extend(source.resource for spec in specs for source in spec.resources)
        self.server.without_status.update(without_status(specs))
        self.labels_of_ring: RingLabels = parse_ring_name(RING)
        self._noted: Noted = Noted()
        #: What each reconcile returned or raised, with the object's name, in order.
        self.outcomes: list[tuple[str, Outcome | Exception | None]] = self._noted.outcomes
        self._rng = rng
        self._changes = 0
        self.server.listeners.append(self._count)
        self._main = {spec.main.resource.group_resource for spec in specs if spec.scope in (None, Scope.SHARDED)}
        #: Clients of unsharded work; what they write shows in `writes` as well.
        self._others: list[MemoryApi] = []
        leads = any(spec.scope is Scope.LEADER for spec in specs)
        election = Election("test", NAMESPACE, identity="me", timings=_TIMINGS) if leads else None
        self._manager = Manager(
            RING if self._main else None,
            election=election,
            shard=SHARD,
            namespace=NAMESPACE,
            fenced=True,
            timings=_TIMINGS,
            watch_namespace=like.watch_namespaces if like else None,
        )
        self._manager.cached.update(like.cached if like else {})
        for spec in specs:
            self._manager.add(spec if spec.function is None else self._noted.watched(spec))

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
            self.api.served.append(resource_of(type(thing)))
            return shown_as(type(thing), self.create(resource_of(thing), body_of(thing)))
        resource, body = thing, body or {}
        metadata = dict(body.get("metadata") or {})
        if resource.namespaced:
            metadata.setdefault("namespace", NAMESPACE)
        if resource.group_resource in self._main:
            metadata["labels"] = {self.labels_of_ring.shard: SHARD, **(metadata.get("labels") or {})}
        return self.server.arrange(resource, {**body, "metadata": metadata})

    def create_child(self, main: Resource, owner: str, resource: Resource, body: Mapping[str, Any]) -> Object:
        """Create an object that the object `owner` of `main` controls, as this shard would."""
        reference = controller_reference(main, metadata_of(self.get(main, owner)))
        metadata = dict(body.get("metadata") or {})
        metadata["labels"] = {self.labels_of_ring.shard: SHARD, **(metadata.get("labels") or {})}
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
        quiet, before = 0, self._progress()
        for _ in range(_MAX_TURNS):
            await asyncio.sleep(_TURN_SECONDS)
            now = self._progress()
            quiet = quiet + 1 if now == before and not self._noted.running and not self._writing() else 0
            before = now
            if quiet >= _QUIET_TURNS:
                return
        raise AssertionError(f"the controller does not come to rest; it reconciled {len(self.outcomes)} times")

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
    def children(self, main: Resource | type[Kind], owner: str, kind: Resource) -> list[Object]: ...

    @overload
    def children(self, main: Resource | type[Kind], owner: str, kind: type[K]) -> list[K]: ...

    def children(self, main: Resource | type[Kind], owner: str, kind: Resource | type[Kind]) -> list[Any]:
        """The objects of a kind that the object `owner` of `main` controls, by name."""
        uid = metadata_of(self.get(resource_named(main), owner)).uid
        found = self.objects(resource_named(kind))
        controllers = ((each, metadata_of(each).controller) for each in found)
        return [shown_as(kind, each) for each, owned in controllers if owned is not None and owned.uid == uid]

    def labels(self, kind: Resource | type[Kind], name: str, namespace: str = NAMESPACE) -> dict[str, str]:
        """The labels of an object."""
        return dict(self.get(resource_named(kind), name, namespace)["metadata"].get("labels") or {})

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
    def writes(self) -> list[tuple[str, str, str]]:
        """(verb, resource, name) of every write but those of Events and leases, in order."""
        return [(each.verb, each.resource.plural, each.name) for each in self.sent]

    @property
    def sent(self) -> list[Operation[Any]]:
        """The same writes, with all that was sent: `body`, `subresource`, `field_manager`."""
        return [each for each in self.api.sent if each.resource.group_resource not in _UNSHOWN]

    @property
    def events(self) -> list[tuple[str, str, str]]:
        """(object, reason, message) of every Event but those about leases."""
        found = self.server.objects.get(EVENTS.group_resource, {}).values()
        regarding = ((each, each["involvedObject"]) for each in found)
        lease = {"apiVersion": LEASES.api_version, "kind": LEASES.kind}.items()
        return [
            (whom["name"], each["reason"], each["message"]) for each, whom in regarding if not lease <= whom.items()
        ]

    @property
    def failures(self) -> list[Exception]:
        """What reconciles raised, but for what asks for another look (Conflict), or says what is wrong (Permanent).

        What mappings of watched objects raised comes last.
        """
        return self._noted.failures

    # -- inside ---------------------------------------------------------------

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the shard; `drive` does."""
        if not self._manager.controllers:  # an operator that has webhooks, and nothing else
            yield
            return
        process = asyncio.create_task(self._manager.run_async(world_in(self.api, self._others, self._rng)))
        try:
            yield
            self._manager.stopping.set()
            code = await process
            if code is not ExitCode.OK:
                raise AssertionError(f"the shard ended with {code.name}; the log says why")
        finally:
            process.cancel()
            await asyncio.wait([process])

    def _progress(self) -> tuple[int, int, int]:
        """Changes whenever something has happened; renewals of the lease are nothing."""
        return self._changes, len(self.outcomes), len(self.api.lists)

    def _writing(self) -> int:
        return sum(api.inflight_writes for api in (self.api, *self._others))

    def _count(self, change: Change) -> None:
        self._changes += change.resource not in _UNOBSERVED


_UNOBSERVED: Final[frozenset[GroupResource]] = frozenset({LEASES.group_resource})
#: What every shard writes besides what its controllers do.
_UNSHOWN: Final[frozenset[GroupResource]] = frozenset({EVENTS.group_resource, LEASES.group_resource})


def _specs_of(given: ControllerSpec[Any] | Sequence[ControllerSpec[Any]] | Manager) -> list[ControllerSpec[Any]]:
    """What is to run; a manager's controllers say where."""
    if isinstance(given, ControllerSpec):
        return [given]
    if not isinstance(given, Manager):
        return list(given)
    scope = Scope.SHARDED if given.ring is not None else Scope.LEADER if given.election else Scope.EVERYWHERE
    return [spec if spec.scope else replace(spec, scope=scope) for spec in given.controllers]


def _where(resource: Resource, namespace: str) -> str | None:
    return namespace if resource.namespaced else None

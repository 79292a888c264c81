"""What a reconcile is handed: the object, its children, and what to do with them."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Generic, TypeVar, overload

from shardsdk.cache.cache import Cache
from shardsdk.cache.identity import Identity
from shardsdk.cache.objects import Request, controller_reference, is_controlled, request_of
from shardsdk.errors import ConfigurationError, LeaseLost, NotFound, NotServed, ShardingError
from shardsdk.events.recorder import EventRecorder, EventType, Regarding
from shardsdk.kinds import Kind, resource_of
from shardsdk.kinds.conditions import Condition, ConditionStatus
from shardsdk.kube.api import Api, Fence
from shardsdk.kube.clock import Clock, SystemClock
from shardsdk.logs import BoundLogger
from shardsdk.protocol.objects import GroupResource, ObjectMeta, Resource
from shardsdk.protocol.verdict import Verdict
from shardsdk.queueing.workers import RequeueAfter
from shardsdk.reconcile.applied import Applied, AppliedFor
from shardsdk.reconcile.applying import apply
from shardsdk.reconcile.calls import Made, noted
from shardsdk.reconcile.lookup import find_cache, owned_cache
from shardsdk.reconcile.named import check_class, names_of, namespace_for
from shardsdk.reconcile.ownapi import OwnApi
from shardsdk.reconcile.ownloop import OwnLoop
from shardsdk.reconcile.passedover import check_patch
from shardsdk.reconcile.serverside import field_owner_of

T = TypeVar("T")
R = TypeVar("R")
K = TypeVar("K", bound=Kind)


class Context(Generic[T]):
    """One reconcile of one object.

    `object` is a copy of the freshest version in the cache, yours to change;
    `metadata` its metadata; `request` its name; `api` the client for all that has
    no verb here; `controller` the controller's name; `identity` which shard this
    is (`None`: no sharding); `judge` what is done with an object of the main resource as it
    is shown.  What is to be awaited (`apply`, `get`, `patch`,
    `delete`, calls of `api`) a plain function, which runs in a thread, passes to
    `run`.  `event` tells people, who see it under `kubectl describe`.
    """

    __slots__ = (
        "_applied",
        "_applies",
        "_caches",
        "_calls",
        "_cancelled",
        "_fence",
        "_log",
        "_loop",
        "_readable",
        "_recorder",
        "_told",
        "api",
        "clock",
        "controller",
        "field_owner",
        "identity",
        "judge",
        "main",
        "metadata",
        "object",
        "request",
        "requeued",
    )

    def __init__(
        self,
        request: Request,
        thing: T,
        metadata: ObjectMeta,
        main: Resource,
        api: Api,
        caches: Mapping[GroupResource, Cache[Any]],
        recorder: EventRecorder | None = None,
        *,
        controller: str = "",
        identity: Identity | None = None,
        clock: Clock | None = None,
        readable: Mapping[GroupResource, Cache[Any]] | None = None,
        fence: Fence | None = None,
        applied: Applied | None = None,
        field_owner: str = "",
        told: Callable[[], bool] = lambda: False,
        judge: Callable[[object], Verdict] = lambda _: Verdict.RECONCILE,
    ) -> None:
        self.request: Request = request
        self.object: T = thing
        self.metadata: ObjectMeta = metadata
        self.main: Resource = main
        self.api: Api = api
        self.controller: str = controller or str(main.group_resource)
        self.identity: Identity | None = identity
        self.judge: Callable[[object], Verdict] = judge
        self.clock: Clock = clock or SystemClock()
        #: How this controller signs the fields that it applies, whichever shard it runs on.
        self.field_owner: str = field_owner or field_owner_of(self.controller)
        #: What `requeue` was told last.
        self.requeued: RequeueAfter | None = None
        #: What it was asked for that is to be awaited.
        self._calls: list[Made] = []
        self._applied = applied
        self._applies: AppliedFor | None = None
        self._log: BoundLogger | None = None
        self._caches = caches
        self._readable = caches if readable is None else readable
        self._recorder = recorder
        self._fence = fence
        self._loop = OwnLoop()
        self._cancelled = threading.Event()
        self._told = told

    @property
    def version(self) -> str:
        """The object's resourceVersion as far as this reconcile knows: as read, or as its own last write gave it."""
        return self.api.version if isinstance(self.api, OwnApi) else self.metadata.resource_version

    @property
    def name(self) -> str:
        """The object's name."""
        return self.request.name

    @property
    def namespace(self) -> str:
        """The object's namespace; empty for a cluster-scoped one."""
        return self.request.namespace

    @property
    def log(self) -> BoundLogger:
        """A logger named like the controller; its lines name the object, and facts are given by keyword.

        ctx.log.info("applied", replicas=3)
        """
        if self._log is None:
            facts = {"controller": self.controller, "namespace": self.namespace, "object": self.name}
            shard = {} if self.identity is None else {"shard": self.identity.shard}
            self._log = BoundLogger(logging.getLogger(self.controller), {**facts, **shard})
        return self._log

    # -- children ----------------------------------------------------------

    def owns(self, resource: Resource) -> bool:
        """Whether the controller was declared to own objects of `resource`."""
        return resource.group_resource in self._caches

    @overload
    def children(self, kind: type[K]) -> list[K]: ...

    @overload
    def children(self, kind: Resource) -> list[Any]: ...

    def children(self, kind: type[K] | Resource) -> list[Any]:
        """The objects of a kind (or resource) that this object controls, as the cache has them, by name.

        Raises: ConfigurationError when the controller does not own that kind.
        """
        cache = owned_cache(self._caches, kind, self.controller, self.main)
        who = self.main, self.request, self.metadata.uid
        found: list[Any] = self._loop.read(lambda: cache.controlled_by(self.metadata.uid))
        return [each for each in found if is_controlled(each, *who)]

    @overload
    def child(self, kind: type[K], name: str = "") -> K | None: ...

    @overload
    def child(self, kind: Resource, name: str = "") -> Any | None: ...

    def child(self, kind: type[K] | Resource, name: str = "") -> Any | None:
        """The object of a kind with this name (by default this object's) that this object controls; `None`: none is.

        Raises: ConfigurationError when the controller does not own that kind.
        """
        wanted = name or self.name
        return next((child for child in self.children(kind) if request_of(child).name == wanted), None)

    @noted
    async def apply(self, thing: K, *, force: bool = True) -> K:
        """Have this child exist with exactly these fields, by server-side apply; as it is then.

        It is called like this object, and in its namespace, unless it says otherwise; this object becomes its
        controller.  A field that was applied before and is not now goes away.  Nothing is sent when the cache shows
        what this controller applied last, and that was the same.  With `force` fields of other owners are taken
        over, else they are a Conflict.  A status is not applied; only what was read may have one.

            page = await ctx.apply(ConfigMap(data={"index.html": html}))

        Raises: ConfigurationError (its kind is none that the controller owns, it is where this object cannot own it,
        or it has no name, as another one that this reconcile has applied), AlreadyOwned, Conflict, Invalid.
        """
        cache = owned_cache(self._caches, resource_of(thing), self.controller, self.main, "applies")
        self._where(cache.resource, thing.metadata.namespace)
        applied, signed = self._applying(), self.field_owner
        return await apply(self.api, cache, thing, applied, signed, self.main, self.metadata, force=force)

    def note_applied(self, resource: Resource, name: str, namespace: str = "") -> None:
        """Say that this reconcile applies an object by other means than `apply`, which is not to be pruned then.

        For those who send it by `api`, under `field_owner`.
        """
        child = resource.group_resource, Request(namespace, name)

        def note() -> None:
            applies = self._applying()
            applies.names.add(child)
            applies.forget(child)

        self._loop.read(note)  # which changes it for `apply`, too

    @property
    def applied(self) -> AppliedFor | None:
        """What this reconcile has applied; `None`: nothing."""
        return self._applies

    # -- any objects ---------------------------------------------------------

    @noted
    async def get(self, kind: type[K], name: str = "", namespace: str = "") -> K | None:
        """An object as the API server has it now, by default of this object's name and namespace; `None`: gone.

        What the controller owns or watches is in caches, which cost nothing: `child`, `cache`.

        Raises: NotServed (the API server does not know its type: the CustomResourceDefinition is not there).
        """
        check_class(kind, "get")
        resource = resource_of(kind)
        try:
            return await self.api.get(resource, name or self.name, self._where(resource, namespace), model=kind)
        except NotServed:
            raise  # it may be there all the same
        except NotFound:
            return None

    @noted
    async def patch(
        self, kind: type[K], name: str, changes: Mapping[str, Any], *, namespace: str = "", subresource: str = ""
    ) -> K:
        """Change an object by a merge patch, as on the wire; in this object's namespace unless it says otherwise.

            await ctx.patch(Deployment, "home", {"spec": {"paused": True}})

        Raises: ConfigurationError (nothing would come of it: a status without `subresource="status"`, a field by its
        name in Python), NotFound, Conflict, Invalid.
        """
        check_class(kind, "patch")
        resource = resource_of(kind)
        check_patch(kind, changes, subresource)
        where = self._where(resource, namespace)
        self._forget(resource, name, where)
        return await self.api.patch(resource, name, where, changes, model=kind, subresource=subresource)

    @noted
    async def delete(self, kind: type[Kind] | Kind, name: str = "", namespace: str = "") -> bool:
        """Delete an object, given by kind and name or as it was read (then only that very one); `False`: it is gone.

        So it is where the API server does not know its type (any more), which a clean-up is not to wait for.

        Raises: ConfigurationError without a name, or with another one than the object has; Conflict (it is another one
        by now).
        """
        resource, uid = resource_of(kind), None
        if not isinstance(kind, type):
            name, namespace = names_of(kind, name, namespace, "delete")
            uid = kind.metadata.uid or None
        where = self._where(resource, namespace)
        self._forget(resource, name, where)
        try:
            # Said by name: the API server's own default for Jobs leaves their pods behind.
            await self.api.delete(resource, name, where, uid=uid, propagation="Background")
        except NotServed as error:
            self.log.info("Nothing deleted: the API server does not know such objects", error=str(error))
            return False
        except NotFound:
            return False
        return True

    @overload
    def cache(self, kind: type[K]) -> Cache[K]: ...

    @overload
    def cache(self, kind: Resource) -> Cache[Any]: ...

    def cache(self, kind: type[K] | Resource) -> Cache[Any]:
        """The cache of a kind (or resource) that the controller is for, owns or watches; it hands out copies.

        In a plain function too, where each call of it waits for the event loop, on which caches change.

        Raises: ConfigurationError when the controller has nothing to do with that kind.
        """
        return self._loop.shared(find_cache(self._readable, kind, self.controller))

    def read(self, read: Callable[[], R]) -> R:
        """The answer of `read()`, asked on the event loop's thread.  Raises: ConfigurationError in a forked process."""
        return self._loop.read(read)

    def controller_reference(self) -> dict[str, Any]:
        """The entry of a child's `ownerReferences` that makes this object its controller."""
        return controller_reference(self.main, self.metadata)

    def event(self, event_type: EventType, reason: str, message: str, *, about: Kind | None = None) -> None:
        """Record an Event about this object, or `about` another.

        `reason` is a constant in CamelCase, `message` a sentence.

        It is written later, counted together with its repeats, and dropped
        when there are too many.
        """
        recorder = self._recorder
        if recorder is not None:
            resource, metadata = (self.main, self.metadata) if about is None else (resource_of(about), about.metadata)
            regarding = Regarding.of(resource, metadata)
            self._loop.read(lambda: recorder.event(regarding, event_type, reason, message))

    def condition(self, condition_type: str, holds: bool | None, reason: str, message: str = "") -> Condition:
        """A condition for this object's status; `None`: nobody knows whether it holds.

        `reason` is a word in CamelCase, `message` a sentence for people.

        Raises: ConfigurationError for another `holds`.
        """
        if holds not in (True, False, None):
            raise ConfigurationError(f"ctx.condition({condition_type!r}, {holds!r}, …): give True, False or None")
        status = {True: ConditionStatus.TRUE, False: ConditionStatus.FALSE, None: ConditionStatus.UNKNOWN}[holds]
        return Condition(condition_type, status, reason, message, observed_generation=self.metadata.generation or None)

    def requeue(self, *, after: float) -> RequeueAfter:
        """Have this object reconciled again in `after` seconds, whatever this reconcile returns.

        Zero or less, a moment that has passed: after its backoff.  Raises: ConfigurationError for no finite number.
        """
        self.requeued = RequeueAfter(after)
        return self.requeued

    @property
    def remaining_seconds(self) -> float:
        """For how long this reconcile may still write, for those who write by another client than `api`.

        Zero or less: not any more, as when it is `cancelled`; infinity: no lease stands behind it.
        """
        if self.cancelled or self._loop.forked:
            return -math.inf
        return math.inf if self._fence is None else self._fence.remaining()

    @property
    def writes_left(self) -> int | None:
        """How many writes this reconcile may still send by `api`; `None`: any number."""
        return self.api.writes_left if isinstance(self.api, OwnApi) else None

    @property
    def cancelled(self) -> bool:
        """Whether the reconcile is to stop, or has ended; what takes long looks at it now and then.

        One that was cancelled stays so, however it goes on.
        """
        return self._cancelled.is_set() or self._told()

    def cancel(self) -> None:
        """Have `cancelled` say yes, and every further `run` fail."""
        self._cancelled.set()

    def run(self, call: Coroutine[Any, Any, R]) -> R:
        """Wait for a call of `api` in a plain function.

        Raises: LeaseLost once the reconcile was cancelled or has ended, ConfigurationError in an async function, which
        would wait for itself, and in a process that was forked, and whatever the call raises.
        """
        try:
            self._loop.check_waits()
            if self.cancelled:
                raise LeaseLost(f"reconcile of {self.request} was cancelled or has ended; it must not write any more")
        except ShardingError:
            call.close()
            raise
        return self._loop.wait(call)

    # -- inside ------------------------------------------------------------

    def _where(self, resource: Resource, namespace: str) -> str | None:
        return namespace_for(resource, namespace, self.main, self.request)

    def _forget(self, resource: Resource, name: str, namespace: str | None) -> None:
        """What is written by other means is no longer as it was applied."""
        child, applies = (resource.group_resource, Request(namespace or "", name)), self._applying()
        applies.fail(child)
        applies.forget(child)

    def _applying(self) -> AppliedFor:
        if self._applies is None:
            self._applies = (Applied() if self._applied is None else self._applied).of(self.metadata.uid)
        return self._applies

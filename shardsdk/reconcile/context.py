"""What a reconcile is handed: the object, the client, its children."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from shardsdk.cache.cache import Cache
from shardsdk.cache.identity import ShardIdentity
from shardsdk.cache.objects import Request, controller_reference, request_of
from shardsdk.errors import LeaseLost
from shardsdk.events.recorder import EventRecorder, EventType, Regarding
from shardsdk.kube.api import Api, Fence
from shardsdk.kube.clock import Clock, SystemClock
from shardsdk.protocol.objects import GroupResource, ObjectMeta, Resource
from shardsdk.reconcile.ownapi import OwnApi

T = TypeVar("T")
R = TypeVar("R")


class Context(Generic[T]):
    """One reconcile of one object.

    `object` is a copy of the freshest version in the cache, yours to change;
    `metadata` its metadata; `request` its name; `api` the client to write with;
    `controller` the controller's name; `identity` which shard this is (`None`: no
    sharding).  In a plain function (which runs in a thread) wrap calls of `api`
    in `run`.  `event` tells people, who see it under `kubectl describe`.
    """

    __slots__ = (
        "_caches",
        "_cancelled",
        "_fence",
        "_loop",
        "_readable",
        "_recorder",
        "_thread",
        "api",
        "clock",
        "controller",
        "identity",
        "main",
        "metadata",
        "object",
        "request",
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
        identity: ShardIdentity | None = None,
        clock: Clock | None = None,
        readable: Mapping[GroupResource, Cache[Any]] | None = None,
        fence: Fence | None = None,
    ) -> None:
        self.request: Request = request
        self.object: T = thing
        self.metadata: ObjectMeta = metadata
        self.main: Resource = main
        self.api: Api = api
        self.controller: str = controller or str(main.group_resource)
        self.identity: ShardIdentity | None = identity
        self.clock: Clock = clock or SystemClock()
        self._caches = caches
        self._readable = caches if readable is None else readable
        self._recorder = recorder
        self._fence = fence
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._cancelled = threading.Event()

    @property
    def version(self) -> str:
        """The object's resourceVersion as far as this reconcile knows: as read, or as its own last write gave it."""
        return self.api.version if isinstance(self.api, OwnApi) else self.metadata.resource_version

    def owns(self, resource: Resource) -> bool:
        """Whether the controller was declared to own objects of `resource`."""
        return resource.group_resource in self._caches

    def children(self, resource: Resource) -> list[Any]:
        """The objects of `resource` that this object controls, as the cache has them.

        Raises: KeyError when the controller does not own that resource.
        """
        cache = self._caches[resource.group_resource]
        found: list[Any] = self._on_loop(lambda: cache.controlled_by(self.metadata.uid))
        return found

    def child(self, resource: Resource, name: str) -> Any | None:
        """The object of `resource` with this name that this object controls; `None`: the cache has none.

        Raises: KeyError when the controller does not own that resource.
        """
        return next((child for child in self.children(resource) if request_of(child).name == name), None)

    def cache(self, resource: Resource) -> Cache[Any]:
        """The cache of a resource that the controller is for, owns or watches; it hands out copies.

        In a plain function, read by `context.read(lambda: cache.by_index(...))`: caches change on the event loop.

        Raises: KeyError when the controller has nothing to do with that resource.
        """
        return self._readable[resource.group_resource]

    def read(self, read: Callable[[], R]) -> R:
        """The answer of `read()`, asked on the event loop's thread."""
        return self._on_loop(read)

    def controller_reference(self) -> dict[str, Any]:
        """The entry of a child's `ownerReferences` that makes this object its controller."""
        return controller_reference(self.main, self.metadata)

    def event(self, event_type: EventType, reason: str, message: str) -> None:
        """Record an Event about this object: `reason` a constant in CamelCase, `message` a sentence.

        It is written later, counted together with its repeats, and dropped
        when there are too many.
        """
        recorder = self._recorder
        if recorder is not None:
            regarding = Regarding.of(self.main, self.metadata)
            self._on_loop(lambda: recorder.event(regarding, event_type, reason, message))

    @property
    def remaining_seconds(self) -> float:
        """For how long this process may still write, for those who write by another client than `api`.

        Zero or less: not any more; infinity: no lease stands behind this reconcile.
        """
        return math.inf if self._fence is None else self._fence.remaining()

    @property
    def writes_left(self) -> int | None:
        """How many writes this reconcile may still send by `api`; `None`: any number."""
        return self.api.writes_left if isinstance(self.api, OwnApi) else None

    @property
    def cancelled(self) -> bool:
        """Whether the reconcile is to stop; a plain function that takes long looks at it now and then."""
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """Have `cancelled` say yes, and every further `run` fail."""
        self._cancelled.set()

    def run(self, call: Coroutine[Any, Any, R]) -> R:
        """Wait for a call of `api` in a plain function.

        Raises: LeaseLost once the reconcile was cancelled, and whatever the call raises.
        """
        if self.cancelled:
            call.close()
            raise LeaseLost(f"reconcile of {self.request} was cancelled; it must not write any more")
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()

    def _on_loop(self, read: Callable[[], R]) -> R:
        """Read on the event loop's thread: caches change there."""
        if threading.get_ident() == self._thread:
            return read()
        answer: Future[R] = Future()

        def call() -> None:
            try:
                answer.set_result(read())
            except BaseException as error:
                answer.set_exception(error)

        self._loop.call_soon_threadsafe(call)
        return answer.result()

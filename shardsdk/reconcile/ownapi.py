"""The client that one reconcile of a shard is handed.

It is the shard's fenced client, and on top of that:

- *Children are labelled.*  What it writes with the reconciled object as its
  controller (creates, applies, updates, adopts by a merge patch) carries this
  shard's label from that write on, so that it never needs the webhook, never
  belongs to another shard than its owner, and shows in this shard's cache.
- *The main object is written only as it was read.*  Writes on it carry the
  resourceVersion that the reconcile began with (or that its own last write
  gave), so that whatever happened meanwhile answers 409.
- *Writes are expected.*  The object is not reconciled again before the caches
  show what was written; after a creation without an answer, not before a fresh
  list of the children.
- *It ends with the reconcile.*  What that has started and not awaited writes no
  more, since the object may be another shard's; reads go on.

Refuses: to touch anything else; other objects are written as the caller says.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Protocol

from shardsdk.cache.identity import Identity
from shardsdk.cache.objects import Request
from shardsdk.errors import ConfigurationError, Conflict, ConnectionFailed, NotFound, TooManyWrites, may_be_executed
from shardsdk.kube.api import Api, Operation, T
from shardsdk.kube.identity import identify
from shardsdk.protocol.objects import GroupResource, ObjectMeta, Resource


def only_at(version: str) -> dict[str, str]:
    """What has a JSON patch refused with 409 unless the object is at `version`; of several the last counts.

    Not `test`: the API server answers that with 422.
    """
    return {"op": "add", "path": "/metadata/resourceVersion", "value": version}


class WriteRecorder(Protocol):
    """What is to be remembered of a reconcile's writes."""

    def wrote(self, resource: GroupResource, request: Request, version: str) -> None:
        """The object is now at `version`."""

    def deleting(self, resource: GroupResource, request: Request) -> Callable[[], None]:
        """The object as it is known is about to be deleted; call what is returned once it is."""

    def outcome_unknown(self) -> None:
        """A child may have been created without our knowing."""


class OwnApi(Api):
    """The API server for the reconcile of one object; see the module."""

    def __init__(
        self,
        api: Api,
        shard: Identity | None,
        main: Resource,
        owner: ObjectMeta,
        controlled: frozenset[GroupResource],
        recorder: WriteRecorder,
        max_writes: int | None = None,
    ) -> None:
        super().__init__(api.transport)
        self._labels = {} if shard is None else dict(shard.labels)
        self._main = main
        self._owner = owner
        self._version = owner.resource_version
        self._controlled = controlled
        self._recorder = recorder
        self._max_writes = max_writes
        self._loop = asyncio.get_running_loop()
        self._writes = 0
        self._ended = False
        #: The scopes of what is being written, and what is set when the last of it has been.
        self._under_way: set[asyncio.Timeout] = set()
        self._idle = asyncio.Event()

    @property
    def version(self) -> str:
        """The reconciled object's resourceVersion: as it was read, or as the last write of this reconcile gave it."""
        return self._version

    @property
    def writes_left(self) -> int | None:
        """How many writes this reconcile may still send, those not counted that met a Conflict; `None`: any number."""
        return None if self._max_writes is None else self._max_writes - self._writes

    async def send(self, operation: Operation[T]) -> T:
        """Carry out an operation; one that writes is counted, changed as the module says, and noted.

        Raises: ConfigurationError on another event loop than the reconcile's.
        """
        self._check_loop()
        if not operation.writes:
            return await self.transport.send(operation)
        async with self._write():
            self._count_write()
            try:
                return await (self._delete(operation) if operation.verb == "delete" else self._change(operation))
            except Conflict:
                self._writes -= 1  # it has changed nothing; whoever sends it anew is to have that counted once
                raise

    async def raw(self, method: str, path: str, **options: Any) -> bytes:
        """Any other request, as `Api.raw`; one that writes is refused once the reconcile has ended."""
        self._check_loop()
        if method.upper() in ("GET", "HEAD"):
            return await super().raw(method, path, **options)
        async with self._write():
            return await super().raw(method, path, **options)

    async def end(self) -> None:
        """Refuse all further writes, and return when those under way have ended.

        Of a reconcile that is cancelled, before its end or now, they are given up, and waited for all the same: until
        then nobody else may have the object.
        """
        self._ended, cancelled = True, None
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            self._give_up()  # it has been told already, and will not be told again
        while self._under_way:
            self._idle.clear()
            try:
                await self._idle.wait()
            except asyncio.CancelledError as error:
                cancelled = error
                self._give_up()
        if cancelled is not None:
            raise cancelled

    async def _change(self, operation: Operation[T]) -> T:
        child = self._is_child(operation)
        operation = self._prepare(operation, child=child)
        try:
            made = await self.transport.send(operation)
        except BaseException as error:
            # An update whose answer is lost has created nothing.
            if child and operation.verb != "update" and may_be_executed(error):
                self._recorder.outcome_unknown()
            raise
        self._note(operation.resource, made)
        return made

    async def _delete(self, operation: Operation[T]) -> T:
        request = Request(operation.namespace or "", operation.name)
        deleted = self._recorder.deleting(operation.resource.group_resource, request)
        if self._is_owner(operation.resource, request) and isinstance(operation.body, Mapping):
            read = {"resourceVersion": self._version, "uid": self._owner.uid}
            conditions = {**read, **operation.body.get("preconditions", {})}
            operation = replace(operation, body={**operation.body, "preconditions": conditions})
        try:
            made = await self.transport.send(operation)
        except NotFound:
            deleted()  # the cache does not know yet
            raise
        deleted()
        return made

    def _prepare(self, operation: Operation[T], *, child: bool) -> Operation[T]:
        """The write with the labels of a child, or the version of the reconciled object."""
        verb, body = operation.verb, operation.body
        request = Request(operation.namespace or "", operation.name)
        if verb != "create" and self._is_owner(operation.resource, request):
            if not isinstance(body, Mapping):
                return replace(operation, body=[*(body or ()), only_at(self._version)])
            return replace(operation, body=self._at_version(self._label(body) if verb == "update" else body))
        return replace(operation, body=self._label(body)) if child and isinstance(body, Mapping) else operation

    # -- inside ------------------------------------------------------------

    def _check_loop(self) -> None:
        if asyncio.get_running_loop() is not self._loop:
            raise ConfigurationError(
                f"the reconcile of {self._owner.name!r} calls its api on another event loop than its own, as by"
                " asyncio.run(…) in a plain function: wait there by ctx.run(…)"
            )

    @asynccontextmanager
    async def _write(self) -> AsyncIterator[None]:
        """A write is under way, in a scope of its own: the task that sends it may be there for others, too.

        Raises: ConfigurationError once the reconcile has ended, ConnectionFailed for a write that is given up.
        """
        if self._ended:
            raise ConfigurationError(
                f"the reconcile of {self._owner.name!r} has ended and writes no more: have it await all that it starts"
                " (asyncio.TaskGroup; gather leaves the others running when one fails), and let nothing keep its api"
            )
        scope = asyncio.timeout(None)
        try:
            async with scope:
                self._under_way.add(scope)
                try:
                    yield
                finally:
                    self._under_way.remove(scope)
                    if not self._under_way:
                        self._idle.set()
        except TimeoutError:
            if not scope.expired():
                raise
            raise ConnectionFailed(
                f"given up, since the reconcile of {self._owner.name!r} was cancelled; the write may be executed"
            ) from None

    def _give_up(self) -> None:
        for scope in self._under_way:
            if not scope.expired():
                scope.reschedule(asyncio.get_running_loop().time())

    def _count_write(self) -> None:
        if self.writes_left == 0:
            raise TooManyWrites(
                f"the reconcile of {self._owner.name!r} has sent {self._writes} writes, which is all that max_writes"
                " allows: return Requeue() to go on in another reconcile, or raise .options(max_writes=…)"
            )
        self._writes += 1

    def _is_owner(self, resource: Resource, request: Request) -> bool:
        return resource.group_resource == self._main.group_resource and request == (
            self._owner.namespace,
            self._owner.name,
        )

    def _is_child(self, operation: Operation[Any]) -> bool:
        if operation.resource.group_resource not in self._controlled or not isinstance(operation.body, Mapping):
            return False
        references = (operation.body.get("metadata") or {}).get("ownerReferences") or ()
        return any(reference.get("controller") and reference.get("uid") == self._owner.uid for reference in references)

    def _label(self, body: Mapping[str, Any]) -> dict[str, Any]:
        metadata = body.get("metadata") or {}
        if not self._labels:
            return {**body}
        labels = {**(metadata.get("labels") or {}), **self._labels}
        return {**body, "metadata": {**metadata, "labels": labels}}

    def _at_version(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The same write, refused with 409 unless the object is the one that was read."""
        metadata = body.get("metadata") or {}
        return {**body, "metadata": {**metadata, "resourceVersion": metadata.get("resourceVersion") or self._version}}

    def _note(self, resource: Resource, made: object) -> None:
        found = identify(made)
        request = Request(found.namespace, found.name)
        if not found.resource_version:
            if resource.group_resource in self._controlled:
                self._recorder.outcome_unknown()  # decoded to something that does not show its version
            return
        if self._is_owner(resource, request):
            self._version = found.resource_version
        self._recorder.wrote(resource.group_resource, request, found.resource_version)

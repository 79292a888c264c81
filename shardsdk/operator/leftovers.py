"""Conditions by which another process has said that an object failed for good: before a restart, or on another shard.

The field manager that has signed them tells, in `managedFields`, which caches do not
keep.  So their metadata are listed once, when the first object that shows a
condition which is False has been reconciled well; from then on nobody else writes
to the objects that are here, and what comes from another shard later, with such a
condition, is read by itself.  Any other object costs no request.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Iterable, Mapping, Set
from functools import partial
from math import inf
from typing import Any, Final

import msgspec

from shardsdk.cache.cache import Cache
from shardsdk.cache.objects import metadata_of
from shardsdk.errors import ShardingError
from shardsdk.kinds.conditions import Condition
from shardsdk.kube.reflector import Delta, EventKind
from shardsdk.objects.conditions import find_condition, part_of
from shardsdk.operator.pruning import Managed, ManagedFields
from shardsdk.protocol.verdict import Verdict
from shardsdk.reconcile.context import Context
from shardsdk.reconcile.serverside import field_owner_of

#: Until the list is tried again that has failed, and until an object is looked at again of which nothing could be told;
#: twice as long after each further failure, up to the second.
PAUSE_SECONDS: Final = 60.0
MAX_PAUSE_SECONDS: Final = 3600.0
#: For how long a reconcile waits for the list; a long one goes on without it.
WAIT_SECONDS: Final = 2.0


class Untold(Exception):
    """It cannot be told yet whether an object shows such a condition; `error` is None while that is found out.

    Inherited because exceptions are.
    """

    def __init__(self, error: ShardingError | None = None) -> None:
        super().__init__()
        self.error = error


def failure_owner(context: Context[Any]) -> str:
    """Who signs the conditions that tell of a failure for good."""
    return field_owner_of(context.field_owner, "/permanent")


class Leftovers:
    """Of one reconcile function: which objects may show a condition that another process of its has left."""

    def __init__(self) -> None:
        self._cache: Cache[Any] | None = None
        #: By uid; `None`: not listed yet.
        self._uids: set[str] | None = None
        #: Who came from another shard since the list began.
        self._came: set[str] = set()
        self._listing: asyncio.Task[None] | None = None
        self._not_before = -inf
        self._failures = 0

    async def read(self, context: Context[Any]) -> dict[str, Any] | None:
        """The reconciled object, if it may show such a condition; `None`: it does not.

        Raises: Untold, ApiError, ConnectionFailed.
        """
        if self._uids is None or context.cache(context.main) is not self._cache:
            await self._wait_for_list(context)
        uid = context.metadata.uid
        if uid not in (self._uids or ()) and uid not in self._came:
            return None
        found: dict[str, Any] | None = await context.api.find(
            context.main, context.name, context.namespace or None, model=dict
        )
        return found

    async def _wait_for_list(self, context: Context[Any]) -> None:
        """Raises: Untold."""
        if self._listing is None or self._listing.done():
            if context.clock.monotonic() < self._not_before:
                raise Untold
            # It is not one reconcile's, whose time may be limited to less than it takes.
            self._listing = asyncio.create_task(
                self._list(context), name="list-left-conditions", context=contextvars.Context()
            )
            self._listing.add_done_callback(_retrieve)
        listing = self._listing
        await asyncio.wait({listing}, timeout=WAIT_SECONDS)
        if not listing.done() or listing.cancelled():
            raise Untold
        if isinstance(error := listing.exception(), ShardingError):
            if context.clock.monotonic() < self._not_before:
                raise Untold  # whoever waited beside has said it
            pause = min(PAUSE_SECONDS * 2**self._failures, MAX_PAUSE_SECONDS)
            self._failures += pause < MAX_PAUSE_SECONDS
            self._not_before = context.clock.monotonic() + pause
            raise Untold(error)
        listing.result()

    def pause(self, context: Context[Any]) -> float:
        """After how many seconds an object is to be looked at again of which nothing could be told."""
        return max(self._not_before - context.clock.monotonic(), PAUSE_SECONDS)

    def forget(self, uid: str) -> None:
        """It shows none any more."""
        self._came.discard(uid)
        if self._uids is not None:
            self._uids.discard(uid)

    async def _list(self, context: Context[Any]) -> None:
        cache, owner, signed = context.cache(context.main), failure_owner(context), set[str]()
        # Of those who are no shard nobody else has the objects as long as they have them.
        if context.identity is not None and cache is not self._cache:
            cache.listen(partial(self._on_change, context.judge))
        self._cache = cache
        async for batch in cache.stream(Managed):
            signed |= {each.metadata.uid for each in batch if _signed(each.metadata.managed_fields or (), owner)}
        self._uids, self._failures = signed, 0

    def _on_change(self, judge: Callable[[object], Verdict], delta: Delta[Any]) -> None:
        uid = metadata_of(delta.object).uid
        # A list after a gap may show what another has had meanwhile without an end and a beginning.
        came = delta.old is None or judge(delta.old) is not Verdict.RECONCILE
        if delta.kind is EventKind.DELETED:
            self.forget(uid)
        elif came and untrue_types(delta.object):
            self._came.add(uid)


def untrue_types(thing: object) -> set[object]:
    """The types of the conditions of which an object, whatever it is decoded to, says that they are False."""
    conditions = getattr(getattr(thing, "status", None), "conditions", None)
    return types_of(conditions, "False") if conditions else set()


def types_of(conditions: object, value: str = "") -> set[object]:
    """The types of conditions (with `value`: of those with this status), whatever class they are of."""
    listed = conditions if isinstance(conditions, Iterable) else ()
    return {part_of(each, "type") for each in listed if not value or part_of(each, "status") == value}


def failures_in(context: Context[Any], found: Mapping[str, Any], types: Set[object]) -> list[Condition]:
    """The conditions of these types by which a process has said that the object failed, and nobody has changed since.

    None of a schema in which the list of conditions is one field: that does not tell whose each of them is.
    """
    managed = msgspec.convert(found["metadata"].get("managedFields") or [], list[ManagedFields])
    signed = _signed(managed, failure_owner(context))
    shown = [find_condition(found, each) for each in types if isinstance(each, str) and _key_of(each) in signed]
    # The reason of one that was written over by another message may be as an earlier version has signed it.
    return [
        each
        for each in shown
        if each is not None and each.status == "False" and (each.message or "f:reason" in signed[_key_of(each.type)])
    ]


def _signed(entries: Iterable[ManagedFields], owner: str) -> dict[str, Mapping[str, Any]]:
    """The fields of conditions whose message `owner` was the last to change, by the conditions' keys."""
    found = dict[str, Mapping[str, Any]]()
    for entry in entries:
        if (entry.manager, entry.operation, entry.subresource) == (owner, "Update", "status"):
            listed = (entry.fields_v1.get("f:status") or {}).get("f:conditions") or {}
            found |= {key: fields for key, fields in listed.items() if "f:message" in fields}
    return found


def _key_of(condition_type: str) -> str:
    """As the API server writes it in `managedFields`."""
    return "k:" + msgspec.json.encode({"type": condition_type}).decode()


def _retrieve(listing: asyncio.Task[None]) -> None:
    """Whoever waits for it says what became of it; the loop is not to say it again where nobody does."""
    if not listing.cancelled():
        listing.exception()

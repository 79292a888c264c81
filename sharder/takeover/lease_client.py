"""The writes by which the leader acquires, renews, gives back and deletes shards' leases.

Does: make each of them conditional on the version it was decided by, and count
a hold from before its write was sent.  Refuses: to decide; see `takeover`.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, ClassVar, Final

from msgspec import json

from sharder.core.shards import State
from sharder.takeover.records import NEVER, Record
from shardsdk.errors import (
    ApiError,
    BadRequest,
    ConnectionFailed,
    FenceClosed,
    Forbidden,
    Invalid,
    NotFound,
    RetryRule,
    ShardingError,
)
from shardsdk.kube.api import Api, Fence, PatchKind
from shardsdk.kube.clock import Clock
from shardsdk.kube.lapses import lapses_of
from shardsdk.kube.pace import AtMostEvery
from shardsdk.kube.selectors import Selector, equals
from shardsdk.protocol.labels import (
    FENCED_ANNOTATION,
    INSTANCE_ANNOTATION,
    LEASE_RING_LABEL,
    LEASE_STATE_LABEL,
    PLACEHOLDER_ANNOTATION,
    SHARDER_HOLDER,
)
from shardsdk.protocol.leases import Lease, margin_seconds, render_micro_time
from shardsdk.protocol.objects import LEASES, ObjectMeta
from shardsdk.protocol.ranges import HELD_RANGES_ANNOTATION

log = logging.getLogger(__name__)

#: A request about a lease must answer within this; the hold runs meanwhile.
REQUEST_SECONDS: Final = 5.0
#: What the API server answers a dry run within this, it would answer the write itself as soon.
PROMPT_SECONDS: Final = 1.0
#: How long a lease is left without its label that the API server refuses to label; also between two lines about that.
UNSHOWN_SECONDS: Final = 60.0
#: How long a namespace counts as closed, where nobody can start, after it was terminating or not there; it may be made.
CLOSED_SECONDS: Final = 60.0


class _NamespaceClosed(ShardingError):
    """Nothing can be created in a namespace, by nobody."""

    retry: ClassVar[RetryRule] = RetryRule.BACKOFF


class LeaseWriter:
    """Writes leases under the leadership's fence."""

    def __init__(self, api: Api, leader: Fence, clock: Clock) -> None:
        self._api = api
        self._leader = leader
        self._clock = clock
        #: When a namespace was last terminating, or not there.
        self._closed: dict[str, float] = {}
        self._unshown = AtMostEvery(UNSHOWN_SECONDS)

    async def find_all(self, shard: str) -> list[Lease]:
        """Every Lease called `shard` in whatever namespace, by a consistent list; also those of no ring."""
        selector = Selector(fields=equals("metadata.name", shard))
        return [lease async for page in self._api.pages(LEASES, selector=selector, model=Lease) for lease in page]

    async def show_state(self, record: Record, lease: Lease, state: State) -> None:
        """Label the lease with its shard's state, for people."""
        now = self._clock.monotonic()
        if lease.metadata.label(LEASE_STATE_LABEL) == state.value or now < record.unshown_until:
            return
        body = {"metadata": {"labels": {LEASE_STATE_LABEL: state.value}}}
        try:
            await self._patch(lease, body)
            record.unshown_until = NEVER
        except FenceClosed:
            raise
        except ShardingError as error:
            # Nobody decides by the label; the lease's next event tries again.
            if state is not State.READY:
                record.not_written()
            refused = isinstance(error, Forbidden | Invalid | BadRequest)
            if refused:
                record.unshown_until = now + UNSHOWN_SECONDS
            level = logging.WARNING if refused and self._unshown.passes(now) else logging.DEBUG
            log.log(level, "lease state not shown", extra={**_where(lease.metadata), "error": str(error)})

    async def may_acquire(self, record: Record, lease: Lease, seconds: float) -> bool:
        """Find out whether the API server would let us become the holder; False: we are not, whatever it says.

        Dry runs alone may fail, so once in a duration in which each did the write itself tells: then we may be.
        Raises: as `acquire`, where it would not.
        """
        meta, now = lease.metadata, self._clock.monotonic()
        try:
            await self._api.raw(
                "PATCH", LEASES.path(meta.namespace, meta.name), query=[("dryRun", "All")],
                headers={"Content-Type": PatchKind.MERGE.value}, body=json.encode(self._acquisition(lease, seconds)),
                timeout_seconds=REQUEST_SECONDS,
            )  # fmt: skip
        except ShardingError as error:
            overtaken = _was_overtaken(record, meta.resource_version, error)
            # The write goes right behind a dry run, or it might be the first to pass once nothing is refused any more.
            # One without answer says nothing of the moment; an answer does, and so does a conflict on and on.  Nor does
            # an error that took seconds: the write would wait as long, and pass once the shard's could, before those.
            # But it may be that dry runs alone are slow, and nobody would ever take over: then it goes now and then.
            at_once = isinstance(error, ApiError) and self._clock.monotonic() - now < PROMPT_SECONDS
            due = record.behind or not overtaken
            if not (due and record.is_real_try_due(now, lease.duration_seconds, at_once=at_once)):
                if overtaken:
                    return False
                raise
            return await self.acquire(record, lease, seconds)
        record.behind, record.refused = False, None
        record.writable_since = self._clock.monotonic()
        log.info("lease can be written again; its shard is given its duration to come back", extra=_where(meta))
        return False

    async def acquire(self, record: Record, lease: Lease, seconds: float) -> bool:
        """Become the holder of `lease` as it was seen; False: someone else wrote first."""
        body = self._acquisition(lease, seconds)
        record.hold_length = _whole(seconds)
        record.announced = False
        write = functools.partial(self._patch, lease, body)
        if not await self._confirm(
            record, _ring_of(lease), lease.metadata.name, lease.metadata.resource_version, write
        ):
            record.drop()
            return False
        record.progress_at = self._clock.monotonic()
        return True

    def _acquisition(self, lease: Lease, seconds: float) -> dict[str, Any]:
        taken = lease.holder != SHARDER_HOLDER
        transitions = lease.next_transition if taken else lease.spec.lease_transitions or 0
        return {
            "metadata": {
                "resourceVersion": lease.metadata.resource_version,
                # What the annotations promise, the shard promised, and what it held it holds no more.
                # The state goes along, because a patch of its own would cross the next renewal.
                "annotations": {
                    INSTANCE_ANNOTATION: None,
                    FENCED_ANNOTATION: None,
                    HELD_RANGES_ANNOTATION: None,
                    PLACEHOLDER_ANNOTATION: str(transitions) if lease.placeholder else None,
                },
                "labels": {LEASE_STATE_LABEL: State.DEAD.value},
            },
            "spec": self._held(seconds) | {"leaseTransitions": transitions},
        }

    async def renew(self, record: Record, lease: Lease) -> bool:
        """Hold on to a lease that is ours, by a write that begins now; False: not renewed."""
        version = record.version or lease.metadata.resource_version
        if not record.held or (not record.version and lease.holder != SHARDER_HOLDER):
            return False
        spec = self._held(record.hold_length)
        del spec["acquireTime"]
        body = {"metadata": {"resourceVersion": version}, "spec": spec}
        write = functools.partial(self._patch, lease, body)
        return await self._confirm(record, _ring_of(lease), lease.metadata.name, version, write)

    async def create(self, record: Record, ring: str, namespace: str, shard: str, seconds: float) -> bool:
        """Create a lease in our name; False: the shard was faster."""
        body = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {
                "name": shard,
                "namespace": namespace,
                "labels": {LEASE_RING_LABEL: ring, LEASE_STATE_LABEL: State.DEAD.value},
                "annotations": {PLACEHOLDER_ANNOTATION: "0"},
            },
            "spec": self._held(seconds) | {"leaseTransitions": 0},
        }
        record.hold_length = _whole(seconds)
        try:
            confirmed = await self._confirm(record, ring, shard, "", lambda: self._create_in(namespace, body))
        except _NamespaceClosed:
            confirmed = False  # no shard can start there either
            self._closed[namespace] = self._clock.monotonic()
        if not confirmed:
            record.drop()
            return False
        self._closed.pop(namespace, None)
        record.progress_at = self._clock.monotonic()
        return True

    async def _create_in(self, namespace: str, body: dict[str, Any]) -> Lease:
        try:
            return await self._api.create(LEASES, body, namespace, model=Lease, fences=(self._leader,))
        except (Forbidden, NotFound) as error:
            if isinstance(error, Forbidden) and not error.terminating:
                raise
            raise _NamespaceClosed(str(error)) from error

    def is_closed(self, namespace: str, seconds: float = CLOSED_SECONDS) -> bool:
        """Whether nothing could be created in a namespace in the last `seconds`: it is being deleted, or gone."""
        return self._clock.monotonic() - self._closed.get(namespace, NEVER) < seconds

    async def give_all_back(self, leases: Iterable[tuple[Record, Lease]]) -> None:
        """Give back those that are held, side by side."""
        giving = (self.give_back(record, lease) for record, lease in leases if record.held)
        for answer in await asyncio.gather(*giving, return_exceptions=True):
            if isinstance(answer, Exception):
                log.info("lease not given back, it runs out by itself", extra={"error": str(answer)})

    async def give_back(
        self, record: Record, lease: Lease, *, aside: AbstractAsyncContextManager[None] | None = None
    ) -> None:
        """Empty the holder, once nothing that was sent under the hold can be executed any more.

        `aside` is around the wait for that.
        """
        version = record.version or lease.metadata.resource_version
        record.drop()
        try:
            async with aside or nullcontext(), asyncio.timeout(record.hold_length or None):
                await self._api.writes_settled()
        except TimeoutError as error:
            raise ConnectionFailed("moves are still under way; the lease runs out by itself") from error
        await self._patch(
            lease,
            {
                "metadata": {"resourceVersion": version},
                "spec": {
                    "holderIdentity": "",
                    "leaseDurationSeconds": 1,
                    "renewTime": render_micro_time(self._clock.now()),
                },
            },
        )
        record.wrote(version, self._clock.monotonic())

    async def delete(self, lease: Lease) -> None:
        """Delete the lease, if it is still as it was seen."""
        meta = lease.metadata
        try:
            await self._api.delete(
                LEASES,
                meta.name,
                meta.namespace,
                resource_version=meta.resource_version,
                uid=meta.uid,
                fences=(self._leader,),
            )
        except NotFound:
            log.debug("lease was gone already", extra=_where(meta))

    def _held(self, seconds: float) -> dict[str, Any]:
        now = render_micro_time(self._clock.now())
        return {
            "holderIdentity": SHARDER_HOLDER,
            "leaseDurationSeconds": _whole(seconds),
            "acquireTime": now,
            "renewTime": now,
        }

    async def _patch(self, lease: Lease, body: dict[str, Any]) -> Lease:
        return await self._api.patch(
            LEASES,
            lease.metadata.name,
            lease.metadata.namespace,
            body,
            model=Lease,
            metadata_only=False,
            fences=(self._leader,),
            timeout_seconds=REQUEST_SECONDS,
        )

    async def _confirm(
        self, record: Record, ring: str, shard: str, against: str, write: Callable[[], Awaitable[Lease]]
    ) -> bool:
        sent_at, missed = self._clock.monotonic(), lapses_of(self._clock).seconds
        try:
            lease = await write()
        except FenceClosed:
            raise
        except ShardingError as error:
            log.info("lease not written", extra={"ring": ring, "shard": shard, "error": str(error)})
            # Someone else wrote (our own state label, or the shard is back), or nobody knows
            # whether we did.  The watch tells; until then only what was confirmed counts.
            record.version = ""
            if not _was_overtaken(record, against, error):
                record.not_written()
                raise  # nobody was faster: it is refused, or nobody knows
            return False
        record.behind, record.refused = False, None
        if lease.metadata.resource_version == against:
            # Nobody who waits for the lease has seen anything of it.
            log.warning("a lease's renewal changed nothing", extra={"ring": ring, "shard": shard})
            return False
        record.version = lease.metadata.resource_version
        record.wrote(against, self._clock.monotonic())
        record.hold.until, record.hold.missed = sent_at + usable_seconds(record.hold_length), missed
        record.held = True
        return True


def _was_overtaken(record: Record, against: str, error: ShardingError) -> bool:
    """Whether a write against this version has failed because somebody else has written, or deleted, it since."""
    if error.retry is not RetryRule.REFRESH and not isinstance(error, NotFound):
        return False
    # Once is somebody who was faster; a watch that still shows the same then is behind.
    record.behind, record.refused = record.refused == against, against
    return True


def _ring_of(lease: Lease) -> str:
    return lease.metadata.label(LEASE_RING_LABEL) or ""


def _where(meta: ObjectMeta) -> dict[str, str]:
    return {"ring": meta.label(LEASE_RING_LABEL) or "", "namespace": meta.namespace, "shard": meta.name}


def usable_seconds(hold_length: float) -> float:
    """How much of a hold counts: whoever waits for it to run out does so by a clock that may be faster than ours."""
    return hold_length - margin_seconds(hold_length)


def _whole(seconds: float) -> int:
    """A duration as a Lease can say it."""
    return max(1, round(seconds))

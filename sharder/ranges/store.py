"""Reads and writes one ring's RingAssignment, live, each write against the version that was read.

Refuses: to change one that it has not read, and to take one that makes no sense for one that names nobody.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from sharder.core.transit import Transit, read_transit, render_transit
from sharder.core.webhookconfig import FIELD_MANAGER, find_last_manager
from shardsdk.errors import ConfigurationError, FenceClosed, Invalid, NotFound, RetryRule, ShardingError
from shardsdk.kube.api import Api, Fence
from shardsdk.kube.clock import Clock
from shardsdk.protocol.labels import RING_KIND
from shardsdk.protocol.objects import CLUSTERRINGS
from shardsdk.protocol.ranges import (
    RING_ASSIGNMENTS,
    HashBy,
    Named,
    RingAssignment,
    RingAssignmentSpec,
    homes_of,
    named_by,
    read_spec,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Read:
    """A RingAssignment as it was read; `version` empty: there is none.

    `named` `None`: it does not exist, or makes no sense, and `problem` says which.  `homes`: for each shard that is
    named, or was where nobody is now (`transit`), by Leases in which namespaces (empty: some range does not say).
    `status`: what it said of itself, from which nothing is inferred.  `manager`: the field manager that has written all
    else last; empty: unknown.  `owners`: its ownerReferences.
    """

    version: str
    named: Named | None
    problem: str = ""
    generation: int = 0
    status: Mapping[str, Any] = field(default_factory=dict)
    homes: Mapping[str, frozenset[str]] = field(default_factory=dict)
    transit: Transit = field(default_factory=Transit)
    manager: str = ""
    owners: Sequence[Mapping[str, Any]] = ()


NO_SUCH: Final = "it does not exist"
#: How an API server words it that there are more ranges than the definition allows.
_TOO_MANY: Final = "spec.ranges: Too many: "
#: What ranges are split by that are nobody's; of too many it is left out.
_SPLITTING: Final = frozenset({"from", "to"})
#: A look that failed is made again after so long at most: what a shard has that died may be nobody's meanwhile.
RETRY_SECONDS: Final = 10.0
#: How often what was dropped or refused is written again, as namespaces by a definition that lacks them, or an owner:
#: nobody tells that it would be kept by now.
AGAIN_SECONDS: Final = 300.0


class AssignmentStore:
    """The RingAssignment of the ring called `ring`."""

    def __init__(self, ring: str, api: Api, fence: Fence, clock: Clock) -> None:
        self._ring = ring
        self._api = api
        self._fence = fence
        self._clock = clock
        #: Whether the last write's namespaces were kept: a CustomResourceDefinition that is older drops them.
        self.keeps_homes: bool = True
        #: What it could not say of ranges when that was written last: fields that an older definition does not have.
        self.dropped: frozenset[str] = frozenset()
        #: Whether it could be read or written before: its type is installed, and may be away for a while only.
        self.was_served: bool = False
        self._written_at = self._adopted_at = float("-inf")
        #: Whether what was read last went with another ring, or none.
        self._astray = False

    async def read(self, by: HashBy) -> Read:
        """What it says, consistently; one that hashes by something else than `by` makes no sense."""
        try:
            found = await self._api.get(RING_ASSIGNMENTS, self._ring, model=dict)
        except NotFound:
            return Read("", None, NO_SUCH)
        self.was_served = True
        return judge(found, by)

    async def write(
        self, read: Read, named: Named, homes: Mapping[str, str], ring_uid: str, transit: Transit | None = None
    ) -> None:
        """Have it say this instead of what was `read`; `homes` are the namespaces of the shards' Leases.

        Raises: Conflict, AlreadyExists, NotFound when somebody else has changed it meanwhile; Invalid when its
            definition refuses also what has to be said, or admission refuses it.
        """
        transit = transit or Transit()
        said = sent = render_transit(named, homes, transit)
        refusal, made = "", None
        while made is None:
            try:
                made = await self._send(read, sent, ring_uid)
            except Invalid as error:
                short = render_transit(named, homes, transit, len(sent.ranges) - 1)
                if not allows_fewer(error) or len(short.ranges) >= len(sent.ranges):
                    raise
                # Such a definition is older, and would drop anyway what they are more for.
                sent, refusal = short, str(error)
        self.was_served, self._written_at = True, self._clock.monotonic()
        self.keeps_homes = homes_of(made.spec) == homes_of(said)
        self._note(_fields_of(sent) | (_fields_of(said) & _SPLITTING), _fields_of(made.spec), refusal)

    def _note(self, said: frozenset[str], kept: frozenset[str], refusal: str) -> None:
        """Tell of what was `said` in vain."""
        lost = said - kept
        if lost - self.dropped:
            log.warning(
                "RingAssignment lacks fields that were written, which its definition does not have; bring that up to"
                " date with sharder crds --apply, or the Helm chart",
                extra={"ring": self._ring, "fields": ", ".join(sorted(lost))} | ({"error": refusal} if refusal else {}),
            )
        self.dropped = (self.dropped - kept) | lost

    def homes_due_in(self) -> float:
        """In how many seconds namespaces that it lacks are to be written (again)."""
        since = float("-inf") if self.keeps_homes else self._written_at
        return max(0.0, since + AGAIN_SECONDS - self._clock.monotonic())

    async def _send(self, read: Read, said: RingAssignmentSpec, ring_uid: str) -> RingAssignment:
        spec = msgspec.to_builtins(said)
        if not read.version:
            metadata = {"name": self._ring, "ownerReferences": [self._owner(ring_uid)]}
            return await self._api.create(
                RING_ASSIGNMENTS, {"metadata": metadata, "spec": spec}, model=RingAssignment, fences=(self._fence,)
            )
        body = {"metadata": {"resourceVersion": read.version}, "spec": spec}
        return await self._api.patch(
            RING_ASSIGNMENTS, self._ring, None, body, model=RingAssignment, metadata_only=False, fences=(self._fence,)
        )

    def _owner(self, ring_uid: str) -> dict[str, Any]:
        return {
            "apiVersion": CLUSTERRINGS.api_version, "kind": RING_KIND, "name": self._ring, "uid": ring_uid,
            "controller": True, "blockOwnerDeletion": False,
        }  # fmt: skip

    async def adopt(self, read: Read, ring_uid: str) -> None:
        """Have what was `read` go with its ring, if it does not say so: tools that restore backups drop owners.

        By a write of its own: some clusters refuse it to whoever may not delete the object, which nothing else is to
        wait for.  Raises: FenceClosed.
        """
        now = self._clock.monotonic()
        self._astray = bool(ring_uid) and all(each.get("uid") != ring_uid for each in read.owners)
        if not self._astray or now < self._adopted_at + AGAIN_SECONDS:
            return
        others = [each for each in read.owners if each.get("kind") != RING_KIND]
        owners = {"resourceVersion": read.version, "ownerReferences": [*others, self._owner(ring_uid)]}
        try:
            await self._api.patch(RING_ASSIGNMENTS, self._ring, None, {"metadata": owners}, fences=(self._fence,))
        except FenceClosed:
            raise
        except ShardingError as error:
            if error.retry is RetryRule.REFRESH or isinstance(error, NotFound):
                return  # somebody has changed it meanwhile, which the watch shows
            log.warning(
                "RingAssignment does not go with its ring, will retry",
                extra={
                    "ring": self._ring, "error": str(error),
                    "remedy": f"once the ring is deleted: kubectl delete ringassignment {self._ring}",
                },
            )  # fmt: skip
        self._adopted_at = now

    def adoption_due_in(self) -> float | None:
        """In how many seconds to `adopt` it again, since that was refused or undone; `None`: nothing waits for that."""
        left = self._adopted_at + AGAIN_SECONDS - self._clock.monotonic()
        return left if self._astray and left > 0 else None

    async def write_status(self, status: Mapping[str, Any]) -> None:
        """Merge `status` into what it says of itself; whoever has changed the rest meanwhile is asked again anyway."""
        await self._api.patch(
            RING_ASSIGNMENTS, self._ring, None, {"status": status}, subresource="status", fences=(self._fence,)
        )


def allows_fewer(error: Exception) -> bool:
    """Whether a RingAssignment was refused for how many ranges it has; admission has reasons of its own for a 422."""
    return isinstance(error, Invalid) and _TOO_MANY in str(error)


def _fields_of(spec: RingAssignmentSpec) -> frozenset[str]:
    """The fields that its ranges have, of which an older definition may lack some."""
    return frozenset(name for each in spec.ranges for name in msgspec.to_builtins(each))


def judge(found: dict[str, Any], by: HashBy) -> Read:
    """What a RingAssignment says that may have been written by anybody."""
    metadata, status = found.get("metadata") or {}, found.get("status")
    version, generation = str(metadata.get("resourceVersion") or ""), metadata.get("generation")
    manager = find_last_manager({"metadata": metadata}, FIELD_MANAGER)
    try:
        named, spec = named_by(found, by), read_spec(found)
        transit = read_transit(spec)
        return Read(
            version, named,
            generation=generation if isinstance(generation, int) else 0,
            status=status if isinstance(status, dict) else {},
            homes={shard: frozenset({home}) for shard, home in transit.homes.items()} | homes_of(spec),
            transit=transit,
            manager=manager,
            owners=[each for each in metadata.get("ownerReferences") or () if isinstance(each, dict)],
        )  # fmt: skip
    except ConfigurationError as error:
        return Read(version, None, str(error), manager=manager)

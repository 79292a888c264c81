"""Reads and writes one ring's RingAssignment, live, each write against the version that was read.

Refuses: to change one that it has not read, and to take one that makes no sense for one that names nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from sharder.core.transit import Transit, read_transit, render_transit
from shardsdk.errors import ConfigurationError, NotFound
from shardsdk.kube.api import Api, Fence
from shardsdk.protocol.labels import RING_KIND
from shardsdk.protocol.objects import CLUSTERRINGS
from shardsdk.protocol.ranges import (
    RING_ASSIGNMENTS,
    HashBy,
    Named,
    RingAssignment,
    homes_of,
    named_by,
    read_spec,
)


@dataclass(frozen=True, slots=True)
class Read:
    """A RingAssignment as it was read; `version` empty: there is none.

    `named` `None`: it does not exist, or makes no sense, and `problem` says which.  `homes`: for each shard that is
    named, or was where nobody is now (`transit`), by Leases in which namespaces (empty: some range does not say).
    `status`: what it said of itself, from which nothing is inferred.
    """

    version: str
    named: Named | None
    problem: str = ""
    generation: int = 0
    status: Mapping[str, Any] = field(default_factory=dict)
    homes: Mapping[str, frozenset[str]] = field(default_factory=dict)
    transit: Transit = field(default_factory=Transit)


NO_SUCH: Final = "it does not exist"


class AssignmentStore:
    """The RingAssignment of the ring called `ring`."""

    def __init__(self, ring: str, api: Api, fence: Fence) -> None:
        self._ring = ring
        self._api = api
        self._fence = fence
        #: Whether the last write's namespaces were kept: a CustomResourceDefinition that is older drops them.
        self.keeps_homes: bool = True

    async def read(self, by: HashBy) -> Read:
        """What it says, consistently; one that hashes by something else than `by` makes no sense."""
        try:
            found = await self._api.get(RING_ASSIGNMENTS, self._ring, model=dict)
        except NotFound:
            return Read("", None, NO_SUCH)
        return judge(found, by)

    async def write(
        self, read: Read, named: Named, homes: Mapping[str, str], ring_uid: str, transit: Transit | None = None
    ) -> None:
        """Have it say this instead of what was `read`; `homes` are the namespaces of the shards' Leases.

        Raises: Conflict, AlreadyExists, NotFound when somebody else has changed it meanwhile.
        """
        said = render_transit(named, homes, transit or Transit())
        spec = msgspec.to_builtins(said)
        if not read.version:
            owner = {
                "apiVersion": CLUSTERRINGS.api_version, "kind": RING_KIND, "name": self._ring, "uid": ring_uid,
                "controller": True, "blockOwnerDeletion": False,
            }  # fmt: skip
            metadata = {"name": self._ring, "ownerReferences": [owner]}
            made = await self._api.create(
                RING_ASSIGNMENTS, {"metadata": metadata, "spec": spec}, model=RingAssignment, fences=(self._fence,)
            )
        else:
            body = {"metadata": {"resourceVersion": read.version}, "spec": spec}
            made = await self._api.patch(
                RING_ASSIGNMENTS, self._ring, None, body, model=RingAssignment, metadata_only=False,
                fences=(self._fence,),
            )  # fmt: skip
        self.keeps_homes = homes_of(made.spec) == homes_of(said)

    async def write_status(self, status: Mapping[str, Any]) -> None:
        """Merge `status` into what it says of itself; whoever has changed the rest meanwhile is asked again anyway."""
        await self._api.patch(
            RING_ASSIGNMENTS, self._ring, None, {"status": status}, subresource="status", fences=(self._fence,)
        )


def judge(found: dict[str, Any], by: HashBy) -> Read:
    """What a RingAssignment says that may have been written by anybody."""
    metadata, status = found.get("metadata") or {}, found.get("status")
    version, generation = str(metadata.get("resourceVersion") or ""), metadata.get("generation")
    try:
        named, spec = named_by(found, by), read_spec(found)
        transit = read_transit(spec)
        return Read(
            version, named,
            generation=generation if isinstance(generation, int) else 0,
            status=status if isinstance(status, dict) else {},
            homes={shard: frozenset({home}) for shard, home in transit.homes.items()} | homes_of(spec),
            transit=transit,
        )  # fmt: skip
    except ConfigurationError as error:
        return Read(version, None, str(error))

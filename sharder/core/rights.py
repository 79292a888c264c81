"""Rights that the sharder may lack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from shardsdk.protocol.objects import LEASES, NAMESPACES, GroupResource
from shardsdk.protocol.ranges import RING_ASSIGNMENTS


@dataclass(frozen=True, slots=True)
class MissingRule:
    """A right that the sharder lacks."""

    verb: str
    resource: GroupResource

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}"

    @property
    def is_of_sharder(self) -> bool:
        """Whether the sharder's own role is to grant it, rather than the ring's."""
        return self in OWN_RULES or self.resource == RING_ASSIGNMENTS.group_resource


#: What the sharder needs whatever a ring lists: to know which namespaces are in its scope, and to notice shards that
#: are gone and take over their leases.
OWN_RULES: Final = (
    *(MissingRule(verb, NAMESPACES.group_resource) for verb in ("list", "watch")),
    *(MissingRule(verb, LEASES.group_resource) for verb in ("list", "watch", "create", "patch")),
)

"""What shards read of their ring."""

from __future__ import annotations

from typing import Any

import msgspec

from shardsdk.protocol.ranges import BY_LABELS, HashBy, hash_by_of


class _Controlled(msgspec.Struct, frozen=True):
    """A resource whose objects follow their owners."""

    group: str = ""
    resource: str = ""


class _Main(msgspec.Struct, frozen=True, rename="camel"):
    """A resource whose objects are placed."""

    group: str = ""
    resource: str = ""
    controlled_resources: list[_Controlled] | None = None


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    """What the ring's author wants."""

    resources: list[_Main] | None = None
    assignment: str = BY_LABELS
    hash_by: str = ""
    namespace_selector: dict[str, Any] | None = None


class _Metadata(msgspec.Struct, frozen=True):
    """Which version of the spec it is."""

    generation: int = 0


class _Condition(msgspec.Struct, frozen=True):
    """What its sharder says of it by one name."""

    type: str = ""
    status: str = ""


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    """What its sharder has said."""

    observed_generation: int = 0
    conditions: list[_Condition] | None = None
    namespace_selector: dict[str, Any] | None = None


class Ring(msgspec.Struct, frozen=True):
    """A ClusterRing."""

    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def hash_by(self) -> HashBy | None:
        """What it hashes; `None`: it assigns by labels.

        Raises: ConfigurationError for a way of assigning that this version does not know.
        """
        return hash_by_of(self.spec.assignment, self.spec.hash_by)

    @property
    def covers(self) -> dict[str, Any] | None:
        """Where the spec says nothing the sharder's default holds, which it writes into the status; `None`: neither."""
        return self.status.namespace_selector if self.spec.namespace_selector is None else self.spec.namespace_selector

    @property
    def is_looked_at(self) -> bool:
        """Whether a sharder has said all that it says of the ring as it is: one that tells no default has none."""
        ready = any(each.type == "Ready" and each.status == "True" for each in self.status.conditions or ())
        return ready and self.status.observed_generation == self.metadata.generation

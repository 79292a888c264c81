"""The ClusterRing as it comes over the wire: metadata decoded, the rest as it is.

Refuses: to judge the spec; `sharder.core.ringspec` does, and says everything at once.
"""

from __future__ import annotations

from typing import Any

import msgspec

from shardsdk.protocol.objects import ObjectMeta


class RingObject(msgspec.Struct, frozen=True, rename="camel"):
    """A ClusterRing; `spec` and `status` as plain data, whatever they hold."""

    metadata: ObjectMeta
    spec: Any = None
    status: Any = None

    def as_dict(self) -> dict[str, Any]:
        """The whole object as plain data, as the parser wants it."""
        return {"metadata": msgspec.to_builtins(self.metadata), "spec": self.spec, "status": self.status}

    @property
    def status_dict(self) -> dict[str, Any]:
        """`status`, or an empty one where it is missing or no object."""
        return self.status if isinstance(self.status, dict) else {}

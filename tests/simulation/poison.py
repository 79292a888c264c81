"""Objects that cannot be handled: they fit no model, or nobody can write them.

One of them may keep its own family waiting, and nobody else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from shardsdk.errors import Forbidden, ServerError
from shardsdk.kube.store import Key
from shardsdk.protocol.labels import RingLabels
from shardsdk.protocol.objects import LEASES, Resource
from tests.simulation.collecting import owner_uid
from tests.simulation.storage import Version
from tests.simulation.undoing import Undoings
from tests.simulation.vocabulary import PIECES, PLAINS, RING_OF_KIND, WORKS

if TYPE_CHECKING:
    from tests.simulation.world import World

#: How long a validating webhook takes that does not answer.  Source: Kubernetes, its default timeoutSeconds.
HANGS_SECONDS: Final = 10.0


class Refusal(Enum):
    """How writes of an object fail."""

    HANGS = "a validating webhook of somebody's does not answer"
    DENIED = "a validating webhook of somebody's denies it"


@dataclass(slots=True)
class Poison:
    """The objects of one run that are in such a state, and whom that excuses."""

    world: World
    _refused: dict[tuple[Resource, Key], Refusal] = field(default_factory=dict)
    #: Resources of which no object can be written, or none of one namespace (empty: of any).
    _failing: dict[tuple[Resource, str], Refusal] = field(default_factory=dict)
    #: Uids of what waits for poisoned objects, each with how many.
    _families: dict[str, int] = field(default_factory=dict)
    _mends: dict[Callable[[], None], asyncio.TimerHandle] = field(default_factory=dict)
    #: Whose labels are put back as they were.
    undoings: Undoings = field(default_factory=Undoings)
    #: When a write of a lease was last refused, by whose it was; since when all are, or were last, and since when they
    #: pass again.
    refused_at: dict[tuple[Key, str], float] = field(default_factory=dict)
    refused_since: dict[Key, float] = field(default_factory=dict)
    passes_since: dict[Key, float] = field(default_factory=dict)

    @property
    def any(self) -> bool:
        """Whether anything is poisoned now."""
        return bool(self._families or self._failing or self.world.hung)

    @property
    def hung_shard(self) -> str:
        """The shard whose reconciles do not end any more; empty: there is none."""
        return self.world.hung.rpartition("_")[0]

    @property
    def pending(self) -> bool:
        """Whether anything is as it is only until somebody mends it, or is about to be."""
        return bool(self._mends or self._families)

    def excuses(self, version: Version) -> bool:
        """Whether an object waits for what is poisoned, itself or one of its family."""
        hung = self.hung_shard
        if hung and self.world.liveness.shard_of(RING_OF_KIND[version.doc["kind"]], version) == hung:
            return True
        if self._failing and self._waits_for_resource(version):
            return True
        if not self._families:
            return False
        owner = owner_uid(version) if version.doc["kind"] == PIECES.kind else None
        return version.uid in self._families or owner in self._families

    def leaves_halfway(self, child: Version, ring: RingLabels) -> bool:
        """Whether a child was let go of, outside the ring's namespaces, and its owner cannot be.

        Nobody brings the child back, as somebody does within them: there is no shard to which the two belong.
        """
        out = child.label(ring.shard) is None and not self.world.in_scope(ring, child.key.namespace)
        return out and self.excuses(child)

    def _waits_for_resource(self, version: Version) -> bool:
        """Whether an object, its owner or its children cannot be written because none of their resource can."""
        kind, namespace = version.doc["kind"], version.key.namespace
        if kind == PLAINS.kind:
            return self._refusal_of(PLAINS, namespace) is not None
        if self._refusal_of(WORKS, namespace) is not None:
            return True
        if self._refusal_of(PIECES, namespace) is None:
            return False
        # A work that neither has children nor wants any has nothing to wait for.
        return kind == PIECES.kind or bool(version.doc["spec"]["keys"] or self.world.index.children(version.uid))

    def spread(self, version: Version) -> tuple[str, ...]:
        """Excuse the family of an object: itself, its owner, and what that controls."""
        owner = owner_uid(version) if version.doc["kind"] == PIECES.kind else version.uid
        family = (version.uid,) if owner is None else (version.uid, owner)
        for uid in family:
            self._families[uid] = self._families.get(uid, 0) + 1
        return family

    def withdraw(self, family: tuple[str, ...]) -> None:
        """It is mended: its family is judged again."""
        for uid in family:
            self._families[uid] -= 1
            if not self._families[uid]:
                del self._families[uid]

    def mend_later(self, seconds: float, mend: Callable[[], None]) -> None:
        """Have something mended in a while, or when everything is."""
        self._mends[mend] = asyncio.get_running_loop().call_later(seconds, self._mend, mend, context=Context())

    def mend_all(self) -> None:
        """Have everything mended now that would be later."""
        for mend in list(self._mends):
            self._mends[mend].cancel()
            self._mend(mend)

    def _mend(self, mend: Callable[[], None]) -> None:
        del self._mends[mend]
        mend()

    # -- writes that fail ------------------------------------------------------

    def refuse(self, resource: Resource, key: Key, refusal: Refusal | None) -> None:
        """Have writes of an object fail, or (`None`) pass again."""
        if refusal is None:
            if self._refused.pop((resource, key), None) is not None:
                self.passes_since[key] = self.world.now
        else:
            if (resource, key) not in self._refused:
                self.refused_since[key] = self.world.now
            self._refused[resource, key] = refusal

    def refuse_all(self, resource: Resource, refusal: Refusal | None, namespace: str = "") -> bool:
        """Have writes of each object of a resource (in a namespace) fail, or (`None`) pass again; False: they do."""
        if refusal is None:
            return self._failing.pop((resource, namespace), None) is not None
        return self._failing.setdefault((resource, namespace), refusal) is refusal

    def _refusal_of(self, resource: Resource, namespace: str) -> Refusal | None:
        """How writes of a resource fail in a namespace; `None`: they do not."""
        return self._failing.get((resource, "")) or self._failing.get((resource, namespace))

    def refuses(self, resource: Resource, key: Key) -> bool:
        """Whether a write of this object fails, whatever it says."""
        if not self._refused and not self._failing:
            return False
        return (resource, key) in self._refused or self._refusal_of(resource, key.namespace) is not None

    async def fail(self, resource: Resource, key: Key, author: str) -> None:
        """What becomes of a write of `author`'s.  Raises: ServerError, Forbidden."""
        if resource == LEASES:
            self.refused_at[key, author] = self.world.now
        what = f"{resource.plural} {key}"
        refusal = self._refusal_of(resource, key.namespace) or self._refused[resource, key]
        if refusal is Refusal.HANGS:
            await asyncio.sleep(HANGS_SECONDS)
            raise ServerError(f"{what}: failed calling webhook: context deadline exceeded", status=500, reason="")
        raise Forbidden(f"{what}: admission webhook denied the request", status=403, reason="Forbidden")

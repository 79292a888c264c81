"""What a controller has applied, so that it does not apply the same again.

An apply is left out when the cache shows the object as the answer to the last
apply did: at its version, or at another one that differs in nothing but status
and version.  Whatever else has changed, be it in a field that was applied or in
one beside it, leads to another apply, and so does a new object under the name.

Guarantees (tests/properties/test_apply.py): what is skipped would have changed
nothing.  Nothing outlives the process or the time that its object is this
shard's: others may have applied meanwhile, under the same field owner.

Does not guarantee: to notice what the object's model does not show, when the
object has no generation either; an apply takes nothing there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final

import msgspec

from shardsdk.cache.objects import Request
from shardsdk.kinds import Kind, body_of
from shardsdk.protocol.objects import GroupResource
from shardsdk.reconcile.changed import changed_fields

#: An object that was applied: its resource and its name.
Child = tuple[GroupResource, Request]

_DIGEST_BYTES: Final = 16
#: Changes without anybody having changed anything.
_VOLATILE: Final = ("resourceVersion", "generation", "managedFields")


def digest_of(body: Any) -> bytes:
    """The same for bodies that say the same."""
    # Not blake2b: a Python in FIPS mode has none.
    return sha256(msgspec.json.encode(body, order="sorted")).digest()[:_DIGEST_BYTES]


def state_of(thing: Kind) -> bytes:
    """A digest of what an apply could have set, and of which object that is: all that it shows but its status."""
    body = body_of(thing)
    body.pop("status", None)
    metadata = {name: value for name, value in body["metadata"].items() if name not in _VOLATILE}
    return digest_of({**body, "metadata": metadata})


@dataclass(frozen=True, slots=True)
class Record:
    """One apply: digests of what was sent and of what the answer showed, and the version of that.

    `put_back`: so many times the same was sent before, and has changed what somebody else had made of it.
    """

    sent: bytes
    state: bytes
    version: str
    generation: int
    put_back: int = 0


class Applied:
    """What one controller has applied, for each of its objects (by uid)."""

    def __init__(self) -> None:
        self._records: dict[str, dict[Child, Record]] = {}

    def forget(self, uid: str) -> None:
        """The object with this uid is not this process's any more."""
        self._records.pop(uid, None)

    def of(self, uid: str) -> AppliedFor:
        """What was applied for the object with this uid, for one reconcile of it."""
        return AppliedFor(self._records, uid)

    def __len__(self) -> int:
        return sum(map(len, self._records.values()))


class AppliedFor:
    """What was applied for one object; `names` are those of this reconcile."""

    def __init__(self, records: dict[str, dict[Child, Record]], uid: str) -> None:
        self._all = records
        self._uid = uid
        # The very dict: what is noted after `forget` is noted nowhere.
        self._records = records.setdefault(uid, {})
        self.names: Final[set[Child]] = set()
        #: What this reconcile has applied without giving it a name.
        self._unnamed: dict[Child, bytes] = {}

    def holds(self, child: Child, sent: bytes, seen: Kind) -> bool:
        """Whether applying that again would change nothing of `seen`, the object as the cache has it."""
        known, metadata = self._records.get(child), seen.metadata
        if known is None or known.sent != sent:
            return False
        if known.version == metadata.resource_version:
            return True
        if known.generation != metadata.generation or known.state != state_of(seen):
            return False
        self._records[child] = replace(known, version=metadata.resource_version)
        return True

    def begin(self, child: Child, sent: bytes) -> bool:
        """What was given no name is to be applied; `False`: this reconcile has applied something else like that."""
        return self._unnamed.setdefault(child, sent) == sent

    def fail(self, child: Child) -> None:
        """That has failed: something else may be applied instead."""
        self._unnamed.pop(child, None)

    def forget(self, child: Child) -> Record | None:
        """It is about to be written: whatever comes of that, the next apply is sent.  What was known of the last."""
        return self._records.pop(child, None)

    def note(
        self,
        child: Child,
        sent: bytes,
        body: Mapping[str, Any],
        made: Kind,
        before: Record | None = None,
        seen: Kind | None = None,
    ) -> int:
        """`body`, of which `sent` is the digest, was applied, and the answer shows it as `made`.

        How often that has put back what somebody else had changed: `before` is what was known of the apply
        before, `seen` the object as it was found.  0: it has not; what differs beside the fields of `body` is
        somebody else's, which `seen` was too old to show.
        """
        metadata = made.metadata
        times = before.put_back if before is not None and before.sent == sent else None
        there = times is not None and seen is not None and seen.metadata.uid == metadata.uid
        puts_back = there and changed_fields(seen, made, body) != ""
        put_back = (times or 0) + puts_back
        self._records[child] = Record(sent, state_of(made), metadata.resource_version, metadata.generation, put_back)
        return put_back if puts_back else 0

    def keep_named(self) -> None:
        """The reconcile has ended well: what it did not apply is not remembered any longer."""
        for child in [each for each in self._records if each not in self.names]:
            del self._records[child]
        if not self._records and self._all.get(self._uid) is self._records:
            del self._all[self._uid]

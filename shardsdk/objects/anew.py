"""Writes of the reconciled object that meet a Conflict: whether they may be made anew, of what is there by now.

A write is conditional on the version that its reconcile knows, because that may
have become another object, another shard's, or one that is to be otherwise; and
because what somebody wrote meanwhile must not be undone.  Much of what changes a
version is none of that, such as an annotation in which somebody counts.  Then to
begin anew helps nobody: a reconcile that takes longer than the time between two
such changes would never be done.
"""

from __future__ import annotations

from typing import Any, Final

from shardsdk.protocol.objects import ObjectMeta
from shardsdk.reconcile.context import Context

#: So often one write is sent; each time of what was read just before.
ATTEMPTS: Final = 6


def is_still(context: Context[Any], found: ObjectMeta) -> bool:
    """Whether what was `found` is what this reconcile is about: as it is to be, and as it was selected and assigned.

    Of labels that says enough; ranges are held until what runs in them has ended.  A deletion counts as a generation.
    Of kinds without generations nothing tells whether they are to be otherwise by now.
    """
    known = context.metadata
    return known.generation > 0 and _identifying(known) == _identifying(found)


def _identifying(metadata: ObjectMeta) -> tuple[object, ...]:
    return metadata.uid, metadata.generation, metadata.labels or {}

"""What can be wrong with an implementation: one rule of the protocol left out at a time."""

from __future__ import annotations

from enum import Enum
from typing import Final


class Flaw(Enum):
    """A rule that is broken everywhere, in words."""

    NONE = "as designed"
    GRANTS_UNSEEN = "the sharder grants without looking whether the range is held"
    GRANTS_AT_ONCE = "the sharder takes a range from one shard and names the next at once"
    WRITES_OVER = "the sharder writes whatever has been written since it read"
    TRUSTS_ITS_WATCH = "the shard takes its watch's word, not a consistent read's, that it is still named"
    LOOKS_AT_NOBODY = "the shard does not look whether another one holds the range"
    NOBODY_LOOKS = "neither sharder nor shard looks whether the range is held"
    NO_FLAG = "the shard does not say that it holds the range before it begins"
    GIVES_BACK_EARLY = "the shard says that it no longer holds the range while it works"
    UNFENCED = "the shard goes on working when its lease can be taken"


#: By itself each net holds, the sharder's and the shards': these show two owners to nobody.
_ONE_NET_LEFT: Final = {Flaw.NONE, Flaw.GRANTS_UNSEEN, Flaw.GRANTS_AT_ONCE, Flaw.WRITES_OVER, Flaw.TRUSTS_ITS_WATCH}


def is_safe(flaw: Flaw, *, edited: bool) -> bool:
    """Whether no object may get two owners although this is wrong, and somebody `edited` the assignment by hand."""
    return flaw in _ONE_NET_LEFT or (flaw is Flaw.LOOKS_AT_NOBODY and not edited)

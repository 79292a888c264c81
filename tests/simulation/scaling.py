"""Maxima that no run of some dozen objects would reach, scaled down in some runs so that they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any, Final
from unittest.mock import patch

from sharder.cache import vanished as registry
from sharder.placement import expectations as past
from sharder.placement import families, resync
from sharder.placement import handover as groups
from sharder.placement import requeues as sweeping
from shardsdk.cache import cache

#: How many of the runs have any of them scaled.
SHARE: Final = 0.3

_MAXIMA: Final[dict[str, tuple[Any, str]]] = {
    "groups that share a read": (groups, "MAX_BATCH"),
    "groups under way": (groups, "MAX_MOVING"),
    "groups held up": (groups, "MAX_HELD_UP"),
    "owners remembered": (past, "MAX_REMEMBERED"),
    "objects known to be misplaced": (resync, "MAX_MISPLACED"),
    "children followed": (families, "MAX_CHILDREN"),
    "leases that vanished": (registry, "MAX_VANISHED"),
    "objects put off": (sweeping, "MAX_DEFERRED"),
    "deletions remembered by a shard": (cache, "MAX_REMEMBERED_DELETIONS"),
}


def draw_scaled(seed: int) -> tuple[tuple[str, int], ...]:
    """Which maxima a run of this seed has, and how small."""
    rng = Random(f"scaled/{seed}")
    if rng.random() >= SHARE:
        return ()
    return tuple((name, rng.randint(1, 3)) for name in sorted(_MAXIMA) if rng.random() < 0.5)


@contextmanager
def scaled(maxima: Iterable[tuple[str, int]]) -> Iterator[None]:
    """Have the product live with these within this context."""
    with ExitStack() as stack:
        for name, most in maxima:
            owner, constant = _MAXIMA[name]
            stack.enter_context(patch.object(owner, constant, most))
        yield

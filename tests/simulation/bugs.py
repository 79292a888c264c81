"""Faults planted into the product, to prove that the simulation finds them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

from tests.simulation.shards import ShardProcess


class Bug(Enum):
    """A planted fault."""


@contextmanager
def planted(bug: Bug | None) -> Iterator[type[ShardProcess]]:
    """Have the product behave wrongly within this context; gives the shard process to use."""
    yield ShardProcess

"""The leases of one ring that are gone, as far as they are remembered."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from sharder.core.observed import VanishedLease

#: Vanished leases remembered: they may still count as held, and what became of a shard counts when it comes back.
MAX_VANISHED: Final = 10_000


class VanishedLeases:
    """By namespace and name; `by_name` is the same as snapshots share it, made anew once asked for after a change."""

    def __init__(self) -> None:
        self._leases: dict[tuple[str, str], VanishedLease] = {}
        self._by_name: Mapping[str, tuple[VanishedLease, ...]] | None = None

    @property
    def by_name(self) -> Mapping[str, tuple[VanishedLease, ...]]:
        """Those of each name, in whatever namespace."""
        if self._by_name is None:
            by_name: dict[str, tuple[VanishedLease, ...]] = {}
            for gone in self._leases.values():
                by_name[gone.name] = (*by_name.get(gone.name, ()), gone)
            self._by_name = MappingProxyType(by_name)
        return self._by_name

    def remember(self, key: tuple[str, str], gone: VanishedLease) -> None:
        """A lease has vanished; of too many the one is forgotten that did so first."""
        if len(self._leases) >= MAX_VANISHED:
            self._leases.pop(next(iter(self._leases)))
        self._leases[key] = gone
        self._by_name = None

    def recall(self, key: tuple[str, str]) -> VanishedLease | None:
        """A lease is there: what is remembered of the one before it, for the last time."""
        gone = self._leases.pop(key, None)
        if gone is not None:
            self._by_name = None
        return gone

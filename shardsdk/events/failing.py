"""Namespaces that take no Events just now, because of a webhook for example: each is left alone for growing pauses."""

from __future__ import annotations

import random
from collections import OrderedDict
from dataclasses import dataclass

from shardsdk.kube.backoff import Backoff


@dataclass(slots=True)
class _Pause:
    backoff: Backoff
    until: float = 0.0


class FailingNamespaces:
    """Those where the last Event could not be written; at most `remembered` of them.

    What may be as slow to fail as it was before must not be tried as often as there
    are Events: meanwhile those of other namespaces wait.  All times are monotonic, in seconds.
    """

    def __init__(self, rng: random.Random, first_seconds: float, remembered: int) -> None:
        self._rng = rng
        self._first_seconds = first_seconds
        self._remembered = remembered
        self._pauses: OrderedDict[str, _Pause] = OrderedDict()

    def failed(self, namespace: str, now: float) -> None:
        """An attempt to write there has failed."""
        pause = self._pauses.pop(namespace, None) or _Pause(Backoff(self._rng, first_seconds=self._first_seconds))
        pause.until = now + pause.backoff.next()
        self._pauses[namespace] = pause
        while len(self._pauses) > self._remembered:
            self._pauses.popitem(last=False)

    def wrote(self, namespace: str) -> None:
        """It takes Events."""
        self._pauses.pop(namespace, None)

    def seconds_until_attempt(self, namespace: str, now: float) -> float | None:
        """How long it is left alone; `None`: it does not fail."""
        pause = self._pauses.get(namespace)
        return None if pause is None else max(pause.until - now, 0.0)

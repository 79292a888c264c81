"""Which objects are being reconciled, by any controller of this shard.

One `InFlight` belongs to one main resource and is shared by all controllers for
it: a drain may be acknowledged only when none of them works on the object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shardsdk.cache.objects import Request


class InFlight:
    """Counts the reconciles that run, by object."""

    def __init__(self) -> None:
        self._running: dict[Request, int] = {}
        self._waiting: dict[Request, list[Callable[[], None]]] = {}

    @contextmanager
    def hold(self, request: Request) -> Iterator[None]:
        """The object is busy within this context."""
        self._running[request] = self._running.get(request, 0) + 1
        try:
            yield
        finally:
            self._running[request] -= 1
            if not self._running[request]:
                del self._running[request]
                for callback in self._waiting.pop(request, ()):
                    callback()

    def busy(self, request: Request) -> bool:
        """Whether any reconcile of the object runs."""
        return request in self._running

    def count(self, request: Request) -> int:
        """How many reconciles of the object run."""
        return self._running.get(request, 0)

    def when_idle(self, request: Request, callback: Callable[[], None]) -> None:
        """Call `callback` once, when no reconcile of the object runs (now, if none does)."""
        if self.busy(request):
            self._waiting.setdefault(request, []).append(callback)
        else:
            callback()

    def __len__(self) -> int:
        return len(self._running)

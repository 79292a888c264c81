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
        #: The uid of the object of each reconcile, by its name.
        self._running: dict[Request, list[str]] = {}
        self._waiting: dict[Request, list[Callable[[], None]]] = {}
        self._listeners: list[Callable[[Request], None]] = []

    def listen(self, listener: Callable[[Request], None]) -> None:
        """Tell `listener` of every reconcile that begins, before it does."""
        self._listeners.append(listener)

    @contextmanager
    def hold(self, request: Request, uid: str = "") -> Iterator[None]:
        """The object is busy within this context; `uid` tells it from others that had its name."""
        for listener in self._listeners:
            listener(request)
        uids = self._running.setdefault(request, [])
        uids.append(uid)
        try:
            yield
        finally:
            uids.remove(uid)
            if not uids:
                del self._running[request]
                for callback in self._waiting.pop(request, ()):
                    callback()

    def busy(self, request: Request) -> bool:
        """Whether any reconcile of the object runs."""
        return request in self._running

    def count(self, request: Request) -> int:
        """How many reconciles of the object run."""
        return len(self._running.get(request, ()))

    def uids(self, request: Request) -> list[str]:
        """The uid of the object of each reconcile of that name that runs."""
        return list(self._running.get(request, ()))

    def running(self) -> list[tuple[Request, str]]:
        """The object of each reconcile that runs, and its uid."""
        return [(request, uid) for request, uids in self._running.items() for uid in uids]

    def when_idle(self, request: Request, callback: Callable[[], None]) -> None:
        """Call `callback` once, when no reconcile of the object runs (now, if none does)."""
        if self.busy(request):
            self._waiting.setdefault(request, []).append(callback)
        else:
            callback()

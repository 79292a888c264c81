"""A running reflector whose progress a test can wait for."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from shardsdk.kube.client import Client
from shardsdk.kube.clock import SystemClock
from shardsdk.kube.reflector import Delta, EventKind, Reflector
from shardsdk.protocol.objects import PartialObject, Resource
from tests.kube_fakes import CONFIGMAPS

#: A reflector whose API server takes long to start again pauses for up to half a minute between its attempts.
PATIENCE_SECONDS: Final = 90.0


class Following:
    """A running reflector whose progress a test can wait for."""

    def __init__(self, client: Client, resource: Resource = CONFIGMAPS, **options: Any) -> None:
        self.deltas: list[Delta[PartialObject]] = []
        self._changed = asyncio.Event()
        self.reflector: Reflector[PartialObject] = Reflector(
            client, resource, handler=self._note, clock=SystemClock(), rng=random.Random(1), **options
        )

    def _note(self, delta: Delta[PartialObject]) -> None:
        self.deltas.append(delta)
        self._changed.set()

    @property
    def names(self) -> set[str]:
        return {each.metadata.name for each in self.reflector.store}

    @property
    def story(self) -> list[tuple[EventKind, str]]:
        return [(delta.kind, delta.object.metadata.name) for delta in self.deltas]

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for news until `holds`; failures change without news, so they are looked at in between."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not holds():
                    self._changed.clear()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(0.05):
                            await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"{self.reflector.status()}; knows {sorted(self.names)}; {self.story}") from None


@asynccontextmanager
async def following(client: Client, resource: Resource = CONFIGMAPS, **options: Any) -> AsyncIterator[Following]:
    mine = Following(client, resource, **options)
    running = asyncio.ensure_future(mine.reflector.run())
    try:
        yield mine
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running

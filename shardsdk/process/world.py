"""What a manager takes from outside: ways to the API server, time, chance, and the process's end."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from shardsdk.errors import ConfigurationError, LeaseLost
from shardsdk.kube.access import load_access
from shardsdk.kube.api import Api, Fence
from shardsdk.kube.clock import Clock, SystemClock
from shardsdk.kube.server import Access
from shardsdk.lease.leadership import Candidate
from shardsdk.lease.shardlease import Connect, ShardLease
from shardsdk.process.process import die, end_with
from shardsdk.queueing.metrics import Metrics


@dataclass(frozen=True, slots=True)
class World:
    """The real world, or a simulation's own.

    `source` is how the lease's keeper reaches the API server, `connect` opens
    the fenced client that a shard's controllers use, `open` any other client.
    `threaded` gives the keeper and the health server threads of their own.
    `die` must end the process.  `instance` is `ShardLease`'s (`None`: the pod's).
    """

    source: Access | Connect
    connect: Callable[[ShardLease], AbstractAsyncContextManager[Api]]
    clock: Clock
    rng: random.Random
    threaded: bool = True
    serve: bool = True
    signals: bool = True
    die: Callable[[int, str], None] = die
    instance: str | None = None
    open: Callable[[Fence | None], AbstractAsyncContextManager[Api]] | None = None

    def client(self, fence: Fence | None = None) -> AbstractAsyncContextManager[Api]:
        """A client for unsharded work, guarded by `fence`."""
        if self.open is None:
            raise ConfigurationError("this World opens no clients for unsharded work: give it `open`")
        return self.open(fence)


@asynccontextmanager
async def ended_with(lease: ShardLease, world: World) -> AsyncIterator[None]:
    """Around `lease`: once it is lost, the process ends with its time (`end_with`)."""
    try:
        yield
    except LeaseLost:
        end_with(lease.fence, world.die)
        raise


def end_with_lead(candidate: Candidate | None, world: World) -> None:
    """When all else has ended: the process ends with the time of the lease that its leader has lost (`end_with`).

    Not before: a shard of the same process may still end in order, under a lease of its own that is good.  If that has
    taken longer than the leader's lease, threads have what they have after any end (`run_process`).
    """
    hold = None if candidate is None else candidate.lost
    # By the clock, and not `left_to_end`: where only what was missed has ended it, no shard has taken too long.
    if hold is not None and hold.ends_at > world.clock.monotonic():
        end_with(hold, world.die)


async def load_world(
    kubeconfig: str | os.PathLike[str] | None, context: str | None, metrics: Metrics, program: str = ""
) -> World:
    """The world as the configuration shows it, for a `program`, NAME/VERSION.  Raises: ConfigurationError."""
    from shardsdk.kube.client import Client  # brings aiohttp, which takes a third of a second

    access = await load_access(kubeconfig, context)
    access = access.of_program(program) if program else access
    return World(
        access,
        lambda lease: lease.client(on_call=metrics.count_call),
        SystemClock(),
        random.Random(),
        open=lambda fence: Client(access, fence=fence, on_call=metrics.count_call),
    )

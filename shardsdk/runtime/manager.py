"""Manager: makes a shard of a process, from waiting for its lease to its exit code.

    manager = Manager(ring="example")
    manager.add(Controller.for_(SECRETS).owns(CONFIGMAPS).reconcile(reconcile))
    manager.run()

Order of start: health and metrics, the lease, caches, controllers.  Order of
stop: not ready any more, no new reconcile, running ones end, writes are
settled, the lease is released.  Lost lease: no new reconcile, running ones are
cancelled, writes refused, the process exits non-zero, by force at the deadline.

Guarantees (tests/unit/test_manager.py, tests/integration/test_shard_runtime.py):
the process holds the lease whenever a reconcile begins, and has ended before
anyone may take the lease.  Refuses: to go on after a lost lease; whoever
restarts the process brings back a clean one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final, NoReturn, Self, assert_never

from shardsdk.core.timings import LeaseTimings
from shardsdk.errors import ConfigurationError, LeaseLost, ShardingError
from shardsdk.kube.access import Access, load_access
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock, SystemClock
from shardsdk.runtime.health import Checks, Endpoints, parse_address, serve_in_thread
from shardsdk.runtime.identity import ShardIdentity
from shardsdk.runtime.metrics import Metrics
from shardsdk.runtime.process import ExitCode, die, stop_on_signal
from shardsdk.runtime.shardlease import Connect, LeaseState, ShardLease
from shardsdk.runtime.spec import ControllerSpec
from shardsdk.runtime.workload import Ended, Workload, check_specs

log = logging.getLogger(__name__)

#: A pod has 30 s from SIGTERM to SIGKILL; what is left is for the release.
GRACE_SECONDS: Final = 25.0


@dataclass(frozen=True, slots=True)
class World:
    """What a manager takes from outside; a simulation brings its own.

    `source` is how the lease's keeper reaches the API server, `connect` opens
    the fenced client that the controllers use.  `threaded` gives the keeper and
    the health server threads of their own.  `die` must end the process.
    `instance` is `ShardLease`'s (`None`: the pod's).
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


class Manager:
    """A shard of `ring` that runs controllers; `add` them, then `run`.

    `shard` defaults to the host name, `namespace` (of the lease) to the pod's,
    then the kubeconfig's.  Objects are watched in `watch_namespace` (`None`: in
    all).  `fenced`, `restart_grace_seconds` and `timings` are `ShardLease`'s.
    Addresses are written as Go programs do; "0" listens nowhere.
    Running reconciles have `grace_seconds` to end when the process is stopped.
    """

    def __init__(
        self,
        ring: str,
        *,
        shard: str | None = None,
        namespace: str | None = None,
        watch_namespace: str | None = None,
        kubeconfig: str | None = None,
        context: str | None = None,
        timings: LeaseTimings | None = None,
        fenced: bool | None = None,
        restart_grace_seconds: int = 0,
        grace_seconds: float = GRACE_SECONDS,
        health_address: str = ":8081",
        metrics_address: str = ":8080",
        metrics: Metrics | None = None,
    ) -> None:
        self.ring = ring
        self.metrics = metrics or Metrics()
        #: Set to stop in order, as SIGTERM does.
        self.stopping = asyncio.Event()
        self._shard = shard
        self._namespace = namespace
        self._watch_namespace = watch_namespace
        self._kubeconfig = kubeconfig
        self._context = context
        self._timings = timings or LeaseTimings()
        self._fenced = fenced
        self._restart_grace_seconds = restart_grace_seconds
        self._grace_seconds = grace_seconds
        self._addresses = (parse_address(health_address), parse_address(metrics_address))
        self._specs: list[ControllerSpec[Any]] = []
        self._lease: ShardLease | None = None
        self._workload: Workload | None = None

    def add(self, spec: ControllerSpec[Any]) -> Self:
        """Run this controller, too.  Raises: ConfigurationError when it does not go with the others."""
        check_specs([*self._specs, spec])
        self._specs.append(spec)
        return self

    def run(self) -> NoReturn:
        """Be the process: run until a signal, a lost lease or a failure.  Raises: SystemExit with an `ExitCode`."""
        with asyncio.Runner() as runner:
            code = runner.run(self.run_async())
        raise SystemExit(int(code))

    async def run_async(self, world: World | None = None) -> ExitCode:
        """The same inside an event loop; returns the exit code instead of exiting.

        Cancel it to stop without waiting for running reconciles.
        """
        try:
            world = world or await self._real_world()
            lease = self._make_lease(world)
            with contextlib.ExitStack() as around:
                if world.signals:
                    around.enter_context(stop_on_signal(self.stopping.set))
                if world.serve:
                    around.enter_context(self._serve(lease))
                return await self._hold_until_stopped(world, lease)
        except ConfigurationError as error:
            log.critical("The shard cannot run: %s", error)
            return ExitCode.CONFIGURATION
        except LeaseLost as error:
            log.critical("The shard ends: %s", error)
            return ExitCode.LEASE_LOST
        except ShardingError as error:
            log.critical("The shard cannot go on: %s", error)
            return ExitCode.FAILED

    async def _real_world(self) -> World:
        access = await load_access(self._kubeconfig, self._context)
        return World(
            access,
            lambda lease: lease.client(on_call=self.metrics.count_call),
            SystemClock(),
            random.Random(),
        )

    def _make_lease(self, world: World) -> ShardLease:
        lease = ShardLease(
            world.source,
            self.ring,
            self._shard,
            self._namespace,
            timings=self._timings,
            fenced=self._fenced,
            instance=world.instance,
            restart_grace_seconds=self._restart_grace_seconds,
            threaded=world.threaded,
            clock=world.clock,
            rng=world.rng,
            on_deadline=lambda: world.die(ExitCode.LEASE_LOST, "the lease is lost and work under it still runs"),
        )
        self._lease = lease
        self.metrics.gauge(
            "shardsdk_lease_remaining_seconds",
            "Seconds for which writes are allowed",
            lambda: max(lease.fence.remaining(), 0.0),
        )
        return lease

    # -- the way through a shard's life ----------------------------------------

    async def _hold_until_stopped(self, world: World, lease: ShardLease) -> ExitCode:
        """Wait for the lease and work under it; a stop before the lease is there ends the wait."""
        stopping = asyncio.create_task(self.stopping.wait())
        holding = asyncio.create_task(self._hold(world, lease))
        try:
            while not holding.done():
                await asyncio.wait([holding, stopping], return_when=asyncio.FIRST_COMPLETED)
                if stopping.done():
                    if self._workload is None:
                        holding.cancel()
                    await asyncio.wait([holding])
            return ExitCode.OK if holding.cancelled() else holding.result()
        except asyncio.CancelledError:
            holding.cancel()
            await asyncio.wait([holding])
            raise
        finally:
            stopping.cancel()

    async def _hold(self, world: World, lease: ShardLease) -> ExitCode:
        async with lease, world.connect(lease) as api:
            lease.settle_first(api.writes_settled)
            identity = ShardIdentity(lease.ring, lease.name)
            self._workload = workload = Workload(
                self._specs,
                identity,
                api,
                lease.fence,
                namespace=self._watch_namespace,
                clock=world.clock,
                rng=world.rng,
                metrics=self.metrics,
            )
            log.info("Shard is working", extra={"ring": self.ring, "shard": lease.name})
            ended = await workload.run(self.stopping, self._grace_seconds)
            match ended:
                case Ended.STOPPED:
                    return ExitCode.OK
                case Ended.FAILED:
                    return ExitCode.FAILED
                case Ended.STUCK:
                    # The lease is not released: it runs out, and whoever takes over is safe.
                    world.die(ExitCode.STUCK, "reconciles still run although the time for stopping is over")
                    return ExitCode.STUCK
                case _:
                    assert_never(ended)

    # -- health ------------------------------------------------------------------

    @contextlib.contextmanager
    def _serve(self, lease: ShardLease) -> Iterator[None]:
        """Health and metrics, from threads of their own: they answer while the main loop is blocked."""
        self.metrics.add_process_metrics()
        health = Endpoints(
            healthz=Checks({"main-loop": lambda: self._check_main_loop(lease)}),
            readyz=Checks({"lease": self._check_lease, "caches": self._check_caches, "stopping": self._check_stopping}),
        )
        metrics = Endpoints(metrics=self.metrics.render)
        health_address, metrics_address = self._addresses
        with contextlib.ExitStack() as servers:
            if health_address and health_address == metrics_address:
                both = Endpoints(health.healthz, health.readyz, self.metrics.render)
                servers.enter_context(serve_in_thread(health_address, both))
            else:
                for address, endpoints in ((health_address, health), (metrics_address, metrics)):
                    if address:
                        servers.enter_context(serve_in_thread(address, endpoints))
            yield

    def _check_main_loop(self, lease: ShardLease) -> str | None:
        """A loop that is blocked for longer than a lease lasts would have lost it, but for the keeper's thread."""
        stalled = lease.main_loop_stalled_seconds()
        limit = self._timings.lease_duration
        return f"the event loop has been blocked for {stalled:.0f} s" if stalled > limit else None

    def _check_lease(self) -> str | None:
        state = LeaseState.WAITING if self._lease is None else self._lease.state
        return None if state is LeaseState.HELD else state.value

    def _check_caches(self) -> str | None:
        return "not started" if self._workload is None else self._workload.check_synced()

    def _check_stopping(self) -> str | None:
        return "the shard is stopping" if self.stopping.is_set() else None

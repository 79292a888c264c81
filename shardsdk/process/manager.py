"""Manager: makes a shard, an elected controller, or both of a process, from its start to its exit code.

    manager = Manager(ring="example", election=Election("example"))
    manager.add(controller_for(SECRETS).owns(CONFIGMAPS).reconcile(reconcile))
    manager.add(controller_for(NODES).on_leader().reconcile(sweep))
    manager.run()

What runs is in three scopes (`Scope`): sharded work under the shard's lease, a leader's work under the election's, and
work on every replica.  Without a ring nothing is sharded; without an election everything unsharded runs everywhere.

Order of start: health and metrics; caches of what is not sharded, complete before this replica stands for election;
lease and election; a shard's caches; controllers and tasks.  Order of stop: not ready any more, no new reconcile, the
Lease says so, running ones end, tasks end, writes are settled, leases are released, caches, servers.  Lost lease or
election: no new reconcile, running ones are cancelled, writes refused, exit code not zero, by force at the deadline.

Guarantees (tests/unit/shardsdk/process/test_manager.py, tests/unit/shardsdk/lease/test_leadership.py,
tests/integration/test_shard_runtime.py): the process holds the lease whenever a reconcile that needs it begins, and
that work has ended before anyone may take the lease.  Nothing goes on after a lost lease; whoever restarts the process
brings back a clean one.  A manager is a shard of one ring; in two rings there are two.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, NoReturn, Self

from shardsdk.cache.identity import Identity
from shardsdk.cache.objects import Request, drop_managed_fields
from shardsdk.errors import LeaseLost, ShardingError
from shardsdk.kube.api import Api, Fence
from shardsdk.kube.selectors import Selector
from shardsdk.kube.store import Index
from shardsdk.lease.hold import Hold
from shardsdk.lease.leadership import Candidate, Election
from shardsdk.lease.shardlease import LeaseState, ShardLease
from shardsdk.lease.timings import LeaseTimings
from shardsdk.logs import logger_of, setup_logging_unless_done
from shardsdk.process import checks
from shardsdk.process.changeover import OtherForm
from shardsdk.process.health import Check, listen_at, parse_address
from shardsdk.process.leases import Leases
from shardsdk.process.mainloop import MainLoop
from shardsdk.process.memory import spare_memory
from shardsdk.process.probes import CACHES, LEASE, MAIN_LOOP, STOPPING, Probes
from shardsdk.process.process import ExitCode, exit_code_for, run_process, stop_on_signal
from shardsdk.process.rights import ReadingRights, check_caches, rights_by_ranges, rights_of
from shardsdk.process.together import run_together, until_stopped
from shardsdk.process.workload import CANCEL_SECONDS, Workload
from shardsdk.process.world import World, end_with_lead, ended_with, load_world
from shardsdk.protocol.objects import GroupResource, Resource
from shardsdk.queueing.metrics import Metrics
from shardsdk.reconcile.caches import Caches, CacheSettings, needs_shared, prepare
from shardsdk.reconcile.explain import Explanation
from shardsdk.reconcile.mainresource import Unfenced
from shardsdk.reconcile.spec import ControllerSpec, Scope, Task, TaskSpec, Work

__all__ = ["GRACE_SECONDS", "Manager", "World"]

log: Final = logger_of(__name__)

#: A pod has 30 s from SIGTERM to SIGKILL; what is left is for the release.
GRACE_SECONDS: Final = 25.0


class Manager:
    """A process that runs controllers; `add` them, then `run`.

    With a `ring` it is the ring's shard called `shard` (by default the host's
    name), whose Lease is in `namespace` (by default the pod's, then the
    kubeconfig's).  With an `election` its unsharded controllers run on one
    replica at a time, else on every one.  Objects are watched in
    `watch_namespace` (`None` or empty: in all; several may be given).  `fenced`
    and `restart_grace_seconds` are `ShardLease`'s, and need a ring, as `shard` does;
    `timings` are those of each lease, but of an election that has its own.
    Addresses are written as Go programs do, by default :8081 and :8080 in a pod and "0" (nowhere) elsewhere.
    What objects wait for is told at /debug/objects to this machine, or with `debug_to_all` to everybody.
    Running reconciles have `grace_seconds` to end when the process is stopped.
    To API servers it introduces itself as `program`, NAME/VERSION, and as its shard.

    What is wrong with these is said by `run`, in a sentence, with exit code 2.
    """

    def __init__(
        self,
        ring: str | None = None,
        *,
        election: Election | None = None,
        shard: str | None = None,
        namespace: str | None = None,
        watch_namespace: str | Sequence[str] | None = None,
        kubeconfig: str | os.PathLike[str] | None = None,
        context: str | None = None,
        timings: LeaseTimings | None = None,
        fenced: bool | None = None,
        restart_grace_seconds: int = 0,
        grace_seconds: float = GRACE_SECONDS,
        health_address: str | None = None,
        metrics_address: str | None = None,
        metrics: Metrics | None = None,
        debug_to_all: bool = False,
        program: str = "",
    ) -> None:
        self.ring = ring
        self.metrics: Metrics = metrics or Metrics()
        #: Set to stop in order, as SIGTERM does.
        self.stopping: Final = asyncio.Event()
        self.election = election
        self.shard: str | None = shard
        self.namespace: str | None = namespace
        self.watch_namespaces: Final = checks.listed(watch_namespace)
        self.kubeconfig: str | os.PathLike[str] | None = kubeconfig
        self.context: str | None = context
        self.program = program
        self._leases = Leases(ring, election, shard, namespace, timings, fenced, restart_grace_seconds)
        self._grace_seconds = grace_seconds
        self.addresses: tuple[str | None, str | None] = (health_address, metrics_address)
        #: Where health and what objects wait for are told besides, as `shardsdk run` has it; empty: nowhere.
        self.socket: str = ""
        #: What is not to be at work beside this process, which waits for it to end.
        self.other_form: OtherForm = OtherForm()
        #: What it was told by `add` and `cache`.
        self.controllers: Final[list[ControllerSpec[Any]]] = []
        self.cached: Final[dict[GroupResource, CacheSettings]] = {}
        self._tasks: list[TaskSpec] = []
        self._begun = False
        self._probes = Probes(debug_to_all=debug_to_all)
        self._lease: ShardLease | None = None
        self._rights: list[ReadingRights] = []
        self._workload: Workload | None = None
        self._shared: Caches | None = None

    # -- what it runs ----------------------------------------------------------

    def add(self, spec: ControllerSpec[Any]) -> Self:
        """Run this controller, too.  Raises: ConfigurationError when it does not go with the others, or is late."""
        checks.check_in_time(self._begun, "add")
        checks.check_specs([*self.controllers, spec])
        self.controllers.append(spec)
        return self

    def run_task(
        self, function: Task, *, name: str = "", scope: Scope | None = None, grace_seconds: float = 0.0
    ) -> Self:
        """Run `function(api)` as long as the controllers of `scope` run, by default where those that say nothing do.

        It may return early; what it raises ends the process.  It is cancelled when reconciles have ended, the last
        that was given first, one that heeds `stopping` after `grace_seconds`; `api` is fenced by the scope's lease.

            manager.run_task(serve_webhooks, scope=Scope.EVERYWHERE)
        Raises: ConfigurationError when it has begun to run.
        """
        checks.check_in_time(self._begun, "run_task")
        self._tasks.append(TaskSpec(name or getattr(function, "__name__", "task"), function, scope, grace_seconds))
        return self

    def cache(
        self,
        resource: Resource,
        *,
        namespaces: Sequence[str] | None = None,
        selector: Selector | None = None,
        indexes: Mapping[str, Index[Any]] | None = None,
        transform: Callable[[Any], Any] = drop_managed_fields,
    ) -> Self:
        """Say what is cached of `resource`, for whatever controllers look at it.

        `namespaces` instead of the manager's; only what `selector` selects by
        labels and fields (not for a sharded main resource, whose every object
        must be seen to be given away: use a predicate there); `indexes` for
        `Cache.by_index`; `transform` to drop what nobody needs (then `metadata.managedFields`
        is dropped only if it says so).
        What is said of one resource in several calls holds together, as an operator's indexes with what you add.

            manager.cache(PODS, selector=Selector(fields="status.phase=Running"), indexes={"node": node_of})
        Raises: ConfigurationError when it has begun to run, for an async index, and for what was said otherwise before.
        """
        checks.check_in_time(self._begun, "cache")
        where = None if namespaces is None else tuple(namespaces)
        said = CacheSettings(where, selector, indexes or {}, transform)
        name = resource.group_resource
        self.cached[name] = self.cached.get(name, CacheSettings()).joined(said, name)
        return self

    def add_health_check(self, name: str, check: Check) -> Self:
        """/healthz also asks `check`, in a thread, for a second: `None` when all is well, else what is wrong."""
        self._probes.healthz.add(name, checks.usable(name, check, {MAIN_LOOP}), threaded=True)
        return self

    def add_ready_check(self, name: str, check: Check) -> Self:
        """/readyz also asks `check`, in a thread, for a second: `None` when all is well, else what is wrong."""
        self._probes.readyz.add(name, checks.usable(name, check, {LEASE, CACHES, STOPPING}), threaded=True)
        return self

    # -- running ---------------------------------------------------------------

    def run(self) -> NoReturn:
        """Be the process: run until a signal, a lost lease or a failure.  Raises: SystemExit with an `ExitCode`.

        A program that has not said how it logs shows lines of level info and above on stderr.  What then still runs by
        `asyncio.to_thread` has a second to end; then the process ends by force.
        """
        setup_logging_unless_done()
        spare_memory()
        raise SystemExit(int(run_process(self.run_async())))

    async def run_async(self, world: World | None = None) -> ExitCode:
        """The same inside an event loop of the main thread, once; returns the exit code instead of exiting.

        Cancel it to stop without waiting for running reconciles.
        """
        try:
            checks.check_first(self._begun)
            self._begun = True
            checks.check_told(self)
            addresses = [*listen_at(*self.addresses), parse_address(self.socket)]
            checks.check_grace(self._grace_seconds)
            self._leases = self._leases.now(self.ring, self.election, self.shard, self.namespace)
            self._leases.check()
            work = checks.check_work(self.controllers, self._tasks, ring=self.ring, election=self.election)
            checks.check_settings(self.cached, work[Scope.SHARDED])
            checks.check_indexes(self.controllers, self.cached)
            world = world or await load_world(self.kubeconfig, self.context, self.metrics, self.program)
            lease = None if self.ring is None else self._make_lease(world, self.ring, work[Scope.SHARDED])
            candidate = self._make_candidate(world) if work[Scope.LEADER] else None
            checks.check_leases(lease, candidate, self.other_form.operator)
            self.metrics.other_form(lambda: float(self.other_form.awaited))
            self._probes.debug.held_by_other_form = lambda: self.other_form.held
            if lease is not None:
                self.metrics.lease(lambda: self._lease.fence.remaining() if self._lease else 0.0)
            with contextlib.ExitStack() as around:
                around.callback(end_with_lead, candidate, world)
                if world.signals:
                    around.enter_context(stop_on_signal(self.stopping.set))
                if world.serve:
                    main_loop = self._make_checks(world, work)
                    around.enter_context(self._probes.serve(addresses, self.metrics, main_loop))
                return await self._run_scopes(world, work, lease, candidate)
        except ShardingError as error:
            return exit_code_for(error)

    def _make_lease(self, world: World, ring: str, work: Work) -> ShardLease:
        self._lease = self._probes.debug.shard_lease = lease = self._leases.shard_lease(world, ring, work)
        return lease

    def _make_candidate(self, world: World) -> Candidate:
        assert self.election is not None
        candidate = self._leases.candidate(world, self.election)
        self._probes.debug.lease = (candidate.namespace, self.election.name)
        self.metrics.leader(self.election.name, lambda: float(candidate.leads))
        return candidate

    # -- the scopes --------------------------------------------------------------

    async def _run_scopes(
        self, world: World, work: Mapping[Scope, Work], lease: ShardLease | None, candidate: Candidate | None
    ) -> ExitCode:
        """Everything that runs, side by side, above the caches of what is not sharded."""
        timings = self._leases.timings_of_process
        async with contextlib.AsyncExitStack() as around:
            parts: list[Coroutine[Any, Any, ExitCode]] = []
            background: list[Coroutine[Any, Any, None]] = []
            if needs_shared(work):
                api = await around.enter_async_context(world.client())
                self._shared = shared = self._make_caches(world, api, None)
                prepare(shared, work)
                background.append(shared.run())
                if work[Scope.EVERYWHERE]:
                    parts.append(self._work_everywhere(world, work[Scope.EVERYWHERE], api, shared))
                if candidate is not None:
                    leading = self._lead(world, work[Scope.LEADER], candidate, shared)
                    parts.append(until_stopped(leading, self.stopping, lambda: candidate.leads))
            if lease is not None:
                holding = self._hold(world, lease, work[Scope.SHARDED])
                parts.append(until_stopped(holding, self.stopping, lambda: self._workload is not None))
            return await run_together(
                parts, background, stop=self._stop_failed,
                # Until the lost lease may be taken by somebody else.
                cancel_seconds=max(timings.lease_duration - timings.renew_deadline, CANCEL_SECONDS),
                stuck=lambda failure: world.die(
                    ExitCode.LEASE_LOST if isinstance(failure, LeaseLost) else ExitCode.STUCK,
                    "work still runs although the process is to end",
                ),
            )  # fmt: skip

    def _stop_failed(self) -> None:
        """Stop in order because a part has failed, as the Lease then says."""
        self.stopping.set()
        if self._lease is not None:
            self._lease.tell_failed()

    async def _hold(self, world: World, lease: ShardLease, work: Work) -> ExitCode:
        """Wait for the shard's lease, and work under it."""
        from shardsdk.process.assigning import identify, read_ranges  # loaded when it is used

        await self._may_read(world, rights_of(work, self.cached, self.watch_namespaces, world))
        ranges = await read_ranges(world, lease.ring.ring)
        identity = identify(lease, ranges, work)
        if ranges is not None:
            await self._may_read(world, rights_by_ranges(lease, world))
        while True:
            await self.other_form.wait_until_gone(world, lease.namespace)
            async with ended_with(lease, world), lease, world.connect(lease) as api:
                lease.settle_first(api.writes_settled)
                if await self.other_form.is_gone(world, lease.namespace, api):
                    self._workload = workload = self._make_sharded(world, lease, api, work, identity)
                    log.info("Shard is working", extra={"ring": self.ring, "shard": lease.name})
                    return await self._run_workload(world, workload)
            lease = self._make_lease(world, lease.ring.ring, work)

    async def _may_read(self, world: World, rights: ReadingRights) -> ExitCode:
        """Return when this process may read what it works on."""
        self._rights.append(rights)
        await rights.wait(world.open)
        return ExitCode.OK

    def _make_sharded(self, world: World, lease: ShardLease, api: Api, work: Work, identity: Identity) -> Workload:
        return Workload(
            work, identity, api, lease.fence, caches=self._make_caches(world, api, identity), shared=self._shared,
            lease=lease, component=lease.ring.ring, clock=world.clock, rng=world.rng, metrics=self.metrics,
            looked_at=(lambda: lease.looked_at) if world.serve else None,  # in memory nobody looks at leases
        )  # fmt: skip

    async def _lead(self, world: World, work: Work, candidate: Candidate, shared: Caches) -> ExitCode:
        """Warm up, wait to be elected, and work as the leader."""
        code = ExitCode.OK
        # Whoever cannot see what it is to work on must not keep others from leading.
        await self._may_read(world, rights_of(work, self.cached, self.watch_namespaces, world))
        await shared.wait_synced(work)

        async def lead(hold: Hold) -> None:
            nonlocal code
            async with world.client(hold) as api:
                candidate.settle_first(api.writes_settled)
                alone = self.other_form.wait_until_gone(world, candidate.namespace, api)
                await until_stopped(alone, self.stopping, lambda: False)
                if self.stopping.is_set():
                    return  # the other form may be at work
                workload = self._make_unsharded(world, work, api, hold, shared, catches_up=True)
                log.info("Leader is working", extra={"election": candidate.election.name})
                code = await self._run_workload(world, workload)

        async with world.client() as api:
            await candidate.run(api, lead)
        return code

    async def _work_everywhere(self, world: World, work: Work, api: Api, shared: Caches) -> ExitCode:
        reading = self._may_read(world, rights_of(work, self.cached, self.watch_namespaces, world))
        await until_stopped(reading, self.stopping, lambda: False)
        workload = self._make_unsharded(world, work, api, Unfenced(), shared, catches_up=False)
        return await self._run_workload(world, workload)

    def _make_unsharded(
        self, world: World, work: Work, api: Api, fence: Fence, shared: Caches, *, catches_up: bool
    ) -> Workload:
        component = self.election.name if self.election else self.ring or "controller"
        return Workload(
            work, None, api, fence, caches=shared, shared=shared, component=component, catches_up=catches_up,
            clock=world.clock, rng=world.rng, metrics=self.metrics,
        )  # fmt: skip

    async def _run_workload(self, world: World, workload: Workload) -> ExitCode:
        with self._probes.debug.answering_for(workload):
            code = await workload.run(self.stopping, self._grace_seconds)
        if code is ExitCode.STUCK:
            # No lease is released: it runs out, and whoever takes over is safe.
            world.die(ExitCode.STUCK, f"the time for stopping is over, and there still run: {workload.left}")
        return code

    def _make_caches(self, world: World, api: Api, shard: Identity | None) -> Caches:
        where = self.watch_namespaces
        return Caches(api, shard, namespaces=where, settings=self.cached, clock=world.clock, rng=world.rng)

    def explain(self, request: Request) -> list[Explanation]:
        """What an object waits for, in each controller of its that runs; to be asked in the manager's event loop."""
        return self._probes.debug.explain(request)

    # -- health ------------------------------------------------------------------

    def _make_checks(self, world: World, work: Mapping[Scope, Work]) -> MainLoop:
        main_loop = MainLoop(world.clock, self._leases.timings_of_process.lease_duration)
        self._probes.healthz.add(MAIN_LOOP, main_loop.check)
        if self.ring is not None:
            self._probes.readyz.add(LEASE, self._check_lease)
        # Whoever answers others (webhooks, say) needs no caches for that: all replicas not ready would answer nobody.
        self._probes.readyz.add(CACHES, lambda: self._check_caches(unread=not work[Scope.EVERYWHERE].tasks))
        self._probes.readyz.add(STOPPING, lambda: "the process is stopping" if self.stopping.is_set() else None)
        return main_loop

    def _check_lease(self) -> str | None:
        state = LeaseState.WAITING if self._lease is None else self._lease.state
        return None if state is LeaseState.HELD or self.other_form.awaited else state.value

    def _check_caches(self, *, unread: bool = True) -> str | None:
        if self.other_form.awaited:
            return None
        sharded = self.ring is not None
        return check_caches(self._rights, self._shared, self._workload, sharded=sharded, unread=unread)

"""kopf: makes an existing kopf operator a shard; needs `pip install 'controller-sharding[kopf]'`.

    import handlers                                    # the operator, as `kopf run handlers.py` takes it
    from shardsdk.contrib.kopf import KopfShard

    KopfShard("my-ring", main=[SECRETS]).run(namespaces=["default"])

Guarantees (tests/integration/test_kopf.py, tests/unit/shardsdk/contrib/test_kopf_schedules.py):

- kopf watches only this shard's objects: the API server filters by label.
- A drain is acknowledged when no handler, daemon or timer runs, neither of that object
  nor of one that it controls, and no write of this shard is under way; until then
  nobody else begins.
- Handlers of a controlled object begin when its owner is this shard's, or was deleted.
- Nothing begins without the lease.  When it is lost, handlers are cancelled,
  kopf's own writes are refused, and the process ends before anyone may take it.
- An object that another shard gave away is resumed here (`@kopf.on.resume`),
  and the labels of the ring are no change of the object.

- A ring that assigns by ranges of hashes is refused before the lease is sought, and when it
  becomes one: kopf asks by labels.

Does not guarantee:

- To fence what handlers write by clients of their own.  Use `shard.api`, or ask
  `shard.fence`; say `fenced=True` when all of them do.
- To hurry a handler that runs: a drain waits for it.  Daemons and timers are
  told to stop, and cancelled after `drain_timeout_seconds`.
- Anything about admission handlers: they are called in every shard.
- To end the handler of a controlled object whose shard label is changed by hand while its
  owner stays.
- To acknowledge drains of a main resource without any handler: kopf does not watch it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping, MutableMapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, NoReturn, TypeVar

import kopf
from kopf._cogs.structs.credentials import Vault
from kopf._cogs.structs.references import Resource as KopfResource
from kopf._cogs.structs.references import select_specific_namespaces
from kopf._core.engines import activities
from kopf._core.intents.causes import Activity
from kopf._core.reactor import processing
from kopf._core.reactor.inventory import ResourceMemories

from shardsdk.cache.identity import ShardIdentity
from shardsdk.contrib.kopf_gate import Gate
from shardsdk.contrib.kopf_relay import Relay
from shardsdk.errors import ConfigurationError, ShardingError
from shardsdk.kube.access import load_access
from shardsdk.kube.api import Fence
from shardsdk.kube.client import Client
from shardsdk.kube.clock import SystemClock
from shardsdk.lease.shardlease import ShardLease
from shardsdk.lease.timings import LeaseTimings
from shardsdk.logs import enable_loggers, logger_of
from shardsdk.process.process import ExitCode, die, exit_code_for, run_process, stop_on_signal
from shardsdk.process.ringcheck import RingCheck
from shardsdk.process.together import see_out
from shardsdk.protocol.objects import GroupResource, Resource

__all__ = [
    "KopfShard",
]

log: Final = logger_of(__name__)

T = TypeVar("T")

#: Startup handlers that take longer are told of, and again.
STARTUP_SECONDS: Final = 30.0
#: What the Lease takes the place of, and what a shard has of its own.
_PEERING: Final = ("standalone", "peering_name", "priority")
_OWN: Final = ("memories", "vault")
#: The handlers of these registries are called for objects; each object is one shard's.
_REGISTRIES: Final = ("_indexing", "_watching", "_spawning", "_changing")


class KopfShard:
    """A shard of `ring` whose work is a kopf operator; `run` it instead of `kopf run`.

    `main` and `controlled` are the ring's resources that have handlers; each of `main` needs one.
    `shard`, `namespace`, `timings` and `restart_grace_seconds` are `ShardLease`'s.
    `fenced`: promise in the lease that everything the handlers write is fenced.
    """

    def __init__(
        self,
        ring: str,
        *,
        main: Sequence[Resource],
        controlled: Sequence[Resource] = (),
        shard: str | None = None,
        namespace: str | None = None,
        kubeconfig: str | None = None,
        context: str | None = None,
        timings: LeaseTimings | None = None,
        fenced: bool = False,
        restart_grace_seconds: int = 0,
        drain_timeout_seconds: float | None = None,
    ) -> None:
        self.ring = ring
        self._main = tuple(main)
        self._controlled = tuple(controlled)
        self._options: dict[str, Any] = {
            "name": shard,
            "namespace": namespace,
            "timings": timings,
            "fenced": fenced,
            "restart_grace_seconds": restart_grace_seconds,
        }
        self._kubeconfig = kubeconfig
        self._context = context
        self._drain_timeout_seconds = drain_timeout_seconds
        self._lease: ShardLease | None = None
        self._api: Client | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._working = False

    # -- for handlers ------------------------------------------------------------

    @property
    def name(self) -> str:
        """This shard's name."""
        return self._held().name

    @property
    def fence(self) -> Fence:
        """What to ask before a write through a client of one's own: `remaining()` seconds are left for it."""
        return self._held().fence

    @property
    def api(self) -> Client:
        """A client whose writes are refused once the lease has run out; for async handlers."""
        self._held()
        assert self._api is not None
        return self._api

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Await something on the operator's loop, such as a call of `api`; for plain handlers, which run in threads.

        Raises: ConfigurationError in an async handler, which would wait for itself, and whatever `work` raises.
        """
        self._held()
        assert self._loop is not None
        if asyncio._get_running_loop() is self._loop:
            work.close()
            raise ConfigurationError("shard.call(…) is for plain handlers: in an async one, await the call")
        waiting: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return waiting.result()

    def label(self, *children: MutableMapping[str, Any]) -> None:
        """Make new objects of a controlled resource this shard's, so that it sees them at once."""
        lease = self._held()
        for child in children:
            child.setdefault("metadata", {}).setdefault("labels", {})[lease.ring.shard] = lease.name

    def _where(self) -> dict[str, str]:
        return {"ring": self.ring, "shard": "" if self._lease is None else self._lease.name}

    def _held(self) -> ShardLease:
        if self._lease is None or not self._working:
            raise RuntimeError("the shard does not work yet; use it inside a handler")
        return self._lease

    # -- the process -------------------------------------------------------------

    def run(self, **operator: Any) -> NoReturn:
        """Be the process: hold the lease and run the operator.  Raises: SystemExit with an `ExitCode`.

        `operator` is what `kopf.operator` takes, such as `namespaces`, `clusterwide`, `liveness_endpoint`, but for
        peering, of which the Lease takes the place.  A program that has not said how it logs logs as under `kopf run`.
        """
        if not logging.getLogger().hasHandlers():
            kopf.configure()
        enable_loggers()

        async def main() -> ExitCode:
            code = await self.run_async(**operator)
            if code is ExitCode.LEASE_LOST:
                die(code, "the lease is lost")  # whatever threads still do
            return code

        raise SystemExit(int(run_process(main())))

    async def run_async(self, **operator: Any) -> ExitCode:
        """The same inside an event loop; returns the exit code instead of exiting."""
        try:
            _check_options(operator)
            registry = operator.setdefault("registry", kopf.get_default_registry())
            self._check_handlers(registry)
            access = await load_access(self._kubeconfig, self._context)
            lease = self._lease = ShardLease(
                access, self.ring, **self._options, on_deadline=_die, mains=[each.group_resource for each in self._main]
            )
            task = asyncio.current_task()
            assert task is not None
            with stop_on_signal(task.cancel):  # until kopf takes over the signals
                async with lease, lease.client() as api, Relay(api.access, [lease.fence]) as session:
                    self._api = api
                    lease.settle_first(session.writes_settled)
                    await self._operate(lease, api, session, operator)
        except asyncio.CancelledError:
            if self._working:
                raise
            return ExitCode.OK
        except ShardingError as error:
            return exit_code_for(error, self._where())
        except Exception:
            log.critical("The operator has failed", exc_info=True, extra=self._where())
            return ExitCode.FAILED
        return ExitCode.OK

    async def _operate(self, lease: ShardLease, api: Client, session: Relay, operator: dict[str, Any]) -> None:
        identity = ShardIdentity(lease.ring, lease.name)
        memories = ResourceMemories()

        async def settle() -> None:
            await session.writes_settled()
            await api.writes_settled()

        gate = Gate(
            processing.process_resource_event,
            identity,
            api,
            lease,
            settle=settle,
            main=self._main,
            controlled=self._controlled,
            memories=memories,
            drain_timeout_seconds=self._drain_timeout_seconds,
        )
        self._loop, self._working = asyncio.get_running_loop(), True
        watching = asyncio.create_task(gate.stop_when_lost(), name="shardsdk/lost")
        mains = frozenset(each.group_resource for each in self._main)
        owned = {each.group_resource: mains for each in self._controlled}
        check = RingCheck(
            api, lease.ring.ring, mains, owned,
            shard=lease.name, watched=self._watched(operator), clock=SystemClock(),
            looked_at=lambda: lease.looked_at,
        )  # fmt: skip
        comparing = asyncio.create_task(check.run(), name="shardsdk/ring")
        await asyncio.sleep(0)
        existing = asyncio.all_tasks()
        vault = Vault({"shardsdk": _credentials(api, session)})
        try:
            with _in_place_of_kopfs_own(gate, self._startup):
                tasks = await kopf.spawn_tasks(memories=memories, vault=vault, standalone=True, **operator)
            await _run_until_either_ends(kopf.run_tasks(tasks, ignored=existing), comparing)
        finally:
            watching.cancel()
            comparing.cancel()

    def _watched(self, operator: Mapping[str, Any]) -> frozenset[str] | None:
        """The namespaces in which main resources are watched; `None`: in all, or in those that patterns name."""
        given = set(operator.get("namespaces") or filter(None, [operator.get("namespace")]))
        if operator.get("clusterwide") or not given or not any(each.namespaced for each in self._main):
            return None
        named = frozenset(select_specific_namespaces(given))
        if named != given:
            log.info(
                "Namespaces are watched by patterns; nobody compares them with those that the ring covers",
                extra={**self._where(), "patterns": sorted(map(str, given - named))},
            )
            return None
        return named

    @contextlib.contextmanager
    def _startup(self, settings: kopf.OperatorSettings) -> Iterator[None]:
        """Around all startup handlers: whatever they have set, kopf watches only what is this shard's."""
        telling = asyncio.create_task(self._tell_of_startup(), name="shardsdk/startup")
        try:
            yield
        finally:
            telling.cancel()
        self._prepare(settings)
        log.info("Shard is working", extra=self._where())

    async def _tell_of_startup(self) -> None:
        """Say so while startup handlers take long: the lease is held, for their sake, and its objects wait for them."""
        for times in itertools.count(1):
            await asyncio.sleep(STARTUP_SECONDS)
            waited = times * STARTUP_SECONDS
            log.warning("Startup handlers have not succeeded for %g s; its objects wait", waited, extra=self._where())

    def _prepare(self, settings: kopf.OperatorSettings) -> None:
        lease = self._held()
        settings.watching.label_selectors[self._shares] = f"{lease.ring.shard}={lease.name}"
        for label in (lease.ring.shard, lease.ring.drain):
            settings.persistence.diffbase_storage.ignored_fields.append(("metadata", "labels", label))

    def _shares(self, resource: KopfResource) -> bool:
        """Whether the ring shares this resource."""
        return _name_of(resource) in {each.group_resource for each in (*self._main, *self._controlled)}

    def _check_handlers(self, registry: Any) -> None:
        """Raises: ConfigurationError for a handler that would be called in every shard."""
        shared = [_as_kopf_knows(each) for each in (*self._main, *self._controlled)]
        for name in _REGISTRIES:
            for handler in getattr(registry, name).get_all_handlers():
                if handler.selector is not None and not any(handler.selector.check(each) for each in shared):
                    raise ConfigurationError(
                        f"handler {handler.id!r} is for {handler.selector}, which is neither in `main` nor in"
                        " `controlled`: every shard would call it for every object. Add the resource there and to the"
                        " ring, name it by its plural, or run that handler in an operator of its own"
                    )


async def _run_until_either_ends(operator: Coroutine[Any, Any, None], check: asyncio.Task[None]) -> None:
    """Run the operator; when `check` fails, stop it in order and raise what that raised."""
    operating = asyncio.create_task(operator, name="shardsdk/kopf")
    try:
        await asyncio.wait({operating, check}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        failed = check.done() and not operating.done()
        if not operating.done():
            operating.cancel()
            if (interrupted := await see_out([operating])) is not None:
                raise interrupted
    (check if failed else operating).result()


def _check_options(operator: dict[str, Any]) -> None:
    """Check what `kopf.operator` is to be given, and take out of it what a shard says for itself.

    Raises: ConfigurationError.
    """
    if operator.get("standalone") is True:
        del operator["standalone"]  # so is every shard
    for name in (*_PEERING, *_OWN):
        value = operator.pop(name, None)
        if value is None:
            continue
        if name in _PEERING:
            raise ConfigurationError(
                f"{name}={value!r} is about kopf's peering, of which a shard's Lease takes the place: leave it out"
            )
        raise ConfigurationError(f"{name}= is not for a shard, which has its own: leave it out")


def _die() -> None:
    die(ExitCode.LEASE_LOST, "the lease is lost and handlers still run")


def _name_of(resource: KopfResource) -> GroupResource:
    return GroupResource(resource.group, resource.plural)


def _as_kopf_knows(resource: Resource) -> KopfResource:
    return KopfResource(
        resource.group,
        resource.version,
        resource.plural,
        kind=resource.kind,
        singular=resource.kind.lower(),
        namespaced=resource.namespaced,
    )


def _credentials(api: Client, session: Any) -> kopf.AiohttpSession:
    """Our session, which kopf takes for one of aiohttp's: it asks for `request`, `headers`, `closed` and `close`."""
    access = api.access
    return kopf.AiohttpSession(aiohttp_session=session, server=access.host, default_namespace=access.namespace)


@contextlib.contextmanager
def _in_place_of_kopfs_own(
    gate: Gate, startup: Callable[[kopf.OperatorSettings], contextlib.AbstractContextManager[None]]
) -> Iterator[None]:
    """Have the operator that is made meanwhile send each event through `gate`, and start within `startup`.

    A startup handler of ours would not be the last: kopf calls those again that have failed.
    """
    run = activities.run_activity

    async def run_activity(*, settings: kopf.OperatorSettings, activity: Activity, **more: Any) -> Any:
        with startup(settings) if activity is Activity.STARTUP else contextlib.nullcontext():
            return await run(settings=settings, activity=activity, **more)

    with contextlib.ExitStack() as ours:
        for module, name, own in (
            (processing, "process_resource_event", gate),
            (activities, "run_activity", run_activity),
        ):
            ours.callback(setattr, module, name, getattr(module, name))
            setattr(module, name, own)
        yield

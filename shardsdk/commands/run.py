"""`shardsdk run`: the program of a file as a process, at a prompt and in a pod.

    load ──> reach the API server ──> definitions, if asked ──> what is missing? ──> Manager

At a prompt it listens on no port unless it is told to, answers `shardsdk explain` by a socket that its user alone can
open, prints lines for people, and ends with what is missing and what to do about it.  In a pod it has a pod's ports,
prints JSON, and waits a while for what somebody may be about to install.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shardsdk.admission.settings import Serving
from shardsdk.commands.loading import Unloadable, load
from shardsdk.commands.preflight import assigns_ranges, find_namesake, find_problems
from shardsdk.commands.program import Program
from shardsdk.commands.reloading import UNLOADABLE, end_with_supervisor
from shardsdk.commands.sockets import socket_of
from shardsdk.commands.terminal import TerminalFormatter
from shardsdk.errors import (
    ApiError,
    ConfigurationError,
    ConnectionFailed,
    Forbidden,
    NotFound,
    ServerError,
    ShardingError,
    TooManyRequests,
    Unauthorized,
)
from shardsdk.kube.access import answering, in_pod, load_access
from shardsdk.kube.api import Api
from shardsdk.kube.client import Client
from shardsdk.kube.clock import Clock, SystemClock
from shardsdk.kube.definitions import NotInstalled, apply_crds
from shardsdk.kube.server import Access
from shardsdk.lease.pod import hostname, lease_namespace
from shardsdk.lease.pod import uid as pod_uid
from shardsdk.logs import LogFormat, LogLevel, enable_loggers, logger_of, setup_logging
from shardsdk.process.checks import check_told
from shardsdk.process.manager import Manager
from shardsdk.process.memory import spare_memory
from shardsdk.process.process import ExitCode, exit_code_for, run_process
from shardsdk.protocol.objects import NAMESPACES

log: Final = logger_of(__name__)

#: In a pod, how long to wait for types, rights and the ring: they are often applied together with it.
PATIENCE_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 2.0


FIELD_MANAGER: Final = "shardsdk-run"


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for at the prompt; `None`: nothing was said, so that the program or the surroundings decide."""

    source: str
    namespace: str | None = None
    watch_namespaces: Sequence[str] = ()
    shard: str | None = None
    restart_grace: int | None = None
    kubeconfig: str | None = None
    context: str | None = None
    health: str | None = None
    metrics: str | None = None
    webhooks: str | None = None
    install_crds: bool = False
    log_level: str = "info"
    log_format: str = "auto"
    #: The process of `--dev` that has started it, and does so again; 0: none has.
    supervised: int = 0

    def serving(self) -> Serving | None:
        """How webhooks are to be served; `None`: nothing was said.  Raises: ConfigurationError."""
        return None if self.webhooks is None else Serving.reached_at(self.webhooks)

    def settings(self) -> dict[str, Any]:
        """Those of a `Manager` that were given."""
        given = {
            "namespace": self.namespace,
            "watch_namespace": list(self.watch_namespaces) or None,
            "shard": self.shard,
            "restart_grace_seconds": self.restart_grace,
            "kubeconfig": self.kubeconfig,
            "context": self.context,
            "health_address": self.health,
            "metrics_address": self.metrics,
            "webhooks": self.serving(),
        }
        return {name: value for name, value in given.items() if value is not None}


def run(options: Options) -> int:
    """Be the process; gives its exit code.  Raises: ShardingError, with what to do, when it cannot begin."""
    as_json = _setup_logging(options)
    if options.supervised:
        end_with_supervisor(options.supervised)
    try:
        program, manager = _load(options)
        enable_loggers()
        spare_memory()
        return int(run_process(_run(program, manager, options)))
    except ShardingError as error:
        if not as_json:
            raise
        code = int(exit_code_for(error))
        return UNLOADABLE if options.supervised and isinstance(error, Unloadable) else code


def _load(options: Options) -> tuple[Program, Manager]:
    """Raises: Unloadable."""
    settings = options.settings()
    try:
        program = load(options.source)
        manager = program.manager_with(settings)
        check_told(manager)
        _check_said(program, manager, options)
        manager.socket = "" if in_pod() else _socket(program.name, options)
        return program, manager
    except ConfigurationError as error:
        raise Unloadable(str(error)) from error


def _check_said(program: Program, manager: Manager, options: Options) -> None:
    """Raises: ConfigurationError for what is said about a shard, or webhooks, where there is none."""
    said = {"--shard": options.shard, "--restart-grace": options.restart_grace}
    if manager.ring is None and (given := [name for name, value in said.items() if value is not None]):
        raise ConfigurationError(
            f"{program.source} is not sharded: leave out {' and '.join(given)}, or write Operator(…, sharded=True)"
        )
    if options.webhooks is not None and not program.operator.webhooks():
        raise ConfigurationError(
            f"{program.source} has no webhooks: leave out --webhooks, or write a function for @operator.validate"
        )


def _socket(name: str, options: Options) -> str:
    """Where `shardsdk explain` asks.  Raises: ConfigurationError, unless there is another address to ask at."""
    try:
        return f"unix:{socket_of(name, os.getpid(), os.environ)}"
    except ConfigurationError as error:
        if options.health is None:
            raise
        log.warning(
            "No socket could be made for whoever asks here; explain takes --address", extra={"error": str(error)}
        )
        return ""


async def _run(program: Program, manager: Manager, options: Options) -> ExitCode:
    access = await load_access(manager.kubeconfig, manager.context)
    patience = PATIENCE_SECONDS if in_pod() else 0.0
    async with Client(access) as api:
        await _prepare(api, access, program, manager, options, patience=patience)
    log.info("Running", extra={"program": program.name, "cluster": access.host, "from": access.origin})
    return await manager.run_async()


async def _prepare(
    api: Api, access: Access, program: Program, manager: Manager, options: Options, *, patience: float
) -> None:
    """Install what is to be installed, and look for what is missing.  Raises: ShardingError."""
    clock, until = SystemClock(), SystemClock().monotonic() + patience
    given = manager.namespace or (manager.election.namespace if manager.election else None)
    own = lease_namespace(given, access, "Leases belong: pass -n")
    while True:
        failure: ShardingError | None
        try:
            await _reach(api, access)
            if options.install_crds:
                await _install(api, program, clock)
            by_ranges = manager.ring is not None and await assigns_ranges(api, manager.ring)
            needs = program.needs(manager, own, (options.serving() or Serving()).here(), by_ranges=by_ranges)
            problem = "\n".join(await find_problems(api, needs))
            failure = ConfigurationError(problem) if problem else None
        except (ConnectionFailed, NotInstalled, ServerError, TooManyRequests) as error:
            failure = ConfigurationError(str(error))  # nothing has begun, and whoever calls has to do something
        if failure is None:
            await _tell_of_namesake(api, manager, own, clock)
            await _tell_of_namespaces(api, manager)
            return
        await _put_up_with(failure, clock, until)


async def _install(api: Api, program: Program, clock: Clock) -> None:
    """Bring the program's definitions up to date.  Raises: NotInstalled, ConnectionFailed."""
    try:
        # As the program says: whoever writes it takes fields out again.
        await apply_crds(api, program.definitions(), clock, field_manager=FIELD_MANAGER, allow_less=True)
    except Forbidden as error:
        raise NotInstalled(
            f"this identity may not install definitions: {error}; have somebody who may run"
            f" `shardsdk crd {program.source} | kubectl apply --server-side -f -`, and leave out --install-crds"
        ) from error


async def _tell_of_namesake(api: Api, manager: Manager, namespace: str, clock: Clock) -> None:
    """Two shards of one name never work at once, so that the second one waits: say so, and what to do."""
    shard = manager.shard or hostname()
    if manager.ring is None or pod_uid() is not None:
        return
    if (holder := await find_namesake(api, shard, namespace, manager.ring, clock.now())) is not None:
        log.warning(
            "The name of this shard is in use; it waits until that process has stopped, or name it by --shard",
            extra={"shard": shard, "namespace": namespace, "holder": holder},
        )


async def _tell_of_namespaces(api: Api, manager: Manager) -> None:
    """One that is to have objects may come later; or it is misspelt."""
    for namespace in filter(None, manager.watch_namespaces):
        try:
            await api.get(NAMESPACES, namespace)
        except NotFound:
            log.warning(
                "A namespace is not there in which objects are to be watched; nothing happens until it is",
                extra={"namespace": namespace},
            )
        except ApiError:
            pass  # who works in one need not be allowed to read it


async def _put_up_with(failure: ShardingError, clock: Clock, until: float) -> None:
    """Wait before looking again.  Raises: `failure`, when it has been long enough."""
    if clock.monotonic() >= until:
        raise failure
    log.warning("Not ready to begin; looking again", extra={"error": str(failure)})
    await clock.sleep(LOOK_SECONDS)


async def _reach(api: Api, access: Access) -> None:
    """Raises: ConnectionFailed when nobody answers, ConfigurationError when not to this identity."""
    try:
        with answering(access):
            await api.raw("GET", "/version")
    except Unauthorized as error:
        raise ConfigurationError(
            f"the API server at {access.host} ({access.origin}) does not know who this is: {error}; log in again"
        ) from error


def _setup_logging(options: Options) -> bool:
    """Lines for whoever reads them; gives whether these are programs."""
    chosen = options.log_format
    if chosen == "auto":
        chosen = "json" if in_pod() else "terminal"
    level = LogLevel(options.log_level)
    setup_logging(level, LogFormat.JSON if chosen == "json" else LogFormat.TEXT)
    if chosen == "terminal":
        (handler,) = logging.getLogger().handlers
        handler.setFormatter(TerminalFormatter(colours=has_colours(os.environ)))
    return chosen == "json"


def has_colours(environ: Mapping[str, str]) -> bool:
    """Whether stderr is a terminal that shows them.  Source: no-color.org."""
    return sys.stderr.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"

"""The command `sharder`: run the service, print what it needs of a cluster, clean up after it.

Does: turn arguments into calls and outcomes into exit codes.  Refuses: to show a
traceback for anything that a user can mend; each problem is one line on stderr.

Exit codes: 0 done or stopped in order, 1 failed, 2 wrong arguments or
configuration, 128 + N ended at once by a second signal N.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

from sharder.arguments import add_kubeconfig, add_ring_source, add_service_account
from shardsdk.errors import ConfigurationError, NotFound, ShardingError
from shardsdk.kube.clock import SystemClock
from shardsdk.protocol.labels import SHARDER_SERVICE_ACCOUNT, SYSTEM_NAMESPACE
from shardsdk.version import VERSION

if TYPE_CHECKING:
    from sharder.config import Loaded
    from sharder.core.problems import Problem
    from sharder.core.ringspec import RingSpec
    from sharder.telemetry import Telemetry
    from shardsdk.kube.api import Api

log = logging.getLogger(__name__)

_EXTRA: Final = frozenset({"cryptography", "fastapi", "httptools", "pydantic", "uvicorn", "uvloop", "xxhash", "yaml"})


class ExitCode(IntEnum):
    """How the command ended."""

    DONE = 0
    FAILED = 1
    MISUSED = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `arguments` (`None`: the process's own); returns the exit code."""
    options = make_parser().parse_args(arguments)
    try:
        match options.command:
            case "version":
                print(f"sharder {VERSION} (Python {sys.version.split()[0]})")
            case "rbac":
                _print_roles(options)
            case "crds":
                _hand_out_crds(options)
            case "uninstall":
                _uninstall(options)
            case _:
                return _run_service(options)
    except BrokenPipeError:
        # Whoever read our output has seen enough; the interpreter must not try to flush it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FAILED
    except Exception as error:
        return _complain(error)
    return ExitCode.DONE


def make_parser() -> argparse.ArgumentParser:
    """What the command understands; its reference is printed from it."""
    parser = argparse.ArgumentParser(
        prog="sharder",
        description="Spreads the objects of Kubernetes controllers over their replicas. Without a command: run the"
        " service.",
        epilog="Orderly stop on SIGTERM or SIGINT; a second signal ends it at once.",
    )
    parser.add_argument("--config", metavar="FILE", help="a SharderConfig, YAML or JSON (default: all defaults)")
    parser.add_argument(
        "--log-level", choices=["debug", "info", "warning", "error"], default="info", help="the least important lines"
    )
    parser.add_argument(
        "--log-format", choices=["text", "json"], default="text", help="one line of text or one JSON object per event"
    )
    add_kubeconfig(parser, default=None)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    commands.add_parser("version", help="print the version")
    rbac = commands.add_parser(
        "rbac",
        help="print the ClusterRole and binding that a ring needs",
        description="Prints what lets the sharder place a ring's objects; pipe it to `kubectl apply -f -`.",
    )
    add_ring_source(rbac)
    add_service_account(rbac)
    # A subcommand's own default would overwrite what stood before it.
    add_kubeconfig(rbac, default=argparse.SUPPRESS)
    _add_installer(commands)
    return parser


def _add_installer(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    crds = commands.add_parser(
        "crds",
        help="print this version's CustomResourceDefinitions, or apply them",
        description="Prints the CustomResourceDefinitions of this version.",
    )
    crds.add_argument(
        "--apply", action="store_true", help="bring the cluster's up to them, and wait until it serves them"
    )
    uninstall = commands.add_parser(
        "uninstall",
        help="remove what a sharder has made in a cluster",
        description="Removes the webhook configurations, the lease and the Secret of a sharder that is gone; waits"
        " until none leads. Objects keep their labels, and shards go on with them.",
    )
    uninstall.add_argument("-n", "--namespace", default=SYSTEM_NAMESPACE, help="where it was (default: %(default)s)")
    uninstall.add_argument(
        "--lease", metavar="NAME", default=SHARDER_SERVICE_ACCOUNT, help="its leader's lease (default: %(default)s)"
    )
    uninstall.add_argument("--crds", action="store_true", help="also the CustomResourceDefinitions, with every ring")
    for command in (crds, uninstall):
        add_kubeconfig(command, default=argparse.SUPPRESS)


# -- the service -----------------------------------------------------------


def _run_service(options: argparse.Namespace) -> int:
    from sharder.config import load_config
    from sharder.lifecycle import run_until_signal
    from sharder.telemetry import Telemetry
    from shardsdk.logs import LogFormat, LogLevel, setup_logging

    loaded = load_config(options.config)
    setup_logging(LogLevel(options.log_level), LogFormat(options.log_format))
    _tell_without_effect(loaded)
    telemetry = Telemetry.create()
    return run_until_signal(
        lambda: _serve(loaded, options.kubeconfig, telemetry),
        stop_limit_seconds=loaded.config.graceful_shutdown_limit,
    )


async def _serve(loaded: Loaded, kubeconfig: str | None, telemetry: Telemetry) -> int:
    from sharder import service
    from shardsdk.kube.access import load_access

    access = await load_access(kubeconfig)
    # What is imported now stays; a full collection that walks it all holds the event loop up for tens of milliseconds.
    gc.collect()
    gc.freeze()
    return await service.run(loaded.config, access, telemetry)


def _tell_without_effect(loaded: Loaded) -> None:
    for setting in loaded.without_effect:
        log.warning("setting has no effect", extra={"setting": setting.path, "why": setting.why})


# -- sharder rbac ----------------------------------------------------------


def _print_roles(options: argparse.Namespace) -> None:
    import yaml

    from sharder.manifests import read_rings
    from sharder.rbac import ring_roles

    if options.filename is not None:
        rings = read_rings(options.filename)
    else:
        import asyncio

        rings = [asyncio.run(_fetch_ring(options.ring, options.kubeconfig))]
    sys.stdout.write(yaml.safe_dump_all(ring_roles(rings, options.service_account), sort_keys=False))
    sys.stdout.flush()


async def _fetch_ring(name: str, kubeconfig: str | None) -> tuple[RingSpec, Mapping[str, Any]]:
    from sharder.core.ringspec import parse_ring
    from sharder.manifests import status_of
    from shardsdk.kube.access import load_access
    from shardsdk.kube.client import Client
    from shardsdk.protocol.objects import CLUSTERRINGS

    access = await load_access(kubeconfig)
    async with Client(access, user_agent=f"sharder-rbac/{VERSION}") as api:
        try:
            ring: dict[str, Any] = await api.get(CLUSTERRINGS, name, model=dict)
        except NotFound as error:
            raise ConfigurationError(
                f"there is no ClusterRing {name!r} at {access.host}; look at `kubectl get clusterrings`, or pass"
                " its manifest with -f"
            ) from error
    return parse_ring(ring), status_of(ring)


# -- sharder crds, sharder uninstall ---------------------------------------


def _hand_out_crds(options: argparse.Namespace) -> None:
    from sharder.install import apply_crds, crd_files

    texts = [path.read_text(encoding="utf-8") for path in crd_files()]
    if not options.apply:
        sys.stdout.write("---\n".join(texts))
        sys.stdout.flush()
        return
    import yaml

    documents = [yaml.safe_load(text) for text in texts]
    _call(options, lambda api: apply_crds(api, documents, SystemClock()))


def _uninstall(options: argparse.Namespace) -> None:
    from sharder.install import Leftovers, remove_leftovers

    leftovers = Leftovers(options.namespace, options.lease, options.crds)
    _call(options, lambda api: remove_leftovers(api, leftovers, SystemClock()))


def _call(options: argparse.Namespace, act: Callable[[Api], Awaitable[None]]) -> None:
    """Connect, act and tell in the log what was done."""
    import asyncio

    from shardsdk.kube.access import load_access
    from shardsdk.kube.client import Client
    from shardsdk.logs import LogFormat, LogLevel, setup_logging

    setup_logging(LogLevel(options.log_level), LogFormat(options.log_format))

    async def run() -> None:
        access = await load_access(options.kubeconfig)
        async with Client(access, user_agent=f"sharder-{options.command}/{VERSION}") as api:
            await act(api)

    asyncio.run(run())


# -- errors ----------------------------------------------------------------


def _complain(error: Exception) -> int:
    """Say on stderr what went wrong; returns the exit code."""
    lines, code = [], ExitCode.MISUSED
    for leaf in _leaves(error):
        explained = list(_explain(leaf))
        if not explained:
            # Nobody foresaw this: only its stack tells what to mend.
            log.critical("failed unexpectedly", exc_info=error)
            return ExitCode.FAILED
        lines += explained
        if not isinstance(leaf, ConfigurationError):
            code = ExitCode.FAILED
    for line in dict.fromkeys(lines):
        print(f"sharder: {' '.join(line.split())}", file=sys.stderr)
    return code


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _explain(error: BaseException) -> Iterator[str]:
    """The lines that tell a user what went wrong; none for a fault of the program."""
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in _EXTRA:
        yield f"{error.name} is not installed; the service needs `pip install 'controller-sharding[sharder]'`"
    elif isinstance(error, ConfigurationError):
        problems: Sequence[Problem] = getattr(error, "problems", ())
        source = getattr(error, "source", "")
        yield from (f"{source}: {problem}" if source else str(problem) for problem in problems)
        if not problems:
            yield str(error)
    elif isinstance(error, ShardingError):
        yield str(error) or type(error).__name__
    elif isinstance(error, OSError) and error.strerror:
        yield f"{error.strerror}: {error.filename}" if error.filename else str(error)

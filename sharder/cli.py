"""The command `sharder`: run the service, print what it needs of a cluster, clean up after it.

Whatever a user can mend is one line on stderr, without a traceback.

Exit codes: 0 done or stopped in order, 1 failed, 2 wrong arguments or
configuration, 128 + N ended at once by a second signal N.
"""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import IntEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

import click

from sharder.arguments import HELP, Named, kept_option, kubeconfig_option, ring_source, service_account_option
from sharder.failures import explain_failure, no_ring
from shardsdk.errors import NotFound
from shardsdk.kube.clock import SystemClock
from shardsdk.output import is_unprinted, printing
from shardsdk.protocol.labels import SHARDER_SERVICE_ACCOUNT, SYSTEM_NAMESPACE
from shardsdk.version import VERSION

if TYPE_CHECKING:
    from sharder.config import Loaded
    from sharder.core.ringspec import RingSpec
    from sharder.telemetry import Telemetry
    from shardsdk.kube.api import Api

log = logging.getLogger(__name__)

P = ParamSpec("P")


class ExitCode(IntEnum):
    """How the command ended."""

    DONE = 0
    FAILED = 1
    MISUSED = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `arguments` (`None`: the process's own); returns the exit code."""

    def run() -> int:
        try:
            return command.main(arguments, "sharder", standalone_mode=False) or ExitCode.DONE
        except click.ClickException as error:
            error.show()
            return error.exit_code

    return printing("sharder", run, failed=ExitCode.FAILED)


def _guarded(function: Callable[P, int | None]) -> Callable[P, int]:
    """A command that tells what goes wrong, and ends with an exit code."""

    @wraps(function)
    def run(*args: P.args, **options: P.kwargs) -> int:
        try:
            return function(*args, **options) or ExitCode.DONE
        except Exception as error:
            if is_unprinted(error):
                raise
            return _complain(error)

    return run


@click.group(
    "sharder",
    help="Spreads the objects of Kubernetes controllers over their replicas. Without a command: run the service.",
    epilog="Orderly stop on SIGTERM or SIGINT; a second signal ends it at once.",
    invoke_without_command=True,
    context_settings=HELP,
)
@kept_option(
    "--config", metavar="FILE", type=click.Path(), help="a SharderConfig, YAML or JSON (default: all defaults)"
)
@kept_option(
    "--log-level",
    type=click.Choice(("debug", "info", "warning", "error")),
    default="info",
    help="the least important lines (default: info)",
)
@kept_option(
    "--log-format",
    type=click.Choice(("text", "json")),
    default="text",
    help="one line of text or one JSON object per event (default: text)",
)
@kubeconfig_option()
@click.version_option(f"{VERSION} (Python {sys.version.split()[0]})", message="sharder %(version)s")
@click.pass_context
@_guarded
def command(context: click.Context) -> int | None:
    """Run the service, unless a command follows."""
    return None if context.invoked_subcommand else _run_service(context.ensure_object(dict))


@command.command(help="Print the version.", short_help="print the version")
def version() -> None:
    """`sharder version`."""
    print(f"sharder {VERSION} (Python {sys.version.split()[0]})")


# -- the service -----------------------------------------------------------


def _run_service(options: Mapping[str, Any]) -> int:
    # Most of a start is importing, where collections walk through all that is there, and find nothing.
    gc.disable()
    try:
        return _load_and_run(options)
    finally:
        gc.enable()


def _load_and_run(options: Mapping[str, Any]) -> int:
    from sharder.config import load_config
    from sharder.lifecycle import run_until_signal
    from sharder.telemetry import Telemetry
    from shardsdk.logs import LogFormat, LogLevel, setup_logging

    loaded = load_config(options.get("config"))
    setup_logging(LogLevel(options["log_level"]), LogFormat(options["log_format"]))
    _tell_without_effect(loaded)
    telemetry = Telemetry.create()
    return run_until_signal(
        lambda: _serve(loaded, options.get("kubeconfig"), telemetry),
        stop_limit_seconds=loaded.config.graceful_shutdown_limit,
    )


async def _serve(loaded: Loaded, kubeconfig: str | None, telemetry: Telemetry) -> int:
    from sharder import service
    from shardsdk.kube.access import load_access

    access = await load_access(kubeconfig)
    # What is imported now stays; a full collection that walks it all holds the event loop up for tens of milliseconds.
    gc.collect()
    gc.freeze()
    gc.enable()
    return await service.run(loaded.config, access, telemetry)


def _tell_without_effect(loaded: Loaded) -> None:
    for setting in loaded.without_effect:
        log.warning("setting has no effect", extra={"setting": setting.path, "why": setting.why})


# -- sharder rbac ----------------------------------------------------------


@command.command(
    help="Prints what lets the sharder place a ring's objects; pipe it to `kubectl apply -f -`.",
    short_help="print the ClusterRole and binding that a ring needs",
)
@ring_source()
@service_account_option()
@kubeconfig_option()
@click.pass_context
@_guarded
def rbac(context: click.Context, ring: str | None, filename: str | None, service_account: tuple[str, str]) -> None:
    """`sharder rbac`."""
    from sharder.manifests import read_rings
    from sharder.rbac import render_roles

    if filename is not None:
        rings = read_rings(filename)
    else:
        import asyncio

        rings = [asyncio.run(_fetch_ring(str(ring), context.obj.get("kubeconfig")))]
    sys.stdout.write(render_roles(rings, service_account))


async def _fetch_ring(name: str, kubeconfig: str | None) -> tuple[RingSpec, Mapping[str, Any]]:
    from sharder.core.ringspec import parse_ring
    from sharder.manifests import status_of
    from shardsdk.kube.access import answering, load_access
    from shardsdk.kube.client import Client
    from shardsdk.protocol.objects import CLUSTERRINGS

    access = await load_access(kubeconfig)
    with answering(access, "--kubeconfig"):
        async with Client(access, user_agent=f"sharder-rbac/{VERSION}") as api:
            try:
                ring: dict[str, Any] = await api.get(CLUSTERRINGS, name, model=dict)
            except NotFound as error:
                remedy = "look at `kubectl get clusterrings`, or pass its manifest with -f"
                raise no_ring(error, name, access.host, remedy) from error
    return parse_ring(ring), status_of(ring)


# -- sharder crds, chart, uninstall ----------------------------------------


@command.command(
    help="Prints the CustomResourceDefinitions of this version.",
    short_help="print this version's CustomResourceDefinitions, or apply them",
)
@click.option("--apply", is_flag=True, help="bring the cluster's up to them, and wait until it serves them")
@click.option(
    "--allow-less",
    is_flag=True,
    help="with --apply: also over newer ones, which takes out fields that these lack",
)
@kubeconfig_option()
@click.pass_context
@_guarded
def crds(context: click.Context, apply: bool, allow_less: bool) -> None:
    """`sharder crds`."""
    from sharder.install import FIELD_MANAGER, crd_files, own_definitions
    from shardsdk.kube.definitions import apply_crds

    if not apply:
        sys.stdout.write("---\n".join(path.read_text(encoding="utf-8") for path in crd_files()))
        return
    documents = own_definitions()

    def act(api: Api) -> Awaitable[None]:
        return apply_crds(api, documents, SystemClock(), field_manager=FIELD_MANAGER, allow_less=allow_less)

    _call(context, act)


@command.command(
    help="Writes this version's Helm chart into the folder DIR, for `helm install sharder DIR`.",
    short_help="write the Helm chart that installs this version",
)
@click.argument("folder", metavar="DIR", type=click.Path())
@_guarded
def chart(folder: str) -> None:
    """`sharder chart`."""
    from sharder.install import write_chart

    write_chart(Path(folder))
    sys.stderr.write(
        f"wrote the chart {folder}; helm upgrade --install sharder {folder} -n {SYSTEM_NAMESPACE} --create-namespace\n"
    )


@command.command(
    help="Removes the webhook configurations, the lease and the Secret of a sharder that is gone; waits until none"
    " leads. Objects keep their labels, and shards go on with them.",
    short_help="remove what a sharder has made in a cluster",
)
@click.option(
    "-n",
    "--namespace",
    metavar="NAMESPACE",
    type=Named(namespace=True),
    default=SYSTEM_NAMESPACE,
    help=f"where it was (default: {SYSTEM_NAMESPACE})",
)
@click.option(
    "--lease",
    metavar="NAME",
    type=Named(),
    default=SHARDER_SERVICE_ACCOUNT,
    help=f"its leader's lease (default: {SHARDER_SERVICE_ACCOUNT})",
)
@click.option("--crds", is_flag=True, help="also the CustomResourceDefinitions, with every ring")
@kubeconfig_option()
@click.pass_context
@_guarded
def uninstall(context: click.Context, namespace: str, lease: str, crds: bool) -> None:
    """`sharder uninstall`."""
    from sharder.install import Leftovers, remove_leftovers

    leftovers = Leftovers(namespace, lease, crds)
    _call(context, lambda api: remove_leftovers(api, leftovers, SystemClock()))


def _call(context: click.Context, act: Callable[[Api], Awaitable[None]]) -> None:
    """Connect, act and tell in the log what was done."""
    import asyncio

    from shardsdk.kube.access import answering, load_access
    from shardsdk.kube.client import Client
    from shardsdk.logs import LogFormat, LogLevel, setup_logging

    options = context.obj
    setup_logging(LogLevel(options["log_level"]), LogFormat(options["log_format"]))

    async def run() -> None:
        access = await load_access(options.get("kubeconfig"))
        with answering(access, "--kubeconfig"):
            async with Client(access, user_agent=f"sharder-{context.info_name}/{VERSION}") as api:
                await act(api)

    asyncio.run(run())


# -- errors ----------------------------------------------------------------


def _complain(error: Exception) -> int:
    """Say on stderr what went wrong; returns the exit code."""
    failure = explain_failure(error, "sharder")
    if failure is None:
        # Nobody foresaw this: only its stack tells what to mend.
        log.critical("failed unexpectedly", exc_info=error)
        return ExitCode.FAILED
    failure.tell("sharder", sys.stderr)
    return ExitCode.MISUSED if failure.misused else ExitCode.FAILED

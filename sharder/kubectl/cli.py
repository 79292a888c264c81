"""The command `kubectl sharding` (kubectl runs `kubectl-sharding` from the PATH).

Whatever a user can mend is one line on stderr, without a traceback.
"""

from __future__ import annotations

import asyncio
import codecs
import io
import os
import shlex
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeVar

import click
from click.shell_completion import CompletionItem

from sharder.arguments import (
    HELP,
    Named,
    Namespaced,
    kept_option,
    kubeconfig_option,
    ring_source,
    service_account_option,
)
from sharder.failures import explain_failure
from sharder.kubectl.outcomes import INTERRUPTED, ExitCode
from shardsdk.errors import ShardingError
from shardsdk.output import is_unprinted, printing
from shardsdk.protocol.labels import SHARDER_SERVICE_ACCOUNT, SYSTEM_NAMESPACE
from shardsdk.version import VERSION

if TYPE_CHECKING:
    from sharder.kubectl.session import Session

C = TypeVar("C", bound=Callable[..., Any])
Pair = tuple[str, str]

_SPELT: Final = "sharding-spelt"
#: `?` says of what is checked that nobody knows, so no other sign may become one.
_SPELLINGS: Final = {"✓": "ok", "✗": "X", "→": "->", "…": "...", "—": "-"} | dict.fromkeys("▏▎▍▌▋▊▉█", "#")
#: Which cluster it is; kubectl's options are called the same.
_REACHING: Final = ("kubeconfig", "context")
#: Nobody waits for longer who has pressed Tab.
COMPLETION_SECONDS: Final = 5.0
EXITS: Final = (
    "Exit codes: 0 all in order, 1 something is wrong, 2 wrong arguments or configuration, 3 it could not be found"
    " out (no answer, or not permitted)."
)


def from_cluster(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Names in the cluster that a word can be; none when it does not answer in time."""
    from sharder.kubectl.suggestions import ask_cluster

    given = {**ctx.params, **(ctx.obj or {})}
    try:
        names = asyncio.run(ask_cluster(param.name or "", given, COMPLETION_SECONDS))
    except (ShardingError, OSError, TimeoutError, ImportError, BaseExceptionGroup):
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def common_options(namespace: str | None = "the namespace") -> Callable[[C], C]:
    """What may stand before a command or behind it; `namespace`: what it is for (None: nothing, and not shown)."""
    options: tuple[Callable[[Any], Any], ...] = (
        kubeconfig_option(),
        kept_option(
            "--context", metavar="NAME", shell_complete=from_cluster, help="another context than the current one"
        ),
        kept_option(
            "-n",
            "--namespace",
            metavar="NAMESPACE",
            type=Named(namespace=True),
            shell_complete=from_cluster,
            help=namespace,
            hidden=not namespace,
        ),
        kept_option(
            "--color",
            type=click.Choice(("auto", "always", "never")),
            help="colours: on terminals (auto, unless NO_COLOR is set), always or never (default: auto)",
        ),
    )

    def add(function: C) -> C:
        for option in reversed(options):
            function = option(function)
        return function

    return add


def output_option(*forms: str) -> Callable[[C], C]:
    """`--output`, one of `forms`."""
    return kept_option("-o", "--output", type=click.Choice(forms), help="instead of text for people")


def optional_ring(function: C) -> C:
    """`RING`, or every ring."""
    add = click.argument(
        "ring",
        required=False,
        type=Named(),
        shell_complete=from_cluster,
        help="name of a ClusterRing (default: all of them)",
    )
    return add(function)


def lease_option(default: str = f"{SYSTEM_NAMESPACE}/{SHARDER_SERVICE_ACCOUNT}") -> Callable[[C], C]:
    """`--lease NAMESPACE/NAME`, with the words for what it is when it is left out."""
    return click.option("--lease", type=Namespaced(), help=f"the leading sharder's lease (default: {default})")


@click.group(
    "kubectl sharding", help="Shows where the objects of ClusterRings are, why, and what is wrong.", epilog=EXITS,
    invoke_without_command=True, context_settings=HELP,
)  # fmt: skip
@click.option("--version", is_flag=True, help="print the version")
@common_options()
@click.pass_context
def plugin(context: click.Context, version: bool) -> None:
    """Say what there is, unless a command follows."""
    context.ensure_object(dict)
    if version:
        click.echo(f"kubectl-sharding {VERSION} (Python {sys.version.split()[0]})")
        context.exit()
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@plugin.command(
    help="Shows a ring, or all. Ends with 0 when a ring is ready and every object is on the shard where it belongs.",
    short_help="shards, leases, objects per shard, and what is not in its place",
    epilog=EXITS,
)
@common_options("of objects in namespaces look at those of this one only")
@optional_ring
@click.option("-w", "--watch", is_flag=True, help="go on showing it, read anew at intervals, until Ctrl-C")
@click.option(
    "--interval", metavar="SECONDS", type=click.FloatRange(0.1, 3600), default=2.0,
    help="between two refreshes (default: 2; longer where reading takes long)",
)  # fmt: skip
@output_option("wide", "json", "yaml")
def status(ring: str | None, watch: bool, interval: float) -> int:
    """`kubectl sharding status`."""

    async def work(session: Session) -> int:
        if watch:
            from sharder.kubectl.status.watch import watch_status

            return await watch_status(session, ring, interval)
        from sharder.kubectl.status.command import show_status

        return await show_status(session, ring)

    return _within(work)


@plugin.command(
    help="Explains one object in every ring that lists its resource. Ends with 0 when it is where it belongs.",
    short_help="why an object is on its shard, or on none, and what is missing",
    epilog=EXITS,
)
@common_options("the object's namespace (default: that of the context)")
@click.argument("resource", shell_complete=from_cluster, help="as kubectl takes it: secrets, deploy, deployments.apps")
@click.argument("name", required=False, shell_complete=from_cluster, help="the object's name; or write RESOURCE/NAME")
@lease_option()
@output_option("json", "yaml")
def explain(resource: str, name: str | None, lease: Pair | None) -> int:
    """`kubectl sharding explain`."""

    async def work(session: Session) -> int:
        from sharder.kubectl.explain.command import show_explanation

        return await show_explanation(session, resource, name, lease or (SYSTEM_NAMESPACE, SHARDER_SERVICE_ACCOUNT))

    return _within(work)


@plugin.command(
    help="Checks sharder, permissions, resources, namespaces, shards, objects, webhook and certificates. Ends with 1"
    " when there is a problem, with 3 when something could not be checked.",
    short_help="what keeps rings from working, each with its remedy",
    epilog=EXITS,
)
@common_options("of objects in namespaces look at those of this one only")
@optional_ring
@click.option("-q", "--quiet", is_flag=True, help="say only what is amiss")
@click.option(
    "--probe/--no-probe",
    default=True,
    help="call the webhook by a dry run that takes the label off one object (it stays); takes the right to patch",
)
@service_account_option()
@lease_option(f"{SHARDER_SERVICE_ACCOUNT} in the namespace of --service-account")
@output_option("json", "yaml")
def check(ring: str | None, quiet: bool, probe: bool, service_account: Pair, lease: Pair | None) -> int:
    """`kubectl sharding check`."""

    async def work(session: Session) -> int:
        from sharder.kubectl.check.command import run_check
        from sharder.kubectl.leader import Sharder

        sharder = Sharder(service_account, lease or (service_account[0], SHARDER_SERVICE_ACCOUNT))
        return await run_check(session, ring, sharder, probe=probe, quiet=quiet)

    return _within(work)


@plugin.command(
    help="Looks for objects with the shard or drain label of a ring that is gone; with --yes it takes the labels off."
    " Ends with 1 when labels are left, with 3 when not everything could be looked at.",
    short_help="take the labels of a deleted ring off the objects that still carry them",
    epilog=EXITS,
)
@common_options("look at objects of this namespace only")
@click.argument("ring", type=Named(), shell_complete=from_cluster, help="name of the ClusterRing that was deleted")
@click.option("--yes", "--apply", "apply", is_flag=True, help="take the labels off, instead of a dry run")
@click.option(
    "--resource",
    multiple=True,
    metavar="RESOURCE",
    shell_complete=from_cluster,
    help="look at this resource only; may be repeated (default: everything that can be listed and patched)",
)
@click.option(
    "--force",
    is_flag=True,
    help="also while the ring is there, or nobody can tell: for a ring whose shards have been stopped, and whose"
    " sharder is gone. With a sharder the labels come back within a second; with running shards two of them may"
    " work on one object for a moment",
)
@output_option("json", "yaml")
def cleanup(ring: str, apply: bool, resource: tuple[str, ...], force: bool) -> int:
    """`kubectl sharding cleanup`."""

    async def work(session: Session) -> int:
        from sharder.kubectl.cleanup.command import Wish, clean_up

        return await clean_up(session, Wish(ring, resource, apply, force))

    return _within(work)


@plugin.command(
    help="Prints manifests; pipe them to `kubectl apply -f -`.",
    short_help="print the ClusterRole and binding that let the sharder place a ring's objects",
    epilog=EXITS,
)
@common_options(None)
@ring_source(from_cluster)
@service_account_option()
@output_option("json", "yaml")
@click.pass_context
def rbac(context: click.Context, ring: str | None, filename: str | None, service_account: Pair) -> int:
    """`kubectl sharding rbac`."""

    async def work(session: Session) -> int:
        from sharder.kubectl.rbac import print_roles_of_ring

        return await print_roles_of_ring(session, str(ring), service_account)

    if filename is None:
        return _within(work)
    output, path = context.obj.get("output"), filename

    def print_roles() -> int:
        from sharder.manifests import read_rings
        from sharder.rbac import render_roles

        sys.stdout.write(render_roles(read_rings(path), service_account, output))
        return ExitCode.IN_ORDER

    return _guarded(print_roles)


# -- running ---------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `arguments` (`None`: the process's own); returns the exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that does not know a sign shows another one.
        codecs.register_error(_SPELT, _spell)
        sys.stdout.reconfigure(errors=_SPELT)

    def run() -> int:
        try:
            return plugin.main(arguments, "kubectl sharding", standalone_mode=False) or ExitCode.IN_ORDER
        except click.ClickException as error:
            error.show()
            return error.exit_code

    return printing("kubectl-sharding", run, failed=ExitCode.UNKNOWN)


def _spell(error: UnicodeError) -> tuple[str, int]:
    """What to write instead of signs that the output's encoding does not have."""
    assert isinstance(error, UnicodeEncodeError)
    return "".join(_SPELLINGS.get(sign, "?") for sign in error.object[error.start : error.end]), error.end


def _within(work: Callable[[Session], Awaitable[int]]) -> int:
    """Do `work` with a connection as the options say, and tell what goes wrong."""
    given = dict(click.get_current_context().ensure_object(dict))
    return _guarded(lambda: asyncio.run(_connect(given, work, sys.stdout, os.environ)))


def _guarded(work: Callable[[], int]) -> int:
    try:
        return work()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # What click makes of it is 1, which says that something is wrong.
        return ExitCode.UNKNOWN
    except Exception as error:
        if is_unprinted(error):
            raise
        return complain(error, sys.stderr)


async def _connect(
    given: Mapping[str, Any], work: Callable[[Session], Awaitable[int]], out: TextIO, environ: Mapping[str, str]
) -> int:
    from sharder.kubectl.session import Session
    from sharder.kubectl.text import Painter, wants_colours
    from shardsdk.kube.access import answering, load_access
    from shardsdk.kube.client import Client
    from shardsdk.kube.clock import SystemClock

    access = await load_access(given.get("kubeconfig"), given.get("context"))
    with answering(access):
        # It reads whatever there is, in the versions that the API server prefers: nobody can heed that one is to go.
        async with Client(access, user_agent=f"kubectl-sharding/{VERSION}", heed_warnings=False) as api:
            session = Session(
                api,
                SystemClock(),
                out,
                Painter(wants_colours(given.get("color", "auto"), out, environ)),
                output=given.get("output", "text"),
                namespace=given.get("namespace"),
                default_namespace=access.namespace,
                host=access.host,
                err=sys.stderr,
                reaches="".join(f" --{each} {shlex.quote(given[each])}" for each in _REACHING if given.get(each)),
            )
            return await work(session)


# -- errors ----------------------------------------------------------------


def complain(error: Exception, to: TextIO) -> int:
    """Say what went wrong; returns the exit code.  Raises: `error` itself when nobody foresaw it."""
    failure = explain_failure(error, "kubectl")
    if failure is None:
        raise error
    failure.tell("kubectl-sharding", to)
    return ExitCode.MISUSED if failure.misused else ExitCode.UNKNOWN

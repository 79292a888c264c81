"""The command line of `kubectl sharding`, also for those who complete it.

Refuses: to import what a command needs; `--help` and completion are to be quick.
"""

from __future__ import annotations

import argparse
from typing import Final

from sharder.arguments import add_kubeconfig, add_ring_source, add_service_account, parse_namespaced
from shardsdk.protocol.labels import SHARDER_SERVICE_ACCOUNT, SYSTEM_NAMESPACE

OUTPUTS: Final = ("wide", "json", "yaml")
COLOURS: Final = ("auto", "always", "never")
#: Between two refreshes of `status --watch`, at least.
INTERVAL_SECONDS: Final = 2.0

EXITS: Final = (
    "Exit codes: 0 all in order, 1 something is wrong, 2 wrong arguments or configuration, 3 it could not be found"
    " out (no answer, or not permitted)."
)


def make_parser() -> argparse.ArgumentParser:
    """The parser for everything."""
    parser = argparse.ArgumentParser(
        prog="kubectl sharding",
        description="Shows where the objects of ClusterRings are, why, and what is wrong.",
        epilog=EXITS,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    _add_common(parser, default=None)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    _add_status(commands)
    _add_explain(commands)
    _add_check(commands)
    _add_cleanup(commands)
    _add_rbac(commands)
    return parser


def _add_status(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    status = _command(
        commands,
        "status",
        "shards, leases, objects per shard, and what is not in its place",
        "Shows a ring, or all. Ends with 0 when a ring is ready and every object is on the shard where it belongs.",
        "look at objects of this namespace only",
    )
    status.add_argument("ring", nargs="?", metavar="RING", help="name of a ClusterRing (default: all of them)")
    status.add_argument(
        "-w", "--watch", action="store_true", help="go on showing it, read anew at intervals, until Ctrl-C"
    )
    status.add_argument(
        "--interval",
        type=_parse_seconds,
        default=INTERVAL_SECONDS,
        metavar="SECONDS",
        help="between two refreshes (default: %(default)g; longer where reading takes long)",
    )
    _add_output(status, OUTPUTS)


def _add_explain(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    explain = _command(
        commands,
        "explain",
        "why an object is on its shard, or on none, and what is missing",
        "Explains one object in every ring that lists its resource. Ends with 0 when it is where it belongs.",
        "the object's namespace (default: that of the context)",
    )
    explain.add_argument("resource", metavar="RESOURCE", help="as kubectl takes it: secrets, deploy, deployments.apps")
    explain.add_argument("name", nargs="?", metavar="NAME", help="the object's name; or write RESOURCE/NAME")
    _add_lease(explain)
    _add_output(explain, ("json", "yaml"))


def _add_check(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    check = _command(
        commands,
        "check",
        "what keeps rings from working, each with its remedy",
        "Checks sharder, permissions, resources, namespaces, shards, objects, webhook and certificates. Ends with 1"
        " when there is a problem, with 3 when something could not be checked.",
        "look at objects of this namespace only",
    )
    check.add_argument("ring", nargs="?", metavar="RING", help="name of a ClusterRing (default: all of them)")
    check.add_argument("-q", "--quiet", action="store_true", help="say only what is amiss")
    check.add_argument(
        "--probe",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="call the webhook by a dry run that takes the label off one object (it stays); takes the right to patch",
    )
    add_service_account(check)
    _add_lease(check)
    _add_output(check, ("json", "yaml"))


def _add_cleanup(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    cleanup = _command(
        commands,
        "cleanup",
        "take the labels of a deleted ring off the objects that still carry them",
        "Looks for objects with the shard or drain label of a ring that is gone; with --yes it takes the labels off."
        " Ends with 1 when labels are left, with 3 when not everything could be looked at.",
        "look at objects of this namespace only",
    )
    cleanup.add_argument("ring", metavar="RING", help="name of the ClusterRing that was deleted")
    cleanup.add_argument("--yes", "--apply", action="store_true", help="take the labels off, instead of a dry run")
    cleanup.add_argument(
        "--resource",
        action="append",
        metavar="RESOURCE",
        help="look at this resource only; may be repeated (default: everything that can be listed and patched)",
    )
    cleanup.add_argument(
        "--force",
        action="store_true",
        help="also while the ring is there, or nobody can tell: for a ring whose shards have been stopped, and whose"
        " sharder is gone. With a sharder the labels come back within a second; with running shards two of them may"
        " work on one object for a moment",
    )
    _add_output(cleanup, ("json", "yaml"))


def _add_rbac(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    rbac = _command(
        commands,
        "rbac",
        "print the ClusterRole and binding that let the sharder place a ring's objects",
        "Prints manifests; pipe them to `kubectl apply -f -`.",
        None,
    )
    add_ring_source(rbac)
    add_service_account(rbac)
    _add_output(rbac, ("json", "yaml"))


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    short: str,
    long: str,
    namespace: str | None,
) -> argparse.ArgumentParser:
    made = commands.add_parser(name, help=short, description=long, epilog=EXITS, allow_abbrev=False)
    # A subcommand's own default would overwrite what stood before it.
    _add_common(made, default=argparse.SUPPRESS, namespace=namespace)
    return made


def _add_common(parser: argparse.ArgumentParser, default: str | None, namespace: str | None = "the namespace") -> None:
    add_kubeconfig(parser, default)
    parser.add_argument("--context", metavar="NAME", default=default, help="another context than the current one")
    shown = argparse.SUPPRESS if namespace is None else namespace
    parser.add_argument("-n", "--namespace", metavar="NAMESPACE", default=default, help=shown)
    parser.add_argument(
        "--color",
        choices=COLOURS,
        default=default or "auto",
        help="colours: on terminals (auto, unless NO_COLOR is set), always or never",
    )


def _add_lease(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--lease",
        metavar="NAMESPACE/NAME",
        type=parse_namespaced,
        help=f"the leading sharder's lease (default: {SYSTEM_NAMESPACE}/{SHARDER_SERVICE_ACCOUNT})",
    )


def _add_output(parser: argparse.ArgumentParser, forms: tuple[str, ...]) -> None:
    parser.add_argument("-o", "--output", choices=forms, default=None, help="instead of text for people")


def _parse_seconds(text: str) -> float:
    try:
        seconds = float(text.removesuffix("s"))
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds between 0.1 and 3600")
    return seconds

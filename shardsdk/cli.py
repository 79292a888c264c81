"""The command `shardsdk`: what an author of a sharded controller asks for at a prompt.

    shardsdk rbac --ring example --main secrets --controlled configmaps | kubectl apply -f -

Refuses: to show a traceback for wrong input; that is one line on stderr and exit code 2.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from typing import Final

from shardsdk.errors import ConfigurationError
from shardsdk.protocol.labels import parse_ring_name
from shardsdk.protocol.objects import GroupResource
from shardsdk.rbac import ShardRole, render_shard_role
from shardsdk.version import VERSION

#: What RBAC knows.  Source: Kubernetes, "Authorization: request verbs".
VERBS: Final = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
_DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_DNS_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `arguments` (`None`: the process's own); returns the exit code."""
    options = make_parser().parse_args(arguments)
    try:
        match options.command:
            case "rbac":
                text = render_shard_role(_read_role(options))
            case _:
                text = f"shardsdk {VERSION} (Python {sys.version.split()[0]})\n"
        sys.stdout.write(text)
        sys.stdout.flush()
    except ConfigurationError as error:
        sys.stderr.write(f"shardsdk: {error}\n")
        return 2
    except BrokenPipeError:
        # Whoever read our output has seen enough; the interpreter must not try to flush it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def make_parser() -> argparse.ArgumentParser:
    """What the command understands; its reference is printed from it."""
    parser = argparse.ArgumentParser(prog="shardsdk", description="For authors of sharded controllers.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    commands.add_parser("version", help="print the version")
    rbac = commands.add_parser(
        "rbac",
        help="print what a shard may do, as manifests",
        description="Prints the ServiceAccount, roles and bindings that the shards of a ring need; pipe it to"
        " `kubectl apply -f -`. RESOURCE is written as kubectl prints it: `secrets`, `deployments.apps`.",
    )
    rbac.add_argument("--ring", required=True, metavar="RING", help="the ClusterRing that the shards form")
    rbac.add_argument(
        "--main", required=True, action="append", metavar="RESOURCE", help="main resource of the ring; repeatable"
    )
    rbac.add_argument(
        "--controlled", action="append", default=[], metavar="RESOURCE", help="controlled resource; repeatable"
    )
    rbac.add_argument("-n", "--namespace", default="default", help="where the shards run (default: %(default)s)")
    rbac.add_argument("--name", help="name of the ServiceAccount and of the roles (default: the ring's)")
    rbac.add_argument(
        "--watch-namespace", metavar="NAMESPACE", help="the only namespace with objects (default: all of them)"
    )
    rbac.add_argument(
        "--main-verbs",
        default="",
        metavar="VERBS",
        help="what the controller does with main objects besides list, watch and patch, such as `get,update`",
    )
    rbac.add_argument(
        "--controlled-verbs",
        default="create,patch",
        metavar="VERBS",
        help="what it does with controlled objects besides list and watch (default: %(default)s)",
    )
    return parser


def _read_role(options: argparse.Namespace) -> ShardRole:
    """Raises: ConfigurationError, with what to write instead."""
    ring = parse_ring_name(options.ring).ring
    main = [_read_resource(text) for text in _split(options.main)]
    controlled = [_read_resource(text) for text in _split(options.controlled)]
    if both := sorted(set(main) & set(controlled)):
        raise ConfigurationError(f"{both[0]} is given as --main and as --controlled; a ring has it as one of them")
    if not main:
        raise ConfigurationError("--main names no resource; write it as kubectl prints it, such as `secrets`")
    watched = options.watch_namespace
    return ShardRole(
        ring=ring,
        name=_check_name("--name", options.name or ring, _DNS_SUBDOMAIN, 253),
        namespace=_check_name("--namespace", options.namespace, _DNS_LABEL, 63),
        main=main,
        controlled=controlled,
        further_main_verbs=_read_verbs("--main-verbs", options.main_verbs),
        further_controlled_verbs=_read_verbs("--controlled-verbs", options.controlled_verbs),
        watch_namespace=None if watched is None else _check_name("--watch-namespace", watched, _DNS_LABEL, 63),
    )


def _split(texts: Sequence[str]) -> list[str]:
    return [part.strip() for text in texts for part in text.split(",") if part.strip()]


def _read_resource(text: str) -> GroupResource:
    plural, _, group = text.partition(".")
    if not _DNS_LABEL.fullmatch(plural) or (text != plural and not _DNS_SUBDOMAIN.fullmatch(group)):
        raise ConfigurationError(
            f"{text!r} is no resource; write the plural in lower case, with its group unless that is the core's, as"
            " `kubectl api-resources -o name` does: `secrets`, `deployments.apps`"
        )
    return GroupResource(group, plural)


def _read_verbs(option: str, text: str) -> list[str]:
    verbs = _split([text])
    if unknown := [verb for verb in verbs if verb not in VERBS]:
        raise ConfigurationError(f"{option}: {unknown[0]!r} is no verb; there are {', '.join(VERBS)}")
    return verbs


def _check_name(option: str, text: str, pattern: re.Pattern[str], limit: int) -> str:
    if len(text) > limit or not pattern.fullmatch(text):
        raise ConfigurationError(
            f"{option}: {text!r} cannot be a name; use up to {limit} lower-case letters, digits and '-',"
            " beginning and ending with a letter or digit"
        )
    return text

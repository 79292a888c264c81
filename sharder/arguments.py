"""Options that the commands `sharder` and `kubectl sharding` have in common.

What a command needs is imported once it runs, here and in both: `--help` and completion are to be quick.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

from shardsdk.protocol.labels import SHARDER_SERVICE_ACCOUNT, SYSTEM_NAMESPACE
from shardsdk.protocol.names import LABEL_CHARACTERS, SUBDOMAIN_CHARACTERS, is_dns_label, is_dns_subdomain

C = TypeVar("C", bound=Callable[..., Any])
T = TypeVar("T")
#: What can stand for a word that is being typed.
Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem[str]]]

HELP: Final = {"help_option_names": ["-h", "--help"]}


class Named(click.ParamType[str]):
    """What names a namespace or, if not `namespace`, a ring, a Lease or another object with the name of a domain."""

    name = "NAME"

    def __init__(self, *, namespace: bool = False) -> None:
        self._namespace = namespace

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Raises: BadParameter."""
        if not (is_dns_label if self._namespace else is_dns_subdomain)(text := str(value)):
            limit, dot = (LABEL_CHARACTERS, "") if self._namespace else (SUBDOMAIN_CHARACTERS, ", '.'")
            self.fail(
                f"{text!r} cannot be a name; use up to {limit} lower-case letters, digits{dot} and '-', beginning and"
                " ending with a letter or digit",
                param,
                ctx,
            )
        return text


class Namespaced(click.ParamType[tuple[str, str]]):
    """NAMESPACE/NAME, a pair in the end."""

    name = "NAMESPACE/NAME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Raises: BadParameter."""
        if isinstance(value, tuple):
            return value[0], value[1]
        namespace, _, name = str(value).partition("/")
        if not namespace or not name or "/" in name:
            self.fail(f"{value!r} is not NAMESPACE/NAME, as in {SYSTEM_NAMESPACE}/sharder", param, ctx)
        return Named(namespace=True).convert(namespace, param, ctx), Named().convert(name, param, ctx)


def keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Keep an option that may stand before a command or behind it; what stands behind counts."""
    given = ctx.ensure_object(dict)
    if value is not None and param.name:
        given[param.name] = value


def kept_option(*names: str, **options: Any) -> Callable[[C], C]:
    """An option that may stand before a command or behind it, in `Context.obj`."""
    return click.option(*names, expose_value=False, callback=keep, **options)


def kubeconfig_option() -> Callable[[C], C]:
    """`--kubeconfig FILE`."""
    where = "default: $KUBECONFIG, the pod's ServiceAccount, ~/.kube/config"
    return kept_option("--kubeconfig", metavar="FILE", type=click.Path(), help=f"how to reach the API server ({where})")


def service_account_option() -> Callable[[C], C]:
    """`--service-account NAMESPACE/NAME`, a pair in the end."""
    return click.option(
        "--service-account",
        type=Namespaced(),
        default=(SYSTEM_NAMESPACE, SHARDER_SERVICE_ACCOUNT),
        help=f"the sharder's identity (default: {SYSTEM_NAMESPACE}/{SHARDER_SERVICE_ACCOUNT})",
    )


def ring_source(complete: Complete | None = None) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """`RING`, which `complete` knows, or `--filename FILE`, which has rings; one of the two."""

    def add(function: Callable[..., T]) -> Callable[..., T]:
        @click.argument(
            "ring", required=False, type=Named(), shell_complete=complete, help="name of a ClusterRing in the cluster"
        )
        @click.option(
            "-f",
            "--filename",
            metavar="FILE",
            type=click.Path(),
            help="manifest with ClusterRings; `-`: standard input",
        )
        @wraps(function)
        def run(*args: Any, ring: str | None, filename: str | None, **options: Any) -> T:
            if (ring is None) == (filename is None):
                raise click.UsageError("give RING or --filename FILE, one of the two", click.get_current_context())
            return function(*args, ring=ring, filename=filename, **options)

        return run

    return add

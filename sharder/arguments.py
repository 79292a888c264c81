"""Options that the commands `sharder` and `kubectl sharding` have in common.

Refuses: to import what a command needs; `--help` and completion are to be quick.
"""

from __future__ import annotations

import argparse

from shardsdk.protocol.labels import SHARDER_SERVICE_ACCOUNT, SYSTEM_NAMESPACE


def add_kubeconfig(parser: argparse.ArgumentParser, default: str | None) -> None:
    """`--kubeconfig FILE`."""
    where = "default: $KUBECONFIG, the pod's ServiceAccount, ~/.kube/config"
    parser.add_argument("--kubeconfig", metavar="FILE", default=default, help=f"how to reach the API server ({where})")


def add_ring_source(parser: argparse.ArgumentParser) -> None:
    """`RING`, or `--filename FILE`, which has rings."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("ring", nargs="?", metavar="RING", help="name of a ClusterRing in the cluster")
    source.add_argument("-f", "--filename", metavar="FILE", help="manifest with ClusterRings; `-`: standard input")


def add_service_account(parser: argparse.ArgumentParser) -> None:
    """`--service-account NAMESPACE/NAME`, a pair in the end."""
    parser.add_argument(
        "--service-account",
        metavar="NAMESPACE/NAME",
        type=parse_namespaced,
        default=(SYSTEM_NAMESPACE, SHARDER_SERVICE_ACCOUNT),
        help=f"the sharder's identity (default: {SYSTEM_NAMESPACE}/{SHARDER_SERVICE_ACCOUNT})",
    )


def parse_namespaced(text: str) -> tuple[str, str]:
    """Namespace and name.  Raises: ArgumentTypeError."""
    namespace, _, name = text.partition("/")
    if not namespace or not name or "/" in name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAMESPACE/NAME, as in {SYSTEM_NAMESPACE}/sharder")
    return namespace, name

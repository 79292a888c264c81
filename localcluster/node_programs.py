"""What a node takes: kubelet, kube-scheduler and kube-proxy, and Debian's programs below them.

The first three are one program, built from Go modules once and kept in the
user's cache.  Refuses: to install anything; it says what does.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from localcluster.binaries import KUBERNETES_VERSION, MODULE, build_folder, cache_folder, find_installed, say
from localcluster.build import Product, Say, build_products
from localcluster.errors import BinariesMissing
from localcluster.node_files import CNI_PROGRAMS

NODE_MODULE: Final = Path(__file__).with_name("kubenode")
#: Of Debian; root's PATH has them, a user's may not.
_SEARCHED: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TOOLS: Final = ("catatonit", "containerd", "ctr", "ip", "iptables", "mount", "nsenter", "runc", "unshare")
#: For containerd and kubelet, which call others by name.
PATH: Final = _SEARCHED

#: Builds products of one version; told the environment and whom to tell.
Build = Callable[[Sequence[Product], str, Mapping[str, str], Say], None]


@dataclass(frozen=True, slots=True)
class NodePrograms:
    """The program that is three, and where Debian's are."""

    kubenode: Path
    tools: Mapping[str, str]
    source: str


def find_node_programs(
    environment: Mapping[str, str] | None = None,
    *,
    build: Build = build_products,
    search: str = _SEARCHED,
    tell: Say = say,
) -> NodePrograms:
    """Find everything, or build the first three; what the control plane lacks is built along, as it costs little more.

    Raises: BinariesMissing, which says what to do.
    """
    environment = os.environ if environment is None else environment
    tools = find_tools(search)
    target = build_folder(NODE_MODULE, environment) / "kubenode"
    if target.exists():
        return NodePrograms(target, tools, f"cache ({target})")
    products = [Product(NODE_MODULE, target)]
    combined = cache_folder(environment) / "controlplane"
    if not combined.exists() and find_installed(environment, tell) is None:
        products.insert(0, Product(MODULE, combined))
    build(products, KUBERNETES_VERSION, environment, tell)
    return NodePrograms(target, tools, f"built from Go modules ({target})")


def find_tools(search: str = _SEARCHED) -> dict[str, str]:
    """Debian's programs, by name.  Raises: BinariesMissing."""
    if platform.system() != "Linux" or os.geteuid() != 0:
        raise BinariesMissing(
            "a node takes Linux and root: it makes namespaces, mounts and network interfaces. Elsewhere use kind or any"
            " cluster: KUBECONFIG=… IMAGE=… make e2e-node"
        )
    found = {tool: shutil.which(tool, path=search) for tool in _TOOLS}
    missing = [tool for tool, path in found.items() if path is None]
    if not Path(CNI_PROGRAMS, "bridge").exists() and search == _SEARCHED:
        missing.append(f"{CNI_PROGRAMS}/bridge")
    if missing:
        raise BinariesMissing(f"a node needs {', '.join(missing)}; install them: make node-deps")
    return {tool: path for tool, path in found.items() if path is not None}

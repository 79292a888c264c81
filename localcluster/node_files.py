"""The configuration files of a node's programs.

Refuses: to configure for strangers.  Whoever reaches the node's address can
do as they like; it is on this machine only.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

POD_CIDR: Final = "10.244.0.0/16"
PAUSE_IMAGE: Final = "localhost/pause:1"
NODE_NAME: Final = "localcluster"
PROXY_HEALTH_PORT: Final = 10256
#: Where Debian keeps the network plugins.
CNI_PROGRAMS: Final = "/usr/lib/cni"


def containerd_config(folder: Path, snapshotter: str) -> str:
    """containerd's, as TOML; its shims' sockets are below /run, which is the node's own."""
    return f"""\
version = 2
root = "{folder}/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.devmapper"]

[grpc]
address = "{containerd_socket(folder)}"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE_IMAGE}"
# runc may not lower the score below our own.
restrict_oom_score_adj = true

[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "{snapshotter}"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{CNI_PROGRAMS}"
conf_dir = "{folder}/cni"
"""


def containerd_socket(folder: Path) -> Path:
    """Where containerd listens."""
    return folder / "containerd.sock"


def cni_config() -> str:
    """A bridge, and addresses that are handed out one after the other."""
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": POD_CIDR}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    return json.dumps({"cniVersion": "0.4.0", "name": "localcluster", "plugins": [bridge]}, indent=2)


def kubelet_config(folder: Path, authority: Path, pod_logs: Path, cgroup: str) -> str:
    """The kubelet's: nothing is evicted or collected, whatever else fills this machine."""
    config: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": str(authority)},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}",
        "clusterDNS": [],
        "containerRuntimeEndpoint": f"unix://{containerd_socket(folder)}",
        "enforceNodeAllocatable": [],
        "evictionHard": {},
        "failCgroupV1": False,
        "failSwapOn": False,
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "localStorageCapacityIsolation": False,
        "podLogsDir": str(pod_logs),
        "readOnlyPort": 0,
        "resolvConf": "",
    }
    return json.dumps(config, indent=2)


def proxy_config(kubeconfig: Path) -> str:
    """kube-proxy's; what it may not set in a network namespace it leaves alone."""
    config: dict[str, Any] = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "clusterCIDR": POD_CIDR,
        "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "healthzBindAddress": f"0.0.0.0:{PROXY_HEALTH_PORT}",
        "hostnameOverride": NODE_NAME,
        # Without it, answers between pods would take the bridge and miss the way back through the Service.
        "iptables": {"masqueradeAll": True},
    }
    return json.dumps(config, indent=2)

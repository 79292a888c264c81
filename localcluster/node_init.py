"""The first process of a node: PID 1 in namespaces of the node's own.

Started by `unshare`, as a script (standard library only).  It gives the mount
namespace what kubelet and containerd expect at fixed paths, so that they leave
no trace on the machine, says where it is, and reaps orphans from then on.
When it is killed, the kernel kills every process of the node, and its mounts,
interfaces and iptables rules go with the namespaces.

Files in the folder that is its argument: `pid` (as seen from outside) once it
is done, `snapshotter` (what containerd can use there).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

#: A kubelet sets these for the whole machine; in here it finds them as it wants them.
_KERNEL = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


def main() -> None:
    """Set up, say so, and wait until killed."""
    folder = Path(sys.argv[1])
    outside = os.readlink("/proc/self")
    _mount("--make-rshared", "/")
    _mount("-t", "proc", "proc", "/proc")
    for path in ("/run", "/var/log"):
        _mount("-t", "tmpfs", "tmpfs", path)
    for path in ("/var/lib/kubelet", "/var/lib/cni"):
        # The mount point itself must be on the machine; it stays empty there.
        os.makedirs(path, exist_ok=True)
        own = folder / path.replace("/", "-").strip("-")
        own.mkdir()
        _mount("--bind", str(own), path)
    for name, value in _KERNEL.items():
        own = folder / name.replace("/", "-")
        own.write_text(f"{value}\n")
        _mount("--bind", str(own), f"/proc/sys/{name}")
    (folder / "snapshotter").write_text("overlayfs" if _overlays(folder) else "native")
    # Set only now, since it takes the exit codes of the children above; the kernel reaps the rest.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    (folder / "pid.new").write_text(outside)
    (folder / "pid.new").rename(folder / "pid")
    while True:
        signal.pause()


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, stdin=subprocess.DEVNULL)


def _overlays(folder: Path) -> bool:
    """Whether the folder's file system can be a layer; one that is an overlay itself can't."""
    parts = {name: folder / f"overlay-{name}" for name in ("lower", "upper", "work", "merged")}
    for part in parts.values():
        part.mkdir()
    options = f"lowerdir={parts['lower']},upperdir={parts['upper']},workdir={parts['work']}"
    merged = str(parts["merged"])
    done = subprocess.run(
        ["mount", "-t", "overlay", "overlay", "-o", options, merged], check=False, stderr=subprocess.DEVNULL
    )
    if done.returncode == 0:
        subprocess.run(["umount", merged], check=True)
    return done.returncode == 0


if __name__ == "__main__":
    main()

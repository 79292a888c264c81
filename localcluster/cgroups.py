"""A control group of a node's own, in each hierarchy of version 1 or in the one of version 2.

A kubelet takes a root group only if every controller that it uses is there; a
new group of version 2 has those that its parent hands down, one of version 1
may use no processor until it is told which.

Refuses: to remove anything; the supervisor does, by the note that is written
here before the first group is made.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Final

from localcluster.errors import LocalClusterError

TOP: Final = Path("/sys/fs/cgroup")
#: What a kubelet limits pods with, and counts.
_NEEDED_1: Final = {"cpu", "cpuacct", "cpuset", "memory"}
_NEEDED_2: Final = {"cpu", "memory", "pids"}
#: What a kubelet asks its root group for wherever the kernel has it.
_USED_2: Final = {"cpu", "cpuset", "hugetlb", "memory", "pids"}
#: Processes may be born while others are moved away.
_MOVES: Final = 20

Write = Callable[[Path, str], object]


def make_groups(name: str, note: Path, *, top: Path = TOP, write: Write = Path.write_text) -> None:
    """Make the groups called `name`, having listed them in `note`.  Raises: LocalClusterError."""
    if (top / "cgroup.controllers").exists():
        _check(_NEEDED_2 - set((top / "cgroup.controllers").read_text().split()), top)
        _hand_down(top, write)
        parents = [top]
    else:
        entries = list(top.iterdir()) if top.is_dir() else []
        _check(_NEEDED_1 - {part for entry in entries for part in entry.name.split(",")}, top)
        parents = [entry for entry in entries if entry.is_dir() and not entry.is_symlink()]
    note.write_text("".join(f"{parent / name}\n" for parent in parents))
    for parent in parents:
        try:
            (parent / name).mkdir()
        except OSError as error:
            if parent == top or _NEEDED_1 & set(parent.name.split(",")):
                raise LocalClusterError(
                    f"a node takes a control group of its own, {parent / name}: {error.strerror}; in a container that"
                    " takes one with privileges, and control groups mounted for writing"
                ) from error
            continue
        _inherit_cpuset(parent / name, write)


def _check(missing: set[str], top: Path) -> None:
    if missing:
        raise LocalClusterError(
            f"a node takes the control group controllers {', '.join(sorted(missing))}, which are not in {top};"
            " mount them, or use kind or any cluster: KUBECONFIG=… IMAGE=… make e2e-node"
        )


def _hand_down(top: Path, write: Write) -> None:
    """Give groups below `top` the controllers that a kubelet asks for; they stay on, which costs nothing."""
    control = top / "cgroup.subtree_control"
    wanted = _USED_2 & set((top / "cgroup.controllers").read_text().split())
    for controller in sorted(wanted - set(control.read_text().split())):
        for attempt in range(_MOVES):
            try:
                write(control, f"+{controller}")
                break
            except OSError as error:
                if error.errno != errno.EBUSY or attempt == _MOVES - 1:
                    raise LocalClusterError(
                        f"the controller {controller} cannot be handed down in {top}: {error.strerror}; in a container"
                        " that takes one with privileges"
                    ) from error
                _make_room(top, write)


def _make_room(top: Path, write: Write) -> None:
    """Move a container's processes to a group below: a group hands controllers down only when it has no processes.

    The machine's own root group is exempt, so that nothing moves there.
    """
    leaf = top / "init"
    leaf.mkdir(exist_ok=True)
    for process in (top / "cgroup.procs").read_text().split():
        try:
            write(leaf / "cgroup.procs", process)
        except OSError as error:
            # It has ended meanwhile.
            if error.errno != errno.ESRCH:
                raise LocalClusterError(f"process {process} cannot be moved to {leaf}: {error.strerror}") from error


def _inherit_cpuset(group: Path, write: Write) -> None:
    for name in ("cpuset.cpus", "cpuset.mems"):
        own, parent = group / name, group.parent / name
        # Version 2 inherits by itself; there is no such file, or an empty one, in its root.
        if own.exists() and parent.exists() and not own.read_text().strip() and parent.read_text().strip():
            write(own, parent.read_text())

"""A seat: what one living process of this machine has at a time, so that the next knows that the last is dead.

A process without a pod's UID that is killed and started again finds its lease held
by another instance.  It would wait for as long as the sharder does before it takes
the lease over, so every restart would be a race, and mostly a move of all objects.

A seat is an abstract Unix socket, bound under a name that is made of the lease.
The kernel gives the name to one socket of a network namespace at a time, and takes
it back when the last process that has the socket open has ended, however it ended.
So the instance of a seat is made of the name, the namespace and this boot of the
kernel: nobody else can have it at the same time, and the next process that has it
goes on with the lease.

A container that restarts in its pod goes on with the lease by the pod's UID, which is what all of the
pod's processes have.  They have one network namespace as well, so there a seat is one of them at a time.
Its instance says besides which seat it is: processes that reach the API server by different URLs have
different seats, and would else say one instance.

Nobody waits for a seat: who finds it taken has a living twin, or one that is not quite dead.
"""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import sys
from pathlib import Path
from typing import Final

#: Random for each boot of a kernel.  Source: Linux, proc_sys_kernel(5).
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
#: Of the thread that binds.  Source: Linux, namespaces(7): it is the same namespace if device and inode agree.
_NETWORK: Final = Path("/proc/thread-self/ns/net")

#: Seats that are never given up while the process lives, see `keep`.
_KEPT: Final[list[Seat]] = []


class Seat:
    """Taken, until it is given up or the process ends."""

    def __init__(self, bound: socket.socket, instance: str) -> None:
        self._bound = bound
        #: What the process that has it is called on the lease.
        self.instance: str = instance

    def give_up(self) -> None:
        """Nothing that this process did under it can be executed any more."""
        self._bound.close()

    def keep(self) -> None:
        """Something may be: have nobody sit here until this process has ended."""
        _KEPT.append(self)


class SeatTaken(Exception):
    """Somebody sits there who lives: another process, one that it has forked, or this one."""


def take_seat(host: str, namespace: str, name: str, uid: str = "") -> Seat | None:
    """The seat of the shard `name`, as the API server at `host` knows it; `None`: there are none here.

    In the pod of this `uid` it is that pod's, and its instance is `instance_in_pod`.  Raises: SeatTaken; OSError when
    it cannot be told (no files are left, or no memory; in a pod also that such sockets are forbidden).
    """
    if sys.platform != "linux":
        return None
    key = _key(host, namespace, name, uid)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        bound.bind(f"\0controller-sharding/{key}")
        return Seat(bound, instance_in_pod(host, namespace, name, uid) if uid else _instance_here(key))
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            raise SeatTaken from error
        if uid:  # nobody may take that pod's instance without a seat: another process of it may have one
            raise
        return None


def instance_in_pod(host: str, namespace: str, name: str, uid: str) -> str:
    """Who has that seat of the pod of this `uid`: the same after a restart of its container."""
    return f"{uid}-{_key(host, namespace, name, uid)[:8]}"


def _key(host: str, namespace: str, name: str, uid: str) -> str:
    where = f"{host}\0{namespace}\0{name}" + (f"\0{uid}" if uid else "")
    return hashlib.sha256(where.encode()).hexdigest()


def _instance_here(key: str) -> str:
    """Who has that seat on this kernel, of this boot.  Raises: OSError, where the kernel does not say which it is."""
    network = os.stat(_NETWORK)
    boot = _BOOT_ID.read_text().strip()
    if not boot:
        raise OSError("the kernel does not say which boot this is")
    here = hashlib.sha256(f"{boot} {network.st_dev}:{network.st_ino} {key}".encode()).hexdigest()
    return f"seat-{here[:32]}"

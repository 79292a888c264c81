"""The process that owns a control plane's components, so that none outlives its user.

Run as a script (standard library only, so that it is up in 30 ms).  Its
standard input is one end of a socket pair; the other end is held by whoever
started the control plane.  When that end closes, for whatever reason (SIGKILL
included), every component is killed and the folder is deleted.  Should this
process itself be killed, the kernel kills the components (Linux), and the next
control plane on this machine sweeps the folder, whose lock is then free.
The files `cgroups` and `links` in the folder name control groups and network
interfaces to remove with it.

Refuses: to decide anything.  It starts, signals and reports what it is told.

Protocol: one JSON object a line, one answer a line, in order.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: prctl(2): the signal a process gets when its parent dies; and becoming the parent of grandchildren whose parent died.
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
#: The longest command line that a supervisor accepts; a start command has some 4 KiB.
_MAX_LINE_BYTES = 1 << 20
#: How long the processes of a killed PID namespace may take to end, and to leave their control groups.
_GONE_SECONDS = 60.0
#: The kernel reports nothing when a control group empties.
_LOOK_SECONDS = 0.02
#: Where root's programs are, whatever the owner's PATH.
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def main() -> int:
    """Serve commands until the owner is gone or says `close`; then leave nothing behind."""
    folder = Path(sys.argv[1])
    # Signals of the terminal are for the owner, which stops the components in order.
    os.setsid()
    # Renamed once it is held: an unheld lock tells others to sweep the folder.
    lock = os.open(folder / "lock.new", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    (folder / "lock.new").rename(folder / "lock")
    (folder / "supervisor.pid").write_text(str(os.getpid()))
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    supervisor = _Supervisor(folder, socket.socket(fileno=0))
    signal.set_wakeup_fd(supervisor.wakeup.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, supervisor.end)
    try:
        supervisor.serve()
    finally:
        supervisor.clean()
    return 0


class _Supervisor:
    def __init__(self, folder: Path, owner: socket.socket) -> None:
        self._folder = folder
        self._owner = owner
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._buffer = b""
        self._detached = False
        self._keep_logs = False
        self._ended = False
        self._awake, self.wakeup = socket.socketpair()
        self._awake.setblocking(False)
        self.wakeup.setblocking(False)

    def end(self, *_: object) -> None:
        """Stop serving soon; also the handler of SIGTERM."""
        self._ended = True

    def serve(self) -> None:
        selector = selectors.DefaultSelector()
        selector.register(self._owner, selectors.EVENT_READ)
        selector.register(self._awake, selectors.EVENT_READ)
        while not self._ended:
            for key, _ in selector.select():
                if key.fileobj is self._awake:
                    with contextlib.suppress(BlockingIOError):
                        self._awake.recv(4096)
                    for child in self._children.values():
                        child.poll()
                elif not self._read():
                    selector.unregister(self._owner)
                    self._ended = not self._detached

    def clean(self) -> None:
        """Kill and reap every component, then delete the folder (but for the logs, when asked)."""
        for child in self._children.values():
            if child.poll() is None:
                child.kill()
        for child in self._children.values():
            child.wait()
        _await_orphans()
        delete(self._folder, keep_logs=self._keep_logs)
        self._answer({"closed": True})

    def _read(self) -> bool:
        """Serve what has arrived; false when the owner is gone."""
        try:
            data = self._owner.recv(1 << 16)
        except ConnectionError:
            return False
        if not data or len(self._buffer) > _MAX_LINE_BYTES:
            return False
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            command = json.loads(line)
            try:
                answer = self._handlers()[command.pop("do")](**command)
            except Exception as error:  # the owner gets it as an answer; this process must go on
                answer = {"error": f"{type(error).__name__}: {error}"}
            if answer is not None:
                self._answer(answer)
        return True

    def _handlers(self) -> dict[str, Callable[..., dict[str, Any] | None]]:
        return {
            "start": self._start,
            "signal": self._signal,
            "status": self._status,
            "detach": self._detach,
            "close": self._close,
        }

    def _answer(self, answer: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            self._owner.sendall(json.dumps(answer).encode() + b"\n")

    def _start(self, name: str, argv: list[str], env: dict[str, str], log: str) -> dict[str, Any]:
        running = self._children.get(name)
        if running is not None and running.poll() is None:
            raise RuntimeError(f"{name} is running already, as process {running.pid}")
        with open(log, "ab") as output:
            child = subprocess.Popen(
                argv,
                env=env,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=_die_with_parent,
            )
        self._children[name] = child
        return {"pid": child.pid}

    def _signal(self, name: str, signum: int) -> dict[str, Any]:
        child = self._children.get(name)
        if child is None or child.poll() is not None:
            return {"sent": False}
        child.send_signal(signum)
        return {"sent": True}

    def _status(self) -> dict[str, Any]:
        return {"exits": {name: child.poll() for name, child in self._children.items()}}

    def _detach(self) -> dict[str, Any]:
        self._detached = True
        return {}

    def _close(self, keep_logs: bool) -> None:
        self._keep_logs = keep_logs
        self._ended = True


def delete(folder: Path, *, keep_logs: bool = False) -> None:
    """Delete a folder whose processes have ended, and first what it names elsewhere; harmless when repeated.

    The lock goes last: as long as anything is left, others find it free and sweep again.
    """
    remove_links(folder)
    remove_cgroups(folder)
    kept = ("lock", "logs") if keep_logs else ("lock",)
    for entry in folder.iterdir():
        if entry.name in kept:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)
    if {entry.name for entry in folder.iterdir()} <= set(kept):
        (folder / "lock").unlink(missing_ok=True)
    if not keep_logs:
        with contextlib.suppress(OSError):
            folder.rmdir()


def remove_links(folder: Path) -> None:
    """Remove the network interfaces that `folder` lists by name and number; the kernel may take minutes to.

    By number, which is never given twice: the name may be another node's by now.
    """
    for line in _lines(folder / "links"):
        name, _, number = line.partition(" ")
        with contextlib.suppress(OSError):
            if str(socket.if_nametoindex(name)) == number:
                command = ["ip", "link", "delete", "dev", f"if{number}"]
                subprocess.run(command, env={"PATH": _PATH}, stdin=subprocess.DEVNULL, check=False)


def remove_cgroups(folder: Path) -> None:
    """Remove the control groups that `folder` lists, once their processes have ended."""
    end = time.monotonic() + _GONE_SECONDS
    for top in _lines(folder / "cgroups"):
        while os.path.isdir(top):
            for path, _, _ in os.walk(top, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(path)
            if time.monotonic() > end:
                break
            time.sleep(_LOOK_SECONDS)


def _lines(note: Path) -> list[str]:
    try:
        return note.read_text().splitlines()
    except OSError:
        return []


def _await_orphans() -> None:
    """Wait for what killed components have left to us: a node's first process ends after all others of the node."""
    end = time.monotonic() + _GONE_SECONDS
    while time.monotonic() < end:
        try:
            ended, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not ended:
            time.sleep(_LOOK_SECONDS)


#: Loaded here, since little is safe to do between fork and exec.
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def _die_with_parent() -> None:
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())

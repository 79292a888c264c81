"""The owner's side of the supervisor: start, signal and watch components.

Answers come within a millisecond or two, so calls simply block.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from localcluster.errors import ComponentFailed, LocalClusterError
from localcluster.supervisor import delete

#: Folders of control planes in the temporary folder start with this.
FOLDER_PREFIX = "localcluster-"
#: How often a process that should end is looked at where the kernel does not tell (elsewhere than on Linux).
_POLL_SECONDS = 0.02
#: Logs of failed runs are for whoever comes back tomorrow.
_KEEP_LOGS_SECONDS = 24 * 3600
#: An answer that takes longer means that the supervisor is stopped or gone.
_ANSWER_SECONDS = 60.0
#: To end it kills a node's processes and deletes the many files of its layers.
_CLOSE_SECONDS = 300.0
#: The kernel ends what is killed, when it comes to it.
_KILL_SECONDS = 240.0


class Supervisor:
    """A supervisor process and the folder that it deletes when it ends."""

    def __init__(self) -> None:
        sweep()
        self.folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX))
        self.logs = self.folder / "logs"
        self.logs.mkdir()
        self._mutex = threading.Lock()
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(_ANSWER_SECONDS)
        with theirs, open(self.logs / "supervisor.log", "ab") as log:
            script = Path(__file__).with_name("supervisor.py")
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(script), str(self.folder)],
                stdin=theirs.fileno(),
                stdout=log,
                stderr=log,
            )
        self._reader = self._socket.makefile("rb")
        self._pids: dict[str, int] = {}
        self.closed = False

    @property
    def pid(self) -> int:
        """The supervisor's process id."""
        return int(self._process.pid)

    def start(self, name: str, argv: Sequence[str], env: Mapping[str, str]) -> int:
        """Start a component whose output goes to its log; returns its process id."""
        answer = self._ask("start", name=name, argv=list(argv), env=dict(env), log=str(self.log(name)))
        self._pids[name] = int(answer["pid"])
        return self._pids[name]

    def signal(self, name: str, signum: signal.Signals) -> bool:
        """Send a signal; false when the component is not running."""
        return bool(self._ask("signal", name=name, signum=int(signum))["sent"])

    def exit_code(self, name: str) -> int | None:
        """How the component ended (negative: by which signal); `None` while it runs."""
        exits: dict[str, int | None] = self._ask("status")["exits"]
        return exits[name]

    async def ended(self, name: str, timeout_seconds: float) -> None:
        """Wait until the component has ended.

        Raises: TimeoutError.
        """
        async with asyncio.timeout(timeout_seconds):
            while self.exit_code(name) is None:
                await self._end_of(name)

    async def _end_of(self, name: str) -> None:
        """Return once the process has ended, or where nobody tells, after a moment."""
        descriptor = _watch(self._pids[name])
        if descriptor is None:
            await asyncio.sleep(_POLL_SECONDS)
            return
        loop = asyncio.get_running_loop()
        over = loop.create_future()
        loop.add_reader(descriptor, lambda: None if over.done() else over.set_result(None))
        try:
            # It may have ended before, and its number be another's by now.
            if self.exit_code(name) is None:
                await over
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)

    def log(self, name: str) -> Path:
        """The file with the component's output, all its starts in a row."""
        return self.logs / f"{name}.log"

    def failure(self, name: str, what: str) -> ComponentFailed:
        """An error that names the log and quotes its end."""
        path = self.log(name)
        tail = path.read_text(errors="replace").splitlines()[-8:] if path.exists() else []
        quoted = "".join(f"\n    {line[:300]}" for line in tail)
        return ComponentFailed(f"{name} {what}; its log is {path} and ends with:{quoted}")

    def detach(self) -> None:
        """Let the components live on after this process."""
        self._ask("detach")
        self.closed = True
        self._socket.close()
        # Not awaited on purpose: the supervisor outlives us, which is no leak.
        self._process.returncode = 0

    def close(self, *, keep_logs: bool = False) -> None:
        """Kill every component and delete the folder (but for the logs when asked)."""
        if self.closed:
            return
        self.closed = True
        self._socket.settimeout(_CLOSE_SECONDS)
        with contextlib.suppress(LocalClusterError):
            self._ask("close", keep_logs=keep_logs)
        self._reader.close()
        self._socket.close()
        try:
            self._process.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if not keep_logs:
            # Of one that was killed: what it names elsewhere goes as well.
            with contextlib.suppress(OSError):
                delete(self.folder)

    def _ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        with self._mutex:
            try:
                self._socket.sendall(json.dumps({"do": do, **arguments}).encode() + b"\n")
                line = self._reader.readline()
            except OSError as error:
                raise self._gone() from error
        if not line:
            raise self._gone()
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise LocalClusterError(f"{do} {arguments.get('name', '')}: {answer['error']}")
        return answer

    def _gone(self) -> LocalClusterError:
        return LocalClusterError(f"the supervisor process {self._process.pid} of {self.folder} is gone")


class Supervised:
    """One process under a supervisor, which ends it when its owner is gone; a subclass starts it, as `pid`."""

    def __init__(self, name: str, argv: Sequence[str], supervisor: Supervisor) -> None:
        self.name = name
        self.argv = tuple(argv)
        self.pid = 0
        self._supervisor = supervisor

    @property
    def log(self) -> Path:
        """The file with the process's output."""
        return self._supervisor.log(self.name)

    @property
    def running(self) -> bool:
        """Whether the process is there (it may be paused)."""
        return self.pid != 0 and self._supervisor.exit_code(self.name) is None

    def pause(self) -> None:
        """Stop it in its tracks (SIGSTOP): an address of it accepts connections, nobody answers."""
        self._supervisor.signal(self.name, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on (SIGCONT)."""
        self._supervisor.signal(self.name, signal.SIGCONT)

    async def kill(self) -> None:
        """End it at once (SIGKILL), and wait until it is gone."""
        self._supervisor.signal(self.name, signal.SIGKILL)
        await self._supervisor.ended(self.name, _KILL_SECONDS)


def _watch(pid: int) -> int | None:
    """A descriptor that is readable once the process has ended; `None`: it is gone, or nobody can tell."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def is_running(folder: Path) -> bool:
    """Whether a supervisor lives in this folder: it holds the folder's lock as long as it does."""
    try:
        lock = os.open(folder / "lock", os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def sweep() -> None:
    """Delete the folders of supervisors that were killed together with their owner, what they name, and old logs.

    Kept logs have no lock, nor has a folder whose supervisor is just starting:
    those go when they are a day old.
    """
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*"):
        with contextlib.suppress(OSError):
            state = folder.stat()
            if state.st_uid != os.getuid() or is_running(folder):
                continue
            if (folder / "lock").exists() or time.time() - state.st_mtime > _KEEP_LOGS_SECONDS:
                delete(folder)

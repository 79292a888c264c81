"""The service as a process: signals, exit codes, errors.

Each test runs one.  For signals it is the bare event loop, for errors the whole
command with a stand-in for the service.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
"""
SIGNALLED = """
import asyncio, logging, os, signal, sys, time
import sharder.lifecycle

async def run():
    print("running", flush=True)
{body}

logging.basicConfig(level="INFO", format="%(levelname)s %(message)s")
logging.getLogger("asyncio").disabled = True
sharder.lifecycle.STOP_MARGIN_SECONDS = 0.0
sys.exit(sharder.lifecycle.run_until_signal(run, stop_limit_seconds={limit}))
"""
COMMAND = """
import asyncio, sys, types
import sharder
from sharder.cli import main
from shardsdk.errors import ConfigurationError, ConnectionFailed, LeaseLost

async def run(config, access, telemetry):
    print("running", access.host, config.leader_election.resource_name, flush=True)
{body}

service = types.ModuleType("sharder.service")
service.run = run
sys.modules["sharder.service"] = sharder.service = service
sys.exit(main(["--kubeconfig", "kubeconfig", "--config", "config.yaml", *sys.argv[1:]]))
"""

Process = subprocess.Popen[str]


class Processes:
    """Starts Python programs in `folder`, and ends what is left of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[Process] = []

    def run(self, program: str, *options: str) -> Process:
        (self.folder / "program.py").write_text(program)
        process = subprocess.Popen(
            [sys.executable, "program.py", *options],
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def run_signalled(self, body: str, limit: float | None = 15) -> Process:
        """A process whose coroutine has this body."""
        return self.run(SIGNALLED.format(body=_indent(body), limit=limit))

    def signalled(self, body: str, limit: float | None = 15) -> Process:
        """A process whose coroutine has this body and runs already."""
        process = self.run_signalled(body, limit)
        assert read_line(process) == "running\n"
        return process

    def command(self, body: str, config: str = "", *options: str) -> Process:
        """The command `sharder` with a service of this body."""
        header = "apiVersion: config.sharding.timebertt.dev/v1alpha1\nkind: SharderConfig\n"
        (self.folder / "config.yaml").write_text(header + config)
        (self.folder / "kubeconfig").write_text(KUBECONFIG)
        return self.run(COMMAND.format(body=_indent(body)), *options)

    def close(self) -> None:
        for process in self.started:
            process.kill()
            process.communicate()


def _indent(body: str) -> str:
    return textwrap.indent(textwrap.dedent(body), "    ")


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    processes = Processes(tmp_path)
    yield processes
    processes.close()


def read_line(process: Process) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


STOPS_IN_ORDER = """
try:
    await asyncio.Event().wait()
except asyncio.CancelledError:
    await asyncio.sleep(0.01)
    print("stopped in order", flush=True)
    return 0
"""
NEVER_STOPS = """
try:
    await asyncio.Event().wait()
finally:
    print("stopping", flush=True)
    await asyncio.sleep(600)
"""
BLOCKS = """
try:
    await asyncio.Event().wait()
finally:
    print("stopping", flush=True)
    for _ in range(60_000):
        time.sleep(0.01)
"""


BLOCKED_BEFORE = """
signal.raise_signal(signal.SIGTERM)
print("stopping", flush=True)
signal.raise_signal(signal.SIGTERM)
"""
#: The first signal, while nobody reads what the process writes to stderr.
NOT_READ = """
_, full = os.pipe()
os.set_blocking(full, False)
try:
    while True:
        os.write(full, b"x" * 4096)
except BlockingIOError:
    os.set_blocking(full, True)
os.dup2(full, 2)
signal.raise_signal(signal.SIGTERM)
await asyncio.Event().wait()
"""


NO_THREAD_LEFT = """
import threading
def start(thread):
    raise RuntimeError("can't start new thread")
threading.Thread.start = start
signal.raise_signal(signal.SIGTERM)
"""


def test_a_signal_stops_it_also_where_no_thread_is_left_for_the_limit(processes: Processes) -> None:
    process = processes.run_signalled(NO_THREAD_LEFT + STOPS_IN_ORDER)
    out, err = process.communicate(timeout=50)
    assert (process.returncode, out) == (0, "running\nstopped in order\n"), err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_stops_in_order(processes: Processes, number: signal.Signals) -> None:
    process = processes.signalled(STOPS_IN_ORDER)
    process.send_signal(number)
    out, err = process.communicate()
    assert (process.returncode, out) == (0, "stopped in order\n")
    assert err == f"INFO Stopping; a second signal ends the process at once signal={number.name}\n"


def test_a_service_that_lets_the_cancellation_through_ends_with_zero(processes: Processes) -> None:
    process = processes.signalled("await asyncio.Event().wait()")
    process.terminate()
    assert process.wait() == 0


@pytest.mark.parametrize("body", [NEVER_STOPS, BLOCKS], ids=["waits", "blocks the loop"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_second_signal_ends_it_at_once(processes: Processes, body: str, number: signal.Signals) -> None:
    process = processes.signalled(body, limit=None)
    process.terminate()
    assert read_line(process) == "stopping\n"
    process.send_signal(number)
    assert process.wait(timeout=50) == 128 + number


def test_the_second_signal_ends_it_also_where_the_loop_was_blocked_before_the_first(processes: Processes) -> None:
    process = processes.run_signalled(BLOCKED_BEFORE)
    out, _ = process.communicate(timeout=50)
    assert (process.returncode, out) == (128 + signal.SIGTERM, "running\nstopping\n")


def test_a_stop_takes_no_longer_where_nobody_reads_its_log(processes: Processes) -> None:
    process = processes.signalled(NOT_READ, limit=0.1)
    assert process.wait(timeout=50) == 1


def test_a_stop_that_takes_too_long_is_ended(processes: Processes) -> None:
    process = processes.signalled(NEVER_STOPS, limit=0.1)
    process.terminate()
    _, err = process.communicate(timeout=50)
    assert process.returncode == 1
    assert "not stopped in time" in err


def test_the_loop_is_uvloops(processes: Processes) -> None:
    process = processes.signalled("print(type(asyncio.get_running_loop()).__module__, flush=True)\nreturn 0")
    assert read_line(process) == "uvloop\n"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
def test_it_takes_as_many_open_files_as_it_may_have(processes: Processes) -> None:
    few = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (256, 512))\n"
    body = "print(*resource.getrlimit(resource.RLIMIT_NOFILE), flush=True)\nreturn 0"
    process = processes.run(few + SIGNALLED.format(body=_indent(body), limit=None))
    assert (read_line(process), read_line(process)) == ("running\n", "512 512\n")


def test_the_service_gets_configuration_and_access_and_gives_the_exit_code(processes: Processes) -> None:
    process = processes.command("return 7", "leaderElection: {resourceName: mine}")
    out, _ = process.communicate()
    assert (process.returncode, out) == (7, "running http://127.0.0.1:1 mine\n")


@pytest.mark.parametrize(
    ("raised", "code", "lines"),
    [
        ("ConfigurationError('port 9443 is taken; set webhook.server.port')", 2,
         ["sharder: port 9443 is taken; set webhook.server.port"]),
        ("ConnectionFailed('refused\\nby peer')", 1, ["sharder: refused by peer"]),
        ("OSError(98, 'Address already in use')", 1, ["sharder: Address already in use"]),
        ("ExceptionGroup('x', [LeaseLost('a'), ExceptionGroup('y', [LeaseLost('b'), LeaseLost('a')])])", 1,
         ["sharder: a", "sharder: b"]),
    ],
)  # fmt: skip
def test_an_error_that_a_user_can_mend_is_a_line_without_traceback(
    processes: Processes, raised: str, code: int, lines: list[str]
) -> None:
    process = processes.command(f"raise {raised}")
    _, err = process.communicate()
    assert (process.returncode, err.splitlines()) == (code, lines)


def test_a_fault_of_the_program_is_logged_with_its_stack(processes: Processes) -> None:
    process = processes.command("return 1 // 0", "", "--log-format", "json")
    _, err = process.communicate()
    assert process.returncode == 1
    (line,) = err.splitlines()
    assert "ZeroDivisionError" in line
    assert "in run" in line


def test_settings_without_effect_are_logged(processes: Processes) -> None:
    process = processes.command("return 0", "debugging: {enableProfiling: true}")
    _, err = process.communicate()
    assert "setting has no effect setting=debugging.enableProfiling" in err


def test_an_unreadable_kubeconfig_ends_with_one_line(processes: Processes, tmp_path: Path) -> None:
    process = processes.command("return 0", "", "--kubeconfig", str(tmp_path / "nowhere"))
    _, err = process.communicate()
    assert process.returncode == 2
    (line,) = err.splitlines()
    assert str(tmp_path / "nowhere") in line

"""The service as a process: signals, exit codes, errors.  Each test runs one, with a stand-in for the service."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
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
PROGRAM = """
import asyncio, sys, time, types
import sharder, sharder.lifecycle
from sharder.cli import main
from shardsdk.errors import ConfigurationError, ConnectionFailed, LeaseLost

async def run(config, access, telemetry):
    print("running", access.host, config.leader_election.resource_name, flush=True)
{body}

service = types.ModuleType("sharder.service")
service.run = run
sys.modules["sharder.service"] = sharder.service = service
sharder.lifecycle.STOP_MARGIN_SECONDS = 0.0
sys.exit(main(sys.argv[1:]))
"""

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a process whose service has the given body, and waits until it runs."""
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    started: list[subprocess.Popen[str]] = []

    def start(body: str, config: str = "", *options: str, wait: bool = True) -> subprocess.Popen[str]:
        (tmp_path / "config.yaml").write_text(
            f"apiVersion: config.sharding.timebertt.dev/v1alpha1\nkind: SharderConfig\n{config}"
        )
        (tmp_path / "program.py").write_text(PROGRAM.format(body=textwrap.indent(textwrap.dedent(body), "    ")))
        process = subprocess.Popen(
            [sys.executable, "program.py", "--kubeconfig", "kubeconfig", "--config", "config.yaml", *options],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        if wait:
            assert process.stdout is not None
            assert process.stdout.readline() == "running http://127.0.0.1:1 sharder\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def read_line(process: subprocess.Popen[str]) -> str:
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
    await asyncio.sleep(60)
"""
BLOCKS = """
try:
    await asyncio.Event().wait()
finally:
    print("stopping", flush=True)
    for _ in range(6000):
        time.sleep(0.01)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_stops_in_order(start: Start, number: signal.Signals) -> None:
    process = start(STOPS_IN_ORDER)
    process.send_signal(number)
    out, err = process.communicate()
    assert (process.returncode, out) == (0, "stopped in order\n")
    assert f"signal={number.name}" in err
    assert "Traceback" not in err


def test_a_service_that_lets_the_cancellation_through_ends_with_zero(start: Start) -> None:
    process = start("await asyncio.Event().wait()")
    process.terminate()
    assert process.wait() == 0


@pytest.mark.parametrize("body", [NEVER_STOPS, BLOCKS], ids=["waits", "blocks the loop"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_second_signal_ends_it_at_once(start: Start, body: str, number: signal.Signals) -> None:
    process = start(body, "gracefulShutDown: -1s")
    process.terminate()
    assert read_line(process) == "stopping\n"
    process.send_signal(number)
    assert process.wait(timeout=5) == 128 + number


def test_a_stop_that_takes_too_long_is_ended(start: Start) -> None:
    process = start(NEVER_STOPS, "gracefulShutDown: 100ms")
    process.terminate()
    _, err = process.communicate(timeout=10)
    assert process.returncode == 1
    assert "not stopped in time" in err


def test_the_services_exit_code_is_the_processs(start: Start) -> None:
    assert start("return 7").wait() == 7


@pytest.mark.parametrize(
    ("raised", "code", "lines"),
    [
        ("ConfigurationError('port 9443 is taken; set webhook.server.port')", 2,
         ["sharder: port 9443 is taken; set webhook.server.port"]),
        ("LeaseLost('not the leader any more')", 1, ["sharder: not the leader any more"]),
        ("ConnectionFailed('refused\\nby peer')", 1, ["sharder: refused by peer"]),
        ("OSError(98, 'Address already in use')", 1, ["sharder: [Errno 98] Address already in use"]),
        ("ExceptionGroup('x', [LeaseLost('a'), ExceptionGroup('y', [LeaseLost('b'), LeaseLost('a')])])", 1,
         ["sharder: a", "sharder: b"]),
    ],
)  # fmt: skip
def test_an_error_that_a_user_can_mend_is_a_line_without_traceback(
    start: Start, raised: str, code: int, lines: list[str]
) -> None:
    process = start(f"raise {raised}")
    _, err = process.communicate()
    assert (process.returncode, err.splitlines()) == (code, lines)


def test_a_fault_of_the_program_is_logged_with_its_stack(start: Start) -> None:
    process = start("return 1 // 0", "", "--log-format", "json")
    _, err = process.communicate()
    assert process.returncode == 1
    (line,) = err.splitlines()
    assert "ZeroDivisionError" in line
    assert "in run" in line


def test_settings_without_effect_are_logged(start: Start) -> None:
    process = start("return 0", "debugging: {enableProfiling: true}")
    _, err = process.communicate()
    assert "setting has no effect setting=debugging.enableProfiling" in err


def test_an_unreadable_kubeconfig_ends_with_one_line(start: Start, tmp_path: Path) -> None:
    process = start("return 0", "", "--kubeconfig", str(tmp_path / "nowhere"), wait=False)
    _, err = process.communicate()
    assert process.returncode == 2
    (line,) = err.splitlines()
    assert str(tmp_path / "nowhere") in line


def test_the_loop_is_uvloops(start: Start) -> None:
    process = start("print(type(asyncio.get_running_loop()).__module__, flush=True)\nreturn 0")
    assert read_line(process) == "uvloop\n"

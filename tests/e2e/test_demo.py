"""The demo tells its story and checks it, in a pipe as `make demo` runs it and on a terminal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from examples.demo.__main__ import run as run_demo
from examples.demo.watching import CONFIGMAPS, SECRETS, Watching, checksum
from localcluster.installation import SharderTimings
from shardsdk.kube.clock import SystemClock
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import MemoryApi

ROOT = Path(__file__).parents[2]
#: `make demo` has to end within 120 s once everything is built; a busy machine gets more here.
SECONDS = 420
#: Leases that outlast an API server which other tests keep busy: a shard that loses its lease ends, as it should.
LEASE_SECONDS = 8
#: What is printed when the story is over and everything keeps running.
LAST_HINT = b"k delete lease shard-1"
STEPS = ("Three shards", "A fourth shard joins", "leaves gracefully", "is killed", "The leading sharder is killed")


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 30)
async def test_make_demo_in_a_pipe() -> None:
    """`make demo` itself, but for the environment: the one that runs this test serves."""
    recipe = (ROOT / "Makefile").read_text().partition("\ndemo: ")[2].splitlines()[1]
    assert "examples.demo" in recipe, "make demo runs something else than what is tested here"
    code, output = await run([sys.executable, "-m", "examples.demo", "--lease-seconds", str(LEASE_SECONDS)])
    assert code == 0, output
    assert f"(its lease lasts {LEASE_SECONDS} s:" in output
    assert [step for step in STEPS if step not in output] == []
    assert output.count("ok: all 3") == len(STEPS), output
    assert "nothing moved because of the failover" in output
    assert "\x1b[" not in output


@pytest.mark.parametrize("seconds", ["2", "31", "soon"])
def test_a_lease_that_no_step_can_wait_for_is_refused_with_those_that_can_be(
    seconds: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["examples.demo", "--lease-seconds", seconds])
    with pytest.raises(SystemExit):
        run_demo()
    assert f"'{seconds}' is no lease for the demo: give whole seconds from 3 to 30" in capsys.readouterr().err


def test_the_sharders_timings_grow_with_the_lease() -> None:
    assert SharderTimings.for_lease(3) == SharderTimings()
    assert SharderTimings.for_lease(6) == SharderTimings(6, renew_deadline=4, retry_period=1, staleness=6)


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 30)
async def test_on_a_terminal_it_stays_to_be_played_with_until_it_is_interrupted(tmp_path: Path) -> None:
    leader, follower = pty.openpty()
    screen: list[bytes] = []
    loop = asyncio.get_running_loop()
    loop.add_reader(leader, lambda: screen.append(_read(leader)))
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "examples.demo", "--secrets", "60", "--keep",
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=follower, stderr=follower,
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "120"},
        )  # fmt: skip
        os.close(follower)
        async with asyncio.timeout(SECONDS):
            while process.returncode is None and LAST_HINT not in b"".join(screen):
                await asyncio.sleep(0.1)
        assert process.returncode is None, b"".join(screen).decode()
        code, played = await run(["bash", "-ec", as_script(b"".join(screen).decode())])
        assert code == 0, played
        assert re.search(r"^put back: shard-[14]$", played, re.MULTILINE), played
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(SECONDS):
            code = await process.wait()
    finally:
        loop.remove_reader(leader)
        os.close(leader)
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    output = b"".join(screen).decode(errors="replace")
    assert code == 0, output
    assert "✓" in output
    assert "\x1b[" in output


def as_script(screen: str) -> str:
    """The commands that the demo leaves behind, to be run one after the other, and a look at what they did."""
    hints = screen.partition("In another terminal:")[2]
    commands = [line.strip() for line in re.sub(r"\x1b\[[0-9;]*m", "", hints).splitlines()]
    label = next(line.split()[4].rstrip("-") for line in commands if line.startswith("k label"))
    look = "k get secret mine -o go-template='{{index .metadata.labels \"" + label + "\"}}'"
    return "\n".join(["shopt -s expand_aliases", *commands, f'echo "put back: $({look})"'])


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 30)
async def test_what_is_wrong_is_told_and_ends_it_with_an_error() -> None:
    """Its shards write wrong checksums."""
    program = (
        "import sys; import examples.demo.__main__ as demo;"
        "demo.SHARD_MODULE, demo.STEP_SECONDS = 'tests.e2e.broken_shard', 25.0; sys.exit(demo.run())"
    )
    code, output = await run([sys.executable, "-c", program, "--secrets", "12"])
    assert code == 1, output
    assert re.search(r"FAILED: .*configmap demo-\d+-checksum has not the right checksum", output), output
    assert output.count("== ") == 3, "set-up, the step that failed, and the end"
    logs = re.search(r"checks failed; logs are kept in (\S+)", output)
    assert logs is not None, output
    assert (Path(logs[1]) / "sharder-1.log").exists()
    shutil.rmtree(Path(logs[1]).parent)


async def test_a_configmap_that_was_made_anew_is_found() -> None:
    clock, server = SystemClock(), MemoryServer()
    watching = Watching(MemoryApi(server, clock), "checksum", "default", living={"shard-1"})
    label = {watching.labels.shard: "shard-1"}
    secret = server.create(SECRETS, {"metadata": {"name": "a", "namespace": "default", "labels": label}})
    reference = {"apiVersion": "v1", "kind": "Secret", "name": "a", "uid": secret["metadata"]["uid"]}
    metadata = {"name": "a-checksum", "namespace": "default", "labels": label}
    made = {
        "metadata": {**metadata, "ownerReferences": [reference | {"controller": True}]},
        "data": {"sha256": checksum(None)},
    }
    server.create(CONFIGMAPS, made)
    running = asyncio.create_task(watching.run())
    await watching.until(lambda: len(watching.configmaps.store) == 1 and watching.calm(), SECONDS, "calm")
    server.delete(CONFIGMAPS, "a-checksum", "default")
    server.create(CONFIGMAPS, made)
    found = ["the configmap of secret a was made 2 times"]
    await watching.until(lambda: watching.problems() == found, SECONDS, "the finding")
    running.cancel()
    await asyncio.wait([running])


def _read(terminal: int) -> bytes:
    with contextlib.suppress(OSError):  # the other side has been closed
        return os.read(terminal, 65536)
    return b""


async def run(argv: list[str]) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *argv, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    async with asyncio.timeout(SECONDS):
        output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()

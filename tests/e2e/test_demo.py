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
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from examples.demo.__main__ import run as run_demo
from examples.demo.assignments import ASSIGNMENTS
from examples.demo.owners import ASSIGNMENT, LEASE, OBJECTS
from examples.demo.watching import CONFIGMAPS, SECRETS, Watching, checksum
from localcluster.installation import SharderTimings
from shardsdk.kube.clock import SystemClock
from shardsdk.protocol.labels import LEASE_RING_LABEL, parse_ring_name
from shardsdk.protocol.objects import LEASES
from shardsdk.protocol.ranges import BY_LABELS, EVERYWHERE, HELD_RANGES_ANNOTATION, RING_ASSIGNMENTS
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
@pytest.mark.parametrize("assignment", ASSIGNMENTS)
async def test_make_demo_in_a_pipe(assignment: str) -> None:
    """`make demo` and `make demo ASSIGNMENT=Ranges`, but for the environment: the one that runs this test serves."""
    recipe = (ROOT / "Makefile").read_text().partition("\ndemo: ")[2].splitlines()[1]
    assert "examples.demo" in recipe, "make demo runs something else than what is tested here"
    options = ["--assignment", assignment, "--lease-seconds", str(LEASE_SECONDS)]
    code, output = await run([sys.executable, "-m", "examples.demo", *options])
    assert code == 0, output
    written = [int(each) for each in re.findall(r"written: (\d+) × objects", output)]
    assert len(written) == len(STEPS), output
    assert output.count(" namespaces, hashes ") == (0 if assignment == BY_LABELS else 3 + 4 + 3 + 2 + 2), output
    if assignment == BY_LABELS:
        # Each time that shards change, some objects are on another one and were written for it.
        assert all(written[:4]), output
    else:
        assert not any(written), output
        assert "changed hands" in output, output
    assert f"(its lease lasts {LEASE_SECONDS} s:" in output
    assert [step for step in STEPS if step not in output] == []
    assert output.count("ok: all 3") == len(STEPS), output
    assert "nothing moved because of the failover" in output
    assert "\x1b[" not in output


@pytest.mark.parametrize("text", ["ranges", "Hashes", ""])
def test_a_way_to_assign_that_there_is_not_is_refused_with_those_that_there_are(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["examples.demo", "--assignment", text])
    with pytest.raises(SystemExit):
        run_demo()
    told = f"{text!r} is no way in which a ring assigns its objects: give Labels or Ranges"
    assert told in capsys.readouterr().err


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
@pytest.mark.parametrize("assignment", ASSIGNMENTS)
async def test_on_a_terminal_it_stays_to_be_played_with_until_it_is_interrupted(assignment: str) -> None:
    leader, follower = pty.openpty()
    screen: list[bytes] = []
    loop = asyncio.get_running_loop()
    loop.add_reader(leader, lambda: screen.append(_read(leader)))
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "examples.demo", "--assignment", assignment, "--secrets", "60", "--keep",
            "--lease-seconds", str(LEASE_SECONDS), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=follower, stderr=follower,
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "120"},
        )  # fmt: skip
        os.close(follower)
        async with asyncio.timeout(SECONDS):
            while process.returncode is None and LAST_HINT not in b"".join(screen):
                await asyncio.sleep(0.1)
        assert process.returncode is None, b"".join(screen).decode()
        code, played = await run(["bash", "-ec", as_script(b"".join(screen).decode(), assignment)])
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


def as_script(screen: str, assignment: str) -> str:
    """The commands that the demo leaves behind, to be run one after the other, and a look at what they did."""
    hints = screen.partition("In another terminal:")[2]
    commands = [line.strip() for line in re.sub(r"\x1b\[[0-9;]*m", "", hints).splitlines()]
    if assignment == BY_LABELS:
        label = next(line.split()[4].rstrip("-") for line in commands if line.startswith("k label"))
        look = "k get secret mine -o go-template='{{index .metadata.labels \"" + label + "\"}}'"
    else:
        commands.append("k wait --for=create ringassignment/checksum --timeout=60s")
        look = "k get ringassignment checksum -o jsonpath='{.spec.ranges[0].shard}'"
    return "\n".join(["shopt -s expand_aliases", *commands, f'echo "put back: $({look})"'])


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 30)
async def test_what_is_wrong_is_told_and_ends_it_with_an_error() -> None:
    """Its shards write wrong checksums."""
    program = (
        "import sys; import examples.demo.__main__ as demo;"
        "demo.SHARD_MODULE, demo.STEP_SECONDS = 'tests.e2e.broken_shard', 25.0; sys.exit(demo.run())"
    )
    code, output = await run([sys.executable, "-c", program, "--secrets", "12", "--lease-seconds", str(LEASE_SECONDS)])
    assert code == 1, output
    assert re.search(r"FAILED: .*configmap demo-\d+-checksum has not the right checksum", output), output
    assert output.count("== ") == 3, "set-up, the step that failed, and the end"
    logs = re.search(r"checks failed; logs are kept in (\S+)", output)
    assert logs is not None, output
    assert (Path(logs[1]) / "sharder-1.log").exists()
    shutil.rmtree(Path(logs[1]).parent)


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 30)
async def test_a_shard_that_ends_unasked_is_told_at_once_with_its_log() -> None:
    program = (
        "import sys; import examples.demo.__main__ as demo;"
        f"demo.SHARD_MODULE, demo.STEP_SECONDS = 'no.such.module', {SECONDS}; sys.exit(demo.run())"
    )
    code, output = await run([sys.executable, "-c", program, "--secrets", "12"])
    assert code == 1, output
    told = re.search(r"FAILED: shard-1 ended with exit code 1; why is in (\S+)", output)
    assert told is not None, output
    assert "No module named" in text_of(Path(told[1]))
    assert "(its lease lasts" not in output, "of a step that was not played"
    shutil.rmtree(Path(told[1]).parent.parent)


def text_of(log: Path) -> str:
    return log.read_text()


class World:
    """A secret with its config map on an API server in memory, and the demo's eyes on it."""

    def __init__(self, *, by_ranges: bool) -> None:
        clock, self.server = SystemClock(), MemoryServer()
        api = MemoryApi(self.server, clock)
        self.watching = Watching(api, "checksum", "default", by_ranges=by_ranges, living={"shard-1", "shard-2"})
        labels = {} if by_ranges else {"labels": {parse_ring_name("checksum").shard: "shard-1"}}
        secret = self.server.create(SECRETS, {"metadata": {"name": "a", "namespace": "default", **labels}})
        reference = {"apiVersion": "v1", "kind": "Secret", "name": "a", "uid": secret["metadata"]["uid"]}
        metadata = {"name": "a-checksum", "namespace": "default", **labels}
        self.child = {
            "metadata": {**metadata, "ownerReferences": [reference | {"controller": True}]},
            "data": {"sha256": checksum(None)},
        }
        self.server.create(CONFIGMAPS, self.child)

    async def until_problems(self, *found: str) -> None:
        watching = self.watching
        await watching.until(lambda: len(watching.secrets.store) == 1 and watching.problems() == [*found], 60, "these")

    def assign(self, shard: str) -> None:
        """Name a shard for everything."""
        spec = {"hashBy": "Namespace", "ranges": [{"start": "0x0000000000000000", "shard": shard}]}
        if self.server.find(RING_ASSIGNMENTS, "checksum") is None:
            self.server.create(RING_ASSIGNMENTS, {"metadata": {"name": "checksum"}, "spec": spec})
        else:
            self.server.patch(RING_ASSIGNMENTS, "checksum", None, {"spec": spec})

    def hold(self, shard: str) -> None:
        """Have a shard's lease say that it holds everything."""
        metadata = {
            "name": shard, "namespace": "default", "labels": {LEASE_RING_LABEL: "checksum"},
            "annotations": {HELD_RANGES_ANNOTATION: str(EVERYWHERE)},
        }  # fmt: skip
        self.server.create(LEASES, {"metadata": metadata, "spec": {"holderIdentity": shard}})

    def release(self, shard: str) -> None:
        """Have nobody hold a shard's lease."""
        self.server.patch(LEASES, shard, "default", {"spec": {"holderIdentity": ""}})


@asynccontextmanager
async def watched(*, by_ranges: bool) -> AsyncIterator[World]:
    world = World(by_ranges=by_ranges)
    running = asyncio.create_task(world.watching.run())
    try:
        yield world
    finally:
        running.cancel()
        await asyncio.wait([running])


async def test_a_configmap_that_was_made_anew_is_found() -> None:
    async with watched(by_ranges=False) as world:
        await world.until_problems()
        world.server.delete(CONFIGMAPS, "a-checksum", "default")
        world.server.create(CONFIGMAPS, world.child)
        await world.until_problems("the configmap of secret a was made 2 times")


async def test_by_ranges_the_owner_is_whoever_is_named_and_holds_the_hash_and_nothing_is_written_on_objects() -> None:
    async with watched(by_ranges=True) as world:
        await world.until_problems("secret a has no living owner")
        world.hold("shard-1")
        await world.until_problems("secret a is changing hands (named: nobody)")
        world.assign("shard-1")
        await world.until_problems()
        assert world.watching.spread() == {"shard-1": (1, 0, 1), "shard-2": (0, 0, 0)}
        world.watching.begin()
        world.assign("shard-2")
        await world.until_problems("secret a is changing hands (named: shard-2)")
        world.release("shard-1")
        await world.until_problems("secret a has no living owner")
        world.hold("shard-2")
        await world.until_problems()
        (handover,) = world.watching.handovers
        assert (handover.name, handover.before, handover.after) == ("a", "shard-1", "shard-2")
        assert world.watching.moved_configmaps == 1
        assert {each: world.watching.writes[each] for each in world.watching.owners.counts} == {
            OBJECTS: 0, ASSIGNMENT: 1, LEASE: 2,
        }  # fmt: skip
        assert "1 namespaces, hashes the first to the last" in world.watching.owners.describe("shard-2", ["default"])


async def test_by_ranges_two_who_hold_one_hash_and_a_label_on_an_object_are_found() -> None:
    async with watched(by_ranges=True) as world:
        world.assign("shard-1")
        world.hold("shard-1")
        await world.until_problems()
        world.watching.begin()
        world.server.patch(SECRETS, "a", "default", {"metadata": {"labels": {"whose": "mine"}}})
        await world.until_problems("secret a carries labels: whose")
        assert world.watching.writes[OBJECTS] == 1
        world.hold("shard-2")
        await world.until_problems("secret a has several owners: shard-1, shard-2", "secret a carries labels: whose")


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

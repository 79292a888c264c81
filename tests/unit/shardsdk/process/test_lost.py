"""What work under a lost lease has left in threads ends with its process, before anyone else may take the lease."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from shardsdk.process.process import ExitCode

ROOT = Path(__file__).parents[4]

#: A reconcile that blocks in a thread of the event loop's, and an API server that is out of reach meanwhile.  An end by
#: force says how many seconds of the lease were left; nothing else ends it by force on a slow machine.
PROGRAM = """
import asyncio, os, time
import shardsdk.process.process
import shardsdk.kube.requests  # loaded wherever there is a client; here at its first `null`, as the lease is given up
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from shardsdk import Election, LeaseTimings, Manager, controller_for
from shardsdk.kube.clock import SystemClock
from shardsdk.process.process import die, run_process
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import Fault, MemoryApi
from shardsdk.testing.world import world_in
from tests.shard_rig import RING, SECRETS

shardsdk.process.process.THREADS_SECONDS = 60

class Clock(SystemClock):
    skipped = 0

    def monotonic(self):
        return super().monotonic() + self.skipped

def cancelled():
    os.write(1, b"cancelled, ")

def end(code, why):
    taken_at = renewed_at + timings.lease_duration
    os.write(1, b"%.1f" % (taken_at - clock.monotonic()))
    die(code, why)

async def reconcile(ctx):
    global renewed_at
    for each in apis:
        each.fault = Fault.LOST
    renewed_at = clock.monotonic()  # not later
    try:
        await asyncio.to_thread(time.sleep, 60)
    finally:
        cancelled()

timings = LeaseTimings(lease_duration=20, renew_deadline=1.4, retry_period=0.2)
server, clock = MemoryServer(), Clock()
keeping, api = MemoryApi(server, clock), MemoryApi(server, clock)
apis = [keeping, api]
server.create(SECRETS, {"metadata": {"name": "a", "namespace": "default", "labels": {RING.shard: "a"}}})

@asynccontextmanager
async def keep():
    yield keeping

world = replace(world_in(api, apis, Random(1)), source=keep, threaded=True, die=end)
controller = controller_for(SECRETS).reconcile(reconcile)
"""

SHARD = 'manager = Manager(RING.ring, shard="a", namespace="default", timings=timings).add(controller)\n'
LEADER = """
manager = Manager(election=Election("a", "default", timings=timings), namespace="default").add(controller.on_leader())
"""
#: Once the reconcile is cancelled, nearly all that was left of the hold has passed.
LATE = """
def cancelled():
    os.write(1, b"cancelled, ")
    clock.skipped = 15
"""
#: A reconcile that ends at once, in a program that has something to do at its own end.
QUICK = (
    PROGRAM.replace("asyncio.to_thread(time.sleep, 60)", "asyncio.sleep(60)")
    + """
import atexit, logging
logging.basicConfig(level=logging.INFO)
atexit.register(os.write, 1, b"exited")
"""
)
#: Besides it a shard, whose own lease is good; its reconcile takes longer to end than the leader's lease lasts.
BESIDE = """
from tests.shard_rig import CONFIGMAPS

server.create(CONFIGMAPS, {"metadata": {"name": "b", "namespace": "default"}})
patch = MemoryApi.patch

async def patch_but_the_leaders(self, resource, name, *rest, **more):
    if name == "lead" and working:
        await asyncio.sleep(60)
    return await patch(self, resource, name, *rest, **more)

MemoryApi.patch = patch_but_the_leaders
working = []

def plain(ctx):
    global renewed_at
    renewed_at = clock.monotonic()
    working.append(True)
    while not ctx.cancelled:
        time.sleep(0.05)
    time.sleep(1)

async def lead(ctx):
    await asyncio.sleep(60)

soon_lost, timings = LeaseTimings(2, 1.4, 0.2), LeaseTimings(60, 40, 0.2)
manager = Manager(RING.ring, shard="a", election=Election("lead", "default", timings=soon_lost), namespace="default",
                  timings=timings)
manager.add(controller_for(SECRETS).reconcile(plain)).add(controller_for(CONFIGMAPS).reconcile(lead).on_leader())
"""
OURS = "raise SystemExit(int(run_process(manager.run_async(world))))\n"
THEIRS = """
code = asyncio.run(manager.run_async(world))
os.write(1, b"ended")
raise SystemExit(int(code))
"""


@pytest.mark.parametrize("manager", [SHARD, LEADER], ids=["a shard's", "a leader's"])
def test_a_thread_of_a_lost_reconcile_ends_with_its_process_while_the_lease_is_not_to_be_had(manager: str) -> None:
    program = PROGRAM + LATE + manager + OURS
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == ExitCode.LEASE_LOST, done.stderr
    cancelled, _, left = done.stdout.partition(", ")
    assert cancelled == "cancelled"
    assert float(left) > 0
    assert "process ends at once (exit code 3)" in done.stderr


@pytest.mark.parametrize("manager", [SHARD, LEADER], ids=["a shard's", "a leader's"])
def test_in_an_event_loop_of_somebody_elses_threads_are_that_ones_to_end(manager: str) -> None:
    program = PROGRAM.replace("60", "4") + manager + THEIRS
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.returncode) == ("cancelled, ended", ExitCode.LEASE_LOST), done.stderr


@pytest.mark.parametrize("manager", [SHARD, LEADER], ids=["a shard's", "a leader's"])
def test_after_a_reconcile_that_ends_at_once_the_process_ends_in_order(manager: str) -> None:
    program = QUICK + manager + OURS
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.returncode) == ("cancelled, exited", ExitCode.LEASE_LOST), done.stderr
    assert "The process ends: " in done.stderr
    assert "ends at once" not in done.stderr


def test_beside_a_leader_that_lost_its_lease_a_shard_ends_in_order_and_gives_its_own_up() -> None:
    program = QUICK + BESIDE + OURS
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.returncode) == ("exited", ExitCode.LEASE_LOST), done.stderr
    assert "Left the lease default/a" in done.stderr
    assert "ends at once" not in done.stderr

"""`python -m examples.demo [--assignment Ranges] [--keep] [--lease-seconds N]`: the story, step by step."""

from __future__ import annotations

import argparse
import asyncio
import base64
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from examples.demo.assignments import ASSIGNMENTS, LABELS, NAMESPACE, RING, Assignment
from examples.demo.owners import OBJECTS, Data
from examples.demo.screen import Screen
from examples.demo.watching import SECRETS, Watching
from localcluster import ControlPlane
from localcluster.binaries import find_binaries, minor_of
from localcluster.installation import Installation, SharderTimings
from shardsdk.kube.access import load_access
from shardsdk.kube.client import Client

#: The program that every shard runs.
SHARD_MODULE = "examples.checksum"
SECRETS_MADE = 300
#: Of these every so many-th is changed after each step, for its owner to show that it works.
TOUCHED = 5
#: Leases of the demo's shards: short, so that a crash is dealt with while one watches.
LEASE_SECONDS = 3
#: A step ends after STEP_SECONDS, and a crash is dealt with after twice its lease.
LONGEST_LEASE_SECONDS = 30
STEP_SECONDS = 120.0


@dataclass(slots=True)
class Demo:
    """What the steps share."""

    screen: Screen
    plane: ControlPlane
    installation: Installation
    watching: Watching
    api: Client
    shard_kubeconfig: Path
    assignment: Assignment = LABELS
    count: int = SECRETS_MADE
    lease_seconds: int = LEASE_SECONDS
    failures: list[str] = field(default_factory=list)

    async def start_shard(self, name: str) -> None:
        """Start a shard of examples/checksum, under the controller's own ServiceAccount."""
        arguments = ["--ring", RING, "--namespace", NAMESPACE, "--lease-seconds", str(self.lease_seconds)]
        await self.installation.start_shard(
            name, module=SHARD_MODULE, arguments=arguments, kubeconfig=self.shard_kubeconfig
        )
        self.watching.living.add(name)

    async def make_secrets(self, first: int, count: int) -> None:
        """Create Secrets, a few at a time."""
        gate = asyncio.Semaphore(16)

        async def make(number: int) -> None:
            value = base64.b64encode(f"value of {number}".encode()).decode()
            body = {"metadata": {"name": f"demo-{number:03}"}, "data": {"key": value}}
            namespaces = self.assignment.namespaces
            async with gate:
                await self.api.create(
                    SECRETS, {"apiVersion": "v1", "kind": "Secret", **body}, namespaces[number % len(namespaces)]
                )

        await asyncio.gather(*(make(number) for number in range(first, first + count)))

    async def step(self, title: str, act: Callable[[], Awaitable[None]], done: Callable[[], bool]) -> None:
        """Do something, wait until all is well again, and show what happened; nothing once a check has failed."""
        if self.failures:
            return
        watching = self.watching
        self.screen.title(title)
        watching.begin()
        began = time.monotonic()
        await act()
        await self.until(lambda: done() and watching.at_rest(), title)
        self.screen.handovers(watching.handovers, watching.moved_configmaps, time.monotonic() - began)
        self.screen.say(f"written: {', '.join(f'{watching.writes[each]} × {each}' for each in watching.owners.counts)}")
        if self.assignment.by_ranges and watching.writes[OBJECTS]:
            self.fail(f"{watching.writes[OBJECTS]} objects were written, by ranges none should be")
        if not self.failures:
            await self.touch()
        self.screen.spread(watching)
        self.check()

    async def until(self, done: Callable[[], bool], what: str) -> None:
        """Wait until `done()`; that it does not come is a failure, and so is the end of a shard that is to live."""
        waiting = asyncio.create_task(self.watching.until(done, STEP_SECONDS, what))
        shards = [self.installation.shards[name] for name in sorted(self.watching.living)]
        ends = [asyncio.create_task(shard.ended(2 * STEP_SECONDS)) for shard in shards]
        await asyncio.wait([waiting, *ends], return_when=asyncio.FIRST_COMPLETED)
        for shard, end in zip(shards, ends, strict=True):
            if end.done() and not waiting.done():
                self.fail(f"{shard.name} ended with exit code {end.result()}; why is in {shard.log}")
            end.cancel()
        if not waiting.done():
            waiting.cancel()
        elif (error := waiting.exception()) is not None:
            self.fail(str(error))

    def fail(self, why: str) -> None:
        """A check does not hold."""
        self.failures.append(why)
        self.screen.bad(why)

    async def touch(self) -> None:
        """Change some Secrets: who owns an object by what is written has to work on it as well."""
        store = self.watching.secrets.store
        chosen = sorted(store, key=lambda each: each.metadata.name)[::TOUCHED]
        data = {"key": base64.b64encode(f"changed at {time.monotonic()}".encode()).decode()}

        async def change(secret: Data) -> None:
            await self.api.patch(SECRETS, secret.metadata.name, secret.metadata.namespace, {"data": data})

        def followed() -> bool:
            now = (store.get(each.metadata.namespace, each.metadata.name) for each in chosen)
            return all(each is not None and each.data == data for each in now) and self.watching.at_rest()

        await asyncio.gather(*(change(each) for each in chosen))
        what = f"the configmaps of {len(chosen)} secrets that were changed"
        await self.until(followed, what)

    def check(self) -> None:
        """Look at every object."""
        problems = self.watching.problems()
        count = len(self.watching.secrets.store)
        if not problems:
            self.screen.good(
                f"all {count} secrets have exactly one living owner, who works on them;"
                " every configmap is on its secret's shard, right, and made once"
            )
            return
        self.failures += problems
        for problem in problems[:5]:
            self.screen.bad(problem)

    def owned(self, shard: str) -> int:
        """How many Secrets a shard owns."""
        return self.watching.spread().get(shard, (0, 0, 0))[0]


async def tell(demo: Demo) -> None:
    """The story."""
    watching, installation = demo.watching, demo.installation

    async def begin() -> None:
        for number in (1, 2, 3):
            await demo.start_shard(f"shard-{number}")
        await demo.make_secrets(0, demo.count)

    def shared() -> bool:
        parts = [demo.owned(f"shard-{number}") for number in (1, 2, 3)]
        return sum(parts) >= demo.count and min(parts) > demo.count // 8

    await demo.step(f"Three shards share {demo.count} secrets", begin, shared)

    async def join() -> None:
        await demo.start_shard("shard-4")

    await demo.step("A fourth shard joins", join, lambda: demo.owned("shard-4") > demo.count // 8)

    async def leave() -> None:
        code = await installation.shards["shard-2"].stop()
        watching.bury("shard-2")
        if code != 0:
            demo.failures.append(f"shard-2 stopped with exit code {code} instead of 0")

    await demo.step("One shard leaves gracefully (SIGTERM)", leave, lambda: demo.owned("shard-2") == 0)

    async def crash() -> None:
        await installation.shards["shard-3"].kill()
        watching.bury("shard-3")

    await demo.step("One shard is killed (SIGKILL)", crash, lambda: demo.owned("shard-3") == 0)
    if not demo.failures:
        demo.screen.say(f"(its lease lasts {demo.lease_seconds} s: nobody may touch its objects before)")

    async def behead() -> None:
        leader = await installation.leader()
        await leader.process.kill()
        await installation.forget_sharder(leader.process.name)
        demo.screen.say(f"{leader.process.name} led and is dead; 20 more secrets meanwhile")
        await demo.make_secrets(demo.count, 20)
        successor = await installation.leader()
        demo.screen.say(f"{successor.process.name} leads now")

    await demo.step("The leading sharder is killed", behead, lambda: len(watching.secrets.store) >= demo.count + 20)
    moved = [each for each in watching.handovers if each.before is not None]
    if demo.failures:
        return
    if moved:
        demo.fail(f"{len(moved)} secrets moved because of the sharder's failover")
    else:
        demo.screen.good("nothing moved because of the failover")


async def main(
    keep: bool, count: int = SECRETS_MADE, lease_seconds: int = LEASE_SECONDS, assignment: Assignment = LABELS
) -> int:
    """Set everything up, tell the story; returns the exit code."""
    screen = Screen()
    began = time.monotonic()
    screen.title("Setting up: etcd, API server, controller manager, two sharders")
    timings = SharderTimings.for_lease(lease_seconds)
    binaries = await asyncio.to_thread(find_binaries)
    gates, told = assignment.gates(minor_of(binaries) if assignment.by_ranges else None)
    async with (
        ControlPlane(binaries=binaries, feature_gates=gates) as plane,
        Installation(plane, timings) as installation,
    ):
        await assignment.prepare(plane)
        await installation.ring(RING, assignment.ring)
        shard_kubeconfig = await plane.service_account_kubeconfig(NAMESPACE, "checksum")
        await asyncio.gather(*(installation.start_sharder(f"sharder-{number}") for number in (1, 2)))
        access = await load_access(str(plane.admin_kubeconfig))
        async with Client(access) as api, asyncio.TaskGroup() as tasks:
            watching = Watching(api, RING, NAMESPACE, assignment.namespaces, assignment.by_ranges)
            watch = tasks.create_task(watching.run())
            await watching.synced()
            screen.say(f"ready after {time.monotonic() - began:.1f} s; logs: {installation.logs}")
            for line in (*assignment.story, *told):
                screen.say(line)
            demo = Demo(screen, plane, installation, watching, api, shard_kubeconfig, assignment, count, lease_seconds)
            await tell(demo)
            screen.title("Done" if not demo.failures else "Failed")
            screen.say(f"{time.monotonic() - began:.0f} s in all")
            if keep and not demo.failures:
                await stay(demo)
            watch.cancel()
        if demo.failures:
            screen.bad(f"{len(demo.failures)} checks failed; logs are kept in {installation.logs}")
            raise DemoFailed
    return 0


class DemoFailed(Exception):
    """A check did not hold; what is running ends, the logs stay."""


async def stay(demo: Demo) -> None:
    """Leave everything running and say how to play with it."""
    demo.screen.say("Everything keeps running until Ctrl-C. In another terminal:")
    kubectl = " ".join(demo.plane.binaries.kubectl)
    for line in (f"export KUBECONFIG={demo.plane.admin_kubeconfig}", *demo.assignment.hints_for(kubectl)):
        demo.screen.say(f"  {line}")
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    await ended.wait()


def _lease_seconds(text: str) -> int:
    """The option's value; argparse prints the error.

    Raises: argparse.ArgumentTypeError.
    """
    try:
        seconds = int(text)
    except ValueError:
        seconds = 0
    if not LEASE_SECONDS <= seconds <= LONGEST_LEASE_SECONDS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no lease for the demo: give whole seconds from {LEASE_SECONDS} to {LONGEST_LEASE_SECONDS}"
        )
    return seconds


def _assignment(text: str) -> Assignment:
    """The option's value.

    Raises: argparse.ArgumentTypeError.
    """
    try:
        return ASSIGNMENTS[text]
    except KeyError:
        ways = " or ".join(ASSIGNMENTS)
        raise argparse.ArgumentTypeError(
            f"{text!r} is no way in which a ring assigns its objects: give {ways}"
        ) from None


def run() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave everything running at the end")
    parser.add_argument(
        "--assignment",
        type=_assignment,
        default=LABELS,
        metavar="|".join(ASSIGNMENTS),
        help=f"how the ring assigns its objects (default: {LABELS.name})",
    )
    parser.add_argument("--secrets", type=int, default=SECRETS_MADE, metavar="N", help="how many there are to share")
    parser.add_argument(
        "--lease-seconds",
        type=_lease_seconds,
        default=LEASE_SECONDS,
        metavar="N",
        help="how long leases of shards and sharders last; more where the API server answers slowly, and a crash"
        " takes as much longer to be dealt with (default: %(default)s)",
    )
    options = parser.parse_args()
    try:
        return asyncio.run(main(options.keep, options.secrets, options.lease_seconds, options.assignment))
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except DemoFailed:
        return 1


if __name__ == "__main__":
    sys.exit(run())

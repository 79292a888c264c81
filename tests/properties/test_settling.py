"""An object is given away once what was written before can no longer be executed: not before, and soon after."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from shardsdk.cache.objects import Request
from shardsdk.testing.memory import Change
from shardsdk.testing.virtual import VirtualClock, run_virtual
from tests.shard_rig import RING, SECRETS, Rig

NAMES = "abc"
#: What the shard may take beyond the writes.
SLACK_SECONDS = 0.5
#: Writes that begin so much later may count: behind as many passes as writes of 8 s can hold up, the next begins then.
LATER_SECONDS = 1.5
names = st.sampled_from(NAMES)
seconds = st.sampled_from([0.0, 0.05, 0.2, 1.0, 3.0, 8.0])
steps = st.one_of(
    st.tuples(st.just("write"), names, seconds),
    st.tuples(st.just("drain"), names, seconds),
    st.tuples(st.just("change"), names, seconds),
    #: While the drain is shown none begins; should one all the same, what it sends counts.
    st.tuples(st.just("reconcile"), names, seconds),
    st.tuples(st.just("pass"), names, seconds),
)


@dataclass
class Watcher:
    """What was written when, and what has to have ended when an object goes."""

    rig: Rig
    #: (begun, ends)
    writes: list[tuple[float, float]] = field(default_factory=list)
    #: Since when an object may go, but for the writes that were begun before.
    asked: dict[str, float] = field(default_factory=dict)
    given: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def write(self, lasts: float) -> None:
        now, loop = self.rig.clock.monotonic(), asyncio.get_running_loop()
        write = loop.create_future()
        self.rig.api._open.add(write)
        write.add_done_callback(self.rig.api._open.discard)
        loop.call_later(lasts, write.set_result, None)
        self.writes.append((now, now + lasts))

    def note(self, change: Change) -> None:
        assert change.new is not None
        metadata = change.new["metadata"]
        if metadata["name"] not in self.asked or RING.drain in (metadata.get("labels") or {}):
            return
        now, moment = self.rig.clock.monotonic(), self.asked.pop(metadata["name"])
        self.given.append(metadata["name"])
        waited_for = [ends for begun, ends in self.writes if begun < moment]
        # Kept for the end: whatever is raised here is the failure of an acknowledgement, which is made again.
        if max(waited_for, default=0.0) > now:
            self.wrong.append("a write of before may still be executed")
        near = [ends for begun, ends in self.writes if begun < moment + LATER_SECONDS]
        if now > max([*near, moment]) + SLACK_SECONDS:
            self.wrong.append("it waits for later writes, or for others")

    def take(self, step: tuple[str, str, float]) -> None:
        what, name, lasts = step
        gone = name in self.given
        match what:
            case "write":
                self.write(lasts)
            case "drain" if not gone and name not in self.asked:
                self.asked[name] = self.rig.clock.monotonic()
                self.rig.drain(name)
            case "change" if not gone:
                body = {"metadata": {"annotations": {"beat": str(self.rig.server.version)}}}
                self.rig.server.patch(SECRETS, name, "default", body)
            case "reconcile" if not gone:
                with self.rig.resource.inflight.hold(Request("default", name)):
                    self.write(lasts)
                if name in self.asked:
                    self.asked[name] = self.rig.clock.monotonic() + 1e-6


async def play(clock: VirtualClock, story: list[tuple[str, str, float]]) -> None:
    rig = Rig(clock)
    watcher = Watcher(rig)
    for name in NAMES:
        rig.secret(name)
    async with rig.shard(owns=False):
        await clock.sleep(5)
        rig.server.listeners.append(watcher.note)
        for step in story:
            watcher.take(step)
            await clock.sleep(step[2] if step[0] == "pass" else 0.01)
        await clock.sleep(30)
    assert not watcher.asked
    assert watcher.wrong == []


@settings(max_examples=150)
@given(st.lists(steps, max_size=25))
def test_who_is_given_away_has_waited_for_all_that_was_written_before_and_for_nothing_else(
    story: list[tuple[str, str, float]],
) -> None:
    run_virtual(lambda clock: play(clock, story))

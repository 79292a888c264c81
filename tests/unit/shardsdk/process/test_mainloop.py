"""What blocks the event loop is named while it does: the task, the line, and the way there."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Iterator

import pytest

from shardsdk import Context, Election, Manager, PartialObject, controller_for
from shardsdk.kube.clock import SystemClock
from shardsdk.process.mainloop import MainLoop
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.virtual import VirtualClock
from tests.shard_rig import RING, SECRETS
from tests.unit.shardsdk.process.test_debug import running


class Lines(logging.Handler):
    """Notes what is logged, and opens a gate with what names `block_until`."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.told = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        if "block_until" in vars(record)["frames"]:
            self.told.set()


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler, logger = Lines(), logging.getLogger("shardsdk.process.mainloop")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


async def block_until(told: threading.Event) -> None:
    for _ in range(10):
        if told.wait(3):
            return
        # A busy machine had held the loop up just before; that has been told of, and once is enough.
        await asyncio.sleep(0.1)
    raise AssertionError("nobody has told of it")


async def test_a_blocking_call_is_named_while_it_blocks(lines: Lines) -> None:
    main_loop = MainLoop(SystemClock(), 15.0, blocked_seconds=0.05, beat_seconds=0.02)
    beating = asyncio.create_task(main_loop.beat())
    with main_loop.watch():
        await asyncio.sleep(0)
        await asyncio.create_task(block_until(lines.told), name="websites/0")
    beating.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await beating
    told = next(each for each in lines.records if "block_until" in vars(each)["frames"])
    facts = vars(told)
    assert facts["task"] == "websites/0"
    assert "test_mainloop.py" in facts["at"]
    assert "told.wait(3)" in facts["at"]
    assert facts["frames"].startswith("threading.py:")
    assert "block_until" in facts["frames"]
    assert facts["blocked_seconds"] > 0


async def test_a_machine_that_slept_is_no_blocked_loop(lines: Lines) -> None:
    """The clock has jumped, and the loop takes its turn before the second look."""
    main_loop = MainLoop(VirtualClock(), 15.0)
    main_loop._beat_at -= 100
    looks: list[float] = []

    class LoopGoesOn(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            looks.append(main_loop.stalled_seconds)
            if len(looks) == 2:
                main_loop._beat_at += 100
            return len(looks) > 3

    main_loop._watch(LoopGoesOn())
    assert looks[0] > 90
    assert not lines.records


async def test_one_that_does_not_go_on_is_told_once(lines: Lines) -> None:
    main_loop = MainLoop(VirtualClock(), 15.0)
    main_loop._beat_at -= 100
    looks = iter([False] * 10 + [True])

    class LoopStays(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            return next(looks)

    main_loop._watch(LoopStays())
    assert len(lines.records) == 1


def test_a_lease_long_without_a_turn_is_unhealthy() -> None:
    async def scene() -> None:
        clock = VirtualClock()
        main_loop = MainLoop(clock, 15.0)
        assert main_loop.check() is None
        main_loop._beat_at -= 20
        assert main_loop.check() == "the event loop has been blocked for 19 s"

    asyncio.run(scene())


@pytest.mark.parametrize(
    "manager",
    [
        lambda: Manager(election=Election("sweep", namespace="default"), health_address="0", metrics_address="0"),
        lambda: Manager(RING.ring, shard="one", namespace="default", health_address="0", metrics_address="0"),
    ],
    ids=["elected", "sharded"],
)
async def test_a_process_names_the_controller_whose_reconcile_blocks(
    lines: Lines, manager: Callable[[], Manager], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MainLoop.__init__, "__kwdefaults__", {"blocked_seconds": 0.05, "beat_seconds": 0.02})
    blocked = asyncio.Event()

    async def reconcile(context: Context[PartialObject]) -> None:
        await block_until(lines.told)
        blocked.set()

    server = MemoryServer()
    server.create(SECRETS, {"metadata": {"name": "a", "namespace": "default", "labels": {RING.shard: "one"}}})
    async with running(server, manager().add(controller_for(SECRETS).reconcile(reconcile))):
        await blocked.wait()
    [told] = [each for each in lines.records if "block_until" in vars(each)["frames"]]
    assert vars(told)["task"] == "secrets default/a"

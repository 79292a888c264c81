from __future__ import annotations

import asyncio
import gc
import inspect
import threading
import weakref
from random import Random
from typing import Any

import pytest

from shardsdk.testing import threads
from shardsdk.testing.processes import Process, outside
from shardsdk.testing.virtual import (
    EPOCH,
    Deadlock,
    Livelock,
    SkewedClock,
    TimeLimit,
    VirtualClock,
    in_virtual_time,
    run_virtual,
    virtual_loop,
)


def test_a_sleep_takes_virtual_time_only() -> None:
    async def scenario(clock: VirtualClock) -> tuple[float, float]:
        await asyncio.sleep(3600)
        await clock.sleep(0.25)
        return clock.monotonic(), (clock.now() - EPOCH).total_seconds()

    assert run_virtual(scenario) == (3600.25, 3600.25)


def test_a_timeout_fires_at_its_virtual_moment() -> None:
    async def scenario(clock: VirtualClock) -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        return clock.monotonic()

    assert run_virtual(scenario) == 5


def test_many_timers_fire_in_order() -> None:
    async def scenario(clock: VirtualClock) -> list[float]:
        fired: list[float] = []

        async def after(seconds: float) -> None:
            await asyncio.sleep(seconds)
            fired.append(seconds)

        async with asyncio.TaskGroup() as group:
            for seconds in (3, 1, 2, 0.1, 1_000_000):
                group.create_task(after(seconds))
        return fired

    assert run_virtual(scenario, limit_seconds=2_000_000) == [0.1, 1, 2, 3, 1_000_000]


def test_a_scenario_in_which_nothing_can_happen_is_a_deadlock() -> None:
    async def scenario(clock: VirtualClock) -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match="all tasks wait"):
        run_virtual(scenario)


def test_a_scenario_that_never_ends_meets_its_limit() -> None:
    async def scenario(clock: VirtualClock) -> None:
        while True:
            await asyncio.sleep(1)

    with pytest.raises(TimeLimit):
        run_virtual(scenario, limit_seconds=100)


def test_a_scenario_that_spins_is_found() -> None:
    async def scenario(clock: VirtualClock) -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(Livelock, match="1000 turns"):
        run_virtual(scenario, limit_turns=1000)


def test_time_stands_still_until_a_thread_has_returned() -> None:
    async def scenario(clock: VirtualClock) -> tuple[str, str, float]:
        loop, ticked = asyncio.get_running_loop(), asyncio.create_task(asyncio.sleep(3600))

        def ask() -> str:
            waited = asyncio.run_coroutine_threadsafe(asyncio.sleep(0, "told"), loop).result(timeout=60)
            return f"{waited} in {threading.current_thread().name.partition('_')[0]}"

        told = await asyncio.to_thread(ask)
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(divmod, 1, 0)
        return told, "ticked" if ticked.done() else "not yet", clock.monotonic()

    assert run_virtual(scenario) == ("told in virtual", "not yet", 0.0)


def test_time_goes_on_while_a_thread_waits_for_what_it_has_the_loop_do() -> None:
    async def scenario(clock: VirtualClock) -> tuple[float, float]:
        loop = asyncio.get_running_loop()

        def nap(seconds: float) -> float:
            asyncio.run_coroutine_threadsafe(asyncio.sleep(seconds), loop).result()
            return clock.monotonic()

        one, other = await asyncio.gather(asyncio.to_thread(nap, 3600), asyncio.to_thread(nap, 5))
        return one, other

    assert run_virtual(scenario) == (3600, 5)


@pytest.mark.parametrize("fed", [True, False])
def test_a_thread_that_waits_for_what_takes_time_is_named(fed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "PATIENCE_SECONDS", 0.2)
    happens = threading.Event()

    async def scenario(clock: VirtualClock) -> None:
        if fed:
            asyncio.get_running_loop().call_later(1, happens.set)
        await asyncio.to_thread(happens.wait)

    try:
        with pytest.raises(Deadlock, match=r"a thread waits for something that takes time(.|\n)*in wait"):
            run_virtual(scenario)
    finally:
        happens.set()


def test_a_thread_that_waits_for_what_never_happens_in_the_loop_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "PATIENCE_SECONDS", 0.2)

    async def scenario(clock: VirtualClock) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.to_thread(lambda: asyncio.run_coroutine_threadsafe(asyncio.Event().wait(), loop).result())

    with pytest.raises(Deadlock):
        run_virtual(scenario)


def test_machines_have_clocks_of_their_own() -> None:
    async def scenario(clock: VirtualClock) -> tuple[float, float]:
        other = SkewedClock(clock, ahead_seconds=90, boot_seconds=-500)
        await other.sleep(10)
        return (other.now() - clock.now()).total_seconds(), other.monotonic()

    assert run_virtual(scenario) == (90, 10 - 500)


def test_a_machines_clock_may_be_fast_or_slow() -> None:
    async def scenario(clock: VirtualClock) -> tuple[float, float]:
        fast = SkewedClock(clock, rate=1.25)
        await fast.sleep(10)
        return clock.monotonic(), fast.monotonic()

    assert run_virtual(scenario) == (8, 10)


def test_a_machine_never_wakes_before_it_has_counted_to_the_end() -> None:
    async def scenario(clock: VirtualClock) -> list[float]:
        rng, missing = Random(1), []
        for _ in range(2000):
            machine = SkewedClock(clock, boot_seconds=rng.uniform(0, 1e5), rate=rng.uniform(0.95, 1.05))
            ends = machine.monotonic() + (seconds := rng.random() * 10.0 ** rng.randint(-14, 1))
            await machine.sleep(seconds)
            missing.append(ends - machine.monotonic())
        return missing

    assert max(run_virtual(scenario)) <= 0


@in_virtual_time
async def test_a_jump_makes_every_timer_in_it_late(clock: VirtualClock) -> None:
    nap = asyncio.create_task(clock.sleep(1))
    await asyncio.sleep(0)
    clock.jump(100)
    await nap
    assert clock.monotonic() == 100


@in_virtual_time
async def test_fixtures_reach_a_decorated_test(clock: VirtualClock, tmp_path: object) -> None:
    assert tmp_path


def test_a_loop_of_ones_own_goes_on_where_it_stopped() -> None:
    clock = VirtualClock()
    loop = virtual_loop(clock)
    try:
        loop.run_until_complete(asyncio.sleep(1))
        loop.run_until_complete(asyncio.sleep(2))
    finally:
        loop.close()
    assert clock.monotonic() == 3


def test_a_paused_process_takes_no_step_and_then_goes_on() -> None:
    async def scenario(clock: VirtualClock) -> list[float]:
        seen: list[float] = []

        async def tick() -> None:
            while True:
                await asyncio.sleep(1)
                seen.append(clock.monotonic())

        async def body() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(tick())

        process = Process("p")
        process.start(body())
        await asyncio.sleep(2.5)
        process.pause()
        await asyncio.sleep(10)
        process.resume()
        await asyncio.sleep(1.5)
        process.kill()
        await asyncio.sleep(10)
        return seen

    assert run_virtual(scenario) == [1, 2, 12.5, 13.5]


def test_a_timeout_that_passed_during_a_pause_wins_over_the_answer_that_came_before_it() -> None:
    async def scenario(clock: VirtualClock) -> tuple[str, float]:
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def ask() -> tuple[str, float]:
            try:
                async with asyncio.timeout(5):
                    return await answer, clock.monotonic()
            except TimeoutError:
                return "timeout", clock.monotonic()

        process = Process("p")
        task = process.start(ask())
        await asyncio.sleep(1)
        process.pause()
        answer.set_result("answer")
        await asyncio.sleep(9)
        process.resume()
        return await task

    assert run_virtual(scenario) == ("timeout", 10)


def test_an_answer_during_a_pause_is_delivered_afterwards() -> None:
    async def scenario(clock: VirtualClock) -> str:
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def ask() -> str:
            return await answer

        process = Process("p")
        task = process.start(ask())
        await asyncio.sleep(1)
        process.pause()
        answer.set_result("answer")
        await asyncio.sleep(9)
        assert not task.done()
        process.resume()
        return await task

    assert run_virtual(scenario) == "answer"


def test_a_killed_process_runs_no_cleanup_while_the_scenario_lasts() -> None:
    async def scenario(clock: VirtualClock) -> list[str]:
        steps: list[str] = []

        async def body() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                steps.append("cleaned up")

        process = Process("p")
        task = process.start(body())
        await asyncio.sleep(1)
        process.kill()
        task.cancel()
        process.resume()
        await asyncio.sleep(60)
        return list(steps)

    assert run_virtual(scenario) == []


def test_the_tasks_of_a_process_are_shown_as_all_others() -> None:
    async def wait_in_vain() -> None:
        await asyncio.Event().wait()

    async def scenario(clock: VirtualClock) -> None:
        task: Any = Process("p").start(wait_in_vain())
        await asyncio.sleep(1)
        assert inspect.getcoroutinestate(task.get_coro()) == inspect.CORO_SUSPENDED
        await task

    with pytest.raises(Deadlock, match=r"wait_in_vain\(\) running at .*test_virtual"):
        run_virtual(scenario)


def test_nothing_is_kept_of_a_scenario_whose_process_was_killed() -> None:
    async def scenario(clock: VirtualClock) -> weakref.ref[asyncio.AbstractEventLoop]:
        process = Process("p")
        process.start(asyncio.sleep(2))
        await asyncio.sleep(1)
        process.kill()
        await asyncio.sleep(60)
        return weakref.ref(asyncio.get_running_loop())

    loop = run_virtual(scenario)
    gc.collect()
    assert loop() is None


def test_what_the_world_does_for_a_process_goes_on_without_it() -> None:
    async def scenario(clock: VirtualClock) -> list[str]:
        applied: list[str] = []

        async def server() -> None:
            await asyncio.sleep(3)
            applied.append("write")

        async def body() -> None:
            await outside(server())
            applied.append("answer seen")

        process = Process("p")
        process.start(body())
        await asyncio.sleep(1)
        process.kill()
        await asyncio.sleep(60)
        return applied

    assert run_virtual(scenario) == ["write"]


def test_what_starts_while_a_scenario_is_cleaned_up_is_cleaned_up_as_well() -> None:
    started: list[asyncio.Task[None]] = []

    async def at_work(more: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            if more:
                started.append(outside(at_work(more - 1)))

    async def scenario(clock: VirtualClock) -> None:
        started.append(asyncio.create_task(at_work(2)))
        await asyncio.sleep(1)

    run_virtual(scenario)
    assert [task.cancelled() for task in started] == [True] * 3

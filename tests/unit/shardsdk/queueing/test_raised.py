"""What is made of what a reconcile raises: of groups of errors, and of what would end the process."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardsdk.errors import (
    AlreadyOwned,
    ApiError,
    Conflict,
    FenceClosed,
    LeaseLost,
    ServerError,
    TerminalError,
    TooManyRequests,
)
from shardsdk.kube.clock import SystemClock
from shardsdk.kube.doubts import FenceDoubted
from shardsdk.lease.threads import call_plainly
from shardsdk.logs import TextFormatter
from shardsdk.operator.failures import Permanent, Retry
from shardsdk.queueing.queue import RateLimit, WorkQueue
from shardsdk.queueing.raised import describe, is_lease_gone, meant_by
from shardsdk.queueing.workers import WorkerPool
from shardsdk.testing.virtual import VirtualClock, in_virtual_time


class Panic(BaseException):
    """As extension modules raise it."""


def group(*errors: BaseException) -> BaseException:
    """As `asyncio.TaskGroup` raises them, one group in another."""
    inner = BaseExceptionGroup("unhandled errors in a TaskGroup (1 sub-exception)", errors)
    return BaseExceptionGroup("unhandled errors in a TaskGroup (1 sub-exception)", [inner])


async def times_of(clock: VirtualClock, *errors: BaseException, seconds: float = 100) -> list[float]:
    """When a reconcile that raises these, one after the other, and then nothing, is called."""
    left, called = list(errors), list[float]()

    async def reconcile(item: str) -> None:
        called.append(clock.monotonic())
        if left:
            raise left.pop(0)

    queue: WorkQueue[str] = WorkQueue(clock, rate_limit=RateLimit(base_seconds=1, per_second=None))
    running = asyncio.create_task(WorkerPool("test", reconcile, queue, clock=clock).run())
    queue.add("a")
    await clock.sleep(seconds)
    running.cancel()
    await asyncio.wait([running])
    return called


@pytest.mark.parametrize("error", [SystemExit(0), Panic("at src/lib.rs:7"), group(Panic("at src/lib.rs:7"))])
@in_virtual_time
async def test_what_would_end_every_replica_in_turn_is_its_items_failure(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    assert await times_of(clock, error, error) == pytest.approx([0, 1, 3])
    assert {(line.msg, line.__dict__["object"], line.__dict__["error"]) for line in caplog.records} == {
        ("Reconcile raised; trying again", "a", describe(error))
    }
    assert caplog.records[0].exc_info


async def test_so_it_is_in_a_plain_function() -> None:
    """In a real thread."""
    clock, called = SystemClock(), asyncio.Event()
    queue: WorkQueue[str] = WorkQueue(clock, rate_limit=RateLimit(base_seconds=0.001, per_second=None))

    async def reconcile(item: str) -> None:
        if queue.requeues("a"):
            called.set()
            return
        await asyncio.to_thread(call_plainly, sys.exit, 0)

    running = asyncio.create_task(WorkerPool("test", reconcile, queue, clock=clock).run())
    queue.add("a")
    await asyncio.wait_for(called.wait(), 10)
    running.cancel()
    await asyncio.wait([running])


@in_virtual_time
async def test_an_interrupt_ends_who_works(clock: VirtualClock) -> None:
    """Raised within a task it would end the loop, and the test with it."""
    queue: WorkQueue[str] = WorkQueue(clock)

    async def reconcile(item: str) -> None:
        raise KeyboardInterrupt

    calling = WorkerPool("test", reconcile, queue, clock=clock)._call("a")
    with pytest.raises(KeyboardInterrupt):
        calling.send(None)


@in_virtual_time
async def test_a_group_that_is_final_is_final(clock: VirtualClock, caplog: pytest.LogCaptureFixture) -> None:
    assert await times_of(clock, group(TerminalError("no such region"), Permanent("no such size"))) == [0]
    [line] = caplog.records
    assert line.msg == "Reconcile failed for good"
    assert line.__dict__["waits_for"] == "its next event"
    assert line.__dict__["error"] == "Permanent: no such size; TerminalError: no such region"


@in_virtual_time
async def test_a_group_of_conflicts_is_a_conflict(clock: VirtualClock, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        assert await times_of(clock, group(Conflict("stale"), Conflict("older"))) == [0, 1]
    [line] = caplog.records
    assert (line.levelname, line.exc_info) == ("INFO", None)


@in_virtual_time
async def test_a_group_leaves_the_api_server_alone_for_as_long_as_it_asks(clock: VirtualClock) -> None:
    asks = TooManyRequests("too many", retry_after_seconds=20)
    assert await times_of(clock, group(Conflict("stale"), asks, ServerError("oops"))) == [0, 20]


@in_virtual_time
async def test_another_error_in_a_group_is_news(clock: VirtualClock, caplog: pytest.LogCaptureFixture) -> None:
    errors = [group(Conflict("stale")), group(ValueError("too long")), group(ValueError("too long"))]
    await times_of(clock, *errors)
    told = [line for line in caplog.records if line.levelno >= logging.WARNING]
    assert [(line.__dict__["error"], bool(line.exc_info)) for line in told] == [
        ("ValueError: too long", True),
        ("ValueError: too long", False),
    ]


@pytest.mark.parametrize("other", [ValueError("odd"), Panic("at src/lib.rs:7")])
def test_a_group_whose_errors_mean_different_things_is_an_error_like_any_other(other: BaseException) -> None:
    for error in (TerminalError("no such region"), ApiError("oops")):
        whole = group(error, other)
        assert meant_by(whole) is whole
    whole = group(TerminalError("no such region"), Conflict("stale"))
    assert meant_by(whole) is whole


def test_a_group_is_described_by_its_errors_in_the_same_order_each_time_and_not_by_all() -> None:
    errors: list[Exception] = [KeyError("k"), ValueError("b"), ValueError("b"), ValueError("a")]
    assert describe(group(*errors)) == describe(group(*errors[::-1])) == "KeyError: 'k'; ValueError: a; ValueError: b"
    many = [ValueError(each) for each in range(9)]
    assert describe(group(*many)) == "ValueError: 0; ValueError: 1; ValueError: 2; and 6 more"
    assert describe(ValueError()) == "ValueError"


class Mute(Exception):
    """As it is written by whoever has never printed one without a code."""

    def __str__(self) -> str:
        return self.args[0] if self.args else None  # type: ignore[return-value]


class Leaving(Exception):
    def __str__(self) -> str:
        sys.exit(7)


def test_an_error_that_cannot_say_what_it_is_about_is_named_all_the_same() -> None:
    assert describe(Leaving()) == "Leaving: (its text cannot be read)"
    assert describe(Mute()) == "Mute: (its text cannot be read)"
    assert describe(group(Mute(), Mute("code 7"))) == "Mute: (its text cannot be read); Mute: code 7"


@in_virtual_time
async def test_an_error_whose_text_would_end_the_process_is_its_items_failure(clock: VirtualClock) -> None:
    assert await times_of(clock, Leaving(), group(Leaving(), Mute())) == pytest.approx([0, 1, 3])


@in_virtual_time
async def test_such_an_error_is_its_items_failure_alone(clock: VirtualClock) -> None:
    assert await times_of(clock, Mute(), Mute()) == pytest.approx([0, 1, 3])


@given(
    st.lists(
        st.sampled_from(
            [
                AlreadyOwned("another's"), Conflict("stale"), FenceClosed("shut"), FenceDoubted("wait"),
                LeaseLost("gone"), Permanent("no such size"), Retry("later", after=9), ServerError("oops"),
                ServerError("again"), TerminalError("no such region"), TooManyRequests("busy", retry_after_seconds=20),
            ]
        ),
        min_size=1, max_size=4,
    ).flatmap(lambda errors: st.tuples(st.just(errors), st.permutations(errors)))
)  # fmt: skip
def test_what_a_group_means_does_not_hang_on_the_order_of_its_errors(
    orders: tuple[list[Exception], list[Exception]],
) -> None:
    one, other = (group(*errors) for errors in orders)
    assert describe(meant_by(one)) == describe(meant_by(other))


@pytest.mark.parametrize("gone", [LeaseLost("gone"), FenceClosed("shut"), FenceDoubted("wait")])
def test_beside_a_lease_that_is_gone_the_others_count(gone: Exception) -> None:
    for error in (Conflict("stale"), Retry("later", after=9), AlreadyOwned("another's")):
        assert meant_by(group(gone, error)) is meant_by(group(error, gone)) is error


def from_itself(error: Exception) -> Exception:
    """As `except Exception as error: raise error from error`."""
    error.__cause__ = error
    return error


def from_its_group(error: Exception) -> Exception:
    """As `except* ... as errors: raise errors.exceptions[0] from errors`."""
    error.__cause__ = group(error)
    return error


@pytest.mark.parametrize("cycle", [from_itself, from_its_group])
@in_virtual_time
async def test_an_error_that_is_its_own_cause_is_its_items_failure_alone(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture, cycle: Callable[[Exception], Exception]
) -> None:
    assert await times_of(clock, cycle(ValueError("boom")), cycle(ServerError("oops"))) == pytest.approx([0, 1, 3])
    assert [line.msg for line in caplog.records] == ["Reconcile raised; trying again", "Reconcile failed; trying again"]


@pytest.mark.parametrize("cycle", [from_itself, from_its_group])
def test_a_lease_that_is_gone_is_found_behind_a_cycle(cycle: Callable[[Exception], Exception]) -> None:
    assert is_lease_gone(cycle(LeaseLost("gone")))
    assert is_lease_gone(group(cycle(LeaseLost("gone")), FenceClosed("shut")))
    same = LeaseLost("gone")
    assert is_lease_gone(group(same, same))
    assert not is_lease_gone(group(cycle(ValueError("boom")), LeaseLost("gone")))


class Quota(ServerError):
    """As it is written by whoever has never asked an error of ours what it carries."""

    def __init__(self, who: str) -> None:
        self.who = who


class Odd(ServerError):
    @property
    def retry_after_seconds(self) -> float:
        raise KeyError("header")

    @retry_after_seconds.setter
    def retry_after_seconds(self, seconds: float | None) -> None: ...


@in_virtual_time
async def test_an_error_of_ours_without_its_fields_is_its_items_failure(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    assert await times_of(clock, Quota("me"), group(Quota("you"), Conflict("stale"))) == pytest.approx([0, 1, 3])
    assert {line.msg for line in caplog.records} == {"Reconcile failed; trying again"}


@in_virtual_time
async def test_an_error_that_cannot_be_read_is_its_items_failure_and_told(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    assert await times_of(clock, Odd("oops"), Odd("oops")) == pytest.approx([0, 1, 3])
    first, _ = caplog.records
    assert first.msg == "Reconcile raised an error that cannot be read; trying again"
    assert (first.__dict__["object"], first.__dict__["raised"]) == ("a", "Odd")
    assert first.exc_info
    line = TextFormatter().format(first).splitlines()[0]
    assert line.endswith(" raised=Odd error=\"KeyError: 'header'\"")


class Port(pydantic.BaseModel):
    port: int


def test_of_pydantics_errors_the_values_are_not_said() -> None:
    with pytest.raises(pydantic.ValidationError) as raised:
        Port.model_validate({"port": "s3cret"})
    said = "ValidationError: port: Input should be a valid integer, unable to parse string as an integer"
    assert describe(raised.value) == said
    assert describe(group(raised.value, ValueError("no"))) == f"{said}; ValueError: no"

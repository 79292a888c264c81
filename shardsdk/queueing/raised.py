"""What a reconcile has raised, and what of it matters.

Whatever is raised inside an `asyncio.TaskGroup` comes out as a group of errors,
which says nothing itself.  It means what its errors mean, where they all mean the
same; else it is an error like any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from shardsdk.errors import FenceClosed, Forbidden, LeaseLost, RetryRule, ShardingError, TerminalError
from shardsdk.kube.backoff import asked_by
from shardsdk.kube.cancelled import is_cancelled
from shardsdk.kube.doubts import FenceDoubted
from shardsdk.logs import describe_error

K = TypeVar("K", bound=Hashable)

#: So many errors of a group are named.
NAMED: Final = 3
#: So many attempts, 20 s by default, that fail because their namespace is being deleted are no news.  More of them are:
#: a clean-up that has to create something there keeps its object, and so the namespace, for ever.
ENDING_ATTEMPTS: Final = 12
#: So many attempts in a row, 20 s by default, that fail because somebody was faster are no news.  After more of them
#: nobody was: what is created is there for good, say, or the version that is sent was read long ago.
FASTER: Final = 12


class Faster(Generic[K]):
    """At which items somebody was faster than the attempts, and how often in a row."""

    def __init__(self) -> None:
        #: By item: how many attempts there had been before the last such one, and how many such in a row.
        self._last: dict[K, tuple[int, int]] = {}

    def is_no_news(self, item: K, attempts: int) -> bool:
        """It was so once more, after so many attempts; whether that may be all."""
        last, times = self._last.get(item, (-1, 0))
        times = times if attempts == last + 1 else 0
        self._last[item] = attempts, times + 1
        return times < FASTER

    def forget(self, item: K) -> None:
        """The next attempt is the first."""
        self._last.pop(item, None)


def leaves_of(error: BaseException) -> list[BaseException]:
    """The errors of a group, and of the groups in it; of any other error that alone.

    In an order that stays: which of them was raised first is chance, and is to decide nothing.
    """
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return sorted((leaf for each in error.exceptions for leaf in leaves_of(each)), key=describe_error)


def meant_by(error: BaseException) -> BaseException:
    """The one error that says what is to be done about `error`, which it is itself unless that is a group.

    Of errors that are all the API server's, or others of ours, the one that asks for the most patience; a lease that
    is gone says the least, since whoever comes back without it is turned away.
    """
    leaves = leaves_of(error)
    if len(leaves) == 1 or all(isinstance(leaf, TerminalError) for leaf in leaves):
        return leaves[0]
    ours = [leaf for leaf in leaves if isinstance(leaf, ShardingError) and not isinstance(leaf, TerminalError)]
    return max(ours, key=_patience) if len(ours) == len(leaves) else error


def describe(error: BaseException) -> str:
    """An error in a line: what it is and what it says; of a group what its errors are, in an order that stays."""
    texts = sorted({describe_error(leaf) for leaf in leaves_of(error)})
    more = [f"and {len(texts) - NAMED} more"] if len(texts) > NAMED else []
    return "; ".join([*texts[:NAMED], *more])


def is_failure(error: BaseException) -> bool:
    """Whether it is the failure of what was called, and not the end of whoever called it.

    The first is also a `sys.exit()` somewhere in what it calls, or a panic in an extension module: another process
    would meet the same object, and end as well.  (A `sys.exit()` in a task that was started is never raised here:
    asyncio has it end the loop.)
    """
    return not isinstance(error, asyncio.CancelledError | KeyboardInterrupt | GeneratorExit)


def cancelled_inside(error: asyncio.CancelledError) -> RuntimeError | None:
    """The failure that `error` is of what was called; `None`: the task that runs is what was cancelled."""
    return None if is_cancelled() else awaited_cancelled(error)


def awaited_cancelled(error: asyncio.CancelledError) -> RuntimeError:
    """The failure of a function that nobody has cancelled."""
    return RuntimeError(f"something that the function awaited was cancelled: {error!r}")


def as_exception(error: BaseException) -> Exception:
    """The same for whoever is not to end by it."""
    return error if isinstance(error, Exception) else RuntimeError(describe(error))


def is_refresh(error: BaseException) -> bool:
    """Whether nothing is wrong but that somebody else was faster."""
    return isinstance(error, ShardingError) and error.retry is RetryRule.REFRESH


def is_ending(error: BaseException, namespace: str, attempts: int = 0) -> bool:
    """Whether nothing is wrong but that `namespace` is being deleted, and with it an object that failed so often.

    Of a group: nothing with any of its errors.
    """
    wrong = [each for each in leaves_of(error) if not _passes(each)]
    ends = all(isinstance(each, Forbidden) and each.terminating == namespace for each in wrong)
    return bool(namespace and wrong) and ends and attempts < ENDING_ATTEMPTS


def is_quiet(error: BaseException, namespace: str) -> bool:
    """Whether nothing is wrong with an object in `namespace`: somebody was faster, the lease is gone, or that ends.

    What never ends to be refused for that is logged; no Event can be written there either.
    """
    return _passes(error) or is_ending(error, namespace)


def _passes(error: BaseException) -> bool:
    return isinstance(error, FenceClosed | LeaseLost) or is_refresh(error)


def is_lease_gone(error: BaseException) -> bool:
    """Whether a closed fence is all that is behind `error`, in whatever a reconcile has wrapped it."""
    return _is_lease_gone(error, frozenset())


def _is_lease_gone(error: BaseException, above: frozenset[int]) -> bool:
    # Its own cause: `raise error from error`, or `raise group.exceptions[0] from group`.
    if id(error) in above:
        return False
    above |= {id(error)}
    if isinstance(error, BaseExceptionGroup):
        return all(_is_lease_gone(each, above) for each in error.exceptions)
    if isinstance(error, FenceClosed | LeaseLost):
        # One that is merely doubted may be open again in a moment, and then nobody else has the object.
        return not isinstance(error, FenceDoubted)
    return error.__cause__ is not None and _is_lease_gone(error.__cause__, above)


def _patience(error: ShardingError) -> tuple[bool, bool, float, float]:
    leased = not isinstance(error, FenceClosed | LeaseLost)
    return leased, not is_refresh(error), asked_by(error), error.longest_pause_seconds

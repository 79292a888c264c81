"""What the functions of driven controllers return and raise: reconciles, and mappings of watched objects."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from dataclasses import replace
from typing import Any, Final

from shardsdk.cache.objects import Request, request_of
from shardsdk.operator.failures import Permanent
from shardsdk.protocol.objects import GroupResource
from shardsdk.queueing.raised import as_exception, awaited_cancelled, is_failure, is_refresh, meant_by
from shardsdk.queueing.sources import MapFunc, as_request
from shardsdk.queueing.workers import Done, Outcome, checked
from shardsdk.reconcile.calls import returned_by
from shardsdk.reconcile.spec import ControllerSpec
from shardsdk.reconcile.threads import call_any
from shardsdk.testing.changes import Change
from shardsdk.testing.unchanged import looking_only

#: Whoever has met a newer object so often in a row, and is left alone then, would meet it for ever.
FOR_GOOD: Final = 5


class Noted:
    """Notes what is called of the controllers that `watched` has been told of."""

    def __init__(self) -> None:
        #: What each reconcile returned or raised, with the object's name, in order.
        self.outcomes: list[tuple[str, Outcome | Exception | None]] = []
        #: What mappings raised, and what is wrong with indexes and predicates, in order.
        self.of_mappings: list[Exception] = []
        #: How many reconciles run.
        self.running = 0
        #: Where the last reconciles of an object met a newer one: how often in a row, and the last such error.
        self._met_newer: dict[tuple[str, GroupResource, Request], tuple[int, Exception]] = {}
        #: What was begun before it changed is not noted any more.
        self._life = 0
        #: The last reconcile that was begun, in words.
        self.last = "nothing was reconciled"

    def watched(self, spec: ControllerSpec[Any]) -> ControllerSpec[Any]:
        """The same controller; what its functions return or raise, with all that is done around them, is noted."""
        life = self._life

        async def call(context: Any) -> Outcome | None:
            self.running += 1
            begun = context.clock.monotonic()
            self.last = f"{spec.title!r} reconciled {context.request} last"
            which = spec.title, spec.main.resource.group_resource, context.request
            try:
                outcome: Outcome | None = await self._call(spec, context)
                checked(outcome or Done(), spec.title)
            except BaseException as error:
                failure = _failure_of(error, context, spec, context.clock.monotonic() - begun)
                if failure is not None and life == self._life:
                    self.outcomes.append((context.request.name, failure))
                    times, _ = self._met_newer.pop(which, (0, failure))
                    if is_refresh(meant_by(failure)):
                        self._met_newer[which] = times + 1, failure
                raise
            else:
                if life == self._life:
                    self.outcomes.append((context.request.name, outcome))
                    self._met_newer.pop(which, None)
                return outcome
            finally:
                self.running -= life == self._life

        watching = looking_only(spec, self.of_mappings.append)
        mapped = tuple(replace(each, mapping=self._noting(each.mapping)) for each in watching.watched)
        return replace(watching, function=call, around=None, watched=mapped)

    def forget(self) -> None:
        """The process of all that was `watched` has crashed: nothing of it runs, and nothing more is noted of it."""
        self._life += 1
        self.running = 0
        self._met_newer.clear()

    def saw(self, change: Change) -> None:
        """Whatever an object that is gone now has met before, it would not meet for ever."""
        if change.new is None and change.old is not None:
            gone = change.resource, request_of(change.old)
            for which in [each for each in self._met_newer if each[1:] == gone]:
                del self._met_newer[which]

    @property
    def failures(self) -> list[Exception]:
        """What is wrong of what was raised: no Permanent, nor a Conflict after which it went well.

        What mappings raised comes last.
        """
        raised = [(each, meant_by(each)) for _, each in self.outcomes if isinstance(each, Exception)]
        wrong = [error for error, meant in raised if not isinstance(meant, Permanent) and not is_refresh(meant)]
        for_good = [error for times, error in self._met_newer.values() if times >= FOR_GOOD]
        return wrong + for_good + self.of_mappings

    # -- inside ---------------------------------------------------------------

    @staticmethod
    async def _call(spec: ControllerSpec[Any], context: Any) -> Any:
        def call(function: Any) -> Awaitable[Any]:
            return returned_by(context, call_any(function, context))

        return await (call(spec.function) if spec.around is None else spec.around(context, call))

    def _noting(self, mapping: MapFunc) -> MapFunc:
        """The same mapping; a controller logs what it raises, and goes on."""

        def call(thing: Any) -> Iterator[Request]:
            try:
                for each in mapping(thing):
                    yield as_request(each, "a mapping gives requests")
            except Exception as error:
                self.of_mappings.append(error)
                raise

        return call


def _failure_of(
    error: BaseException, context: Any, spec: ControllerSpec[Any], lasted_seconds: float
) -> Exception | None:
    """What a reconcile failed with; `None`: it was cancelled because its object went, or its process is to end."""
    if not isinstance(error, asyncio.CancelledError):
        return as_exception(error) if is_failure(error) else None
    limit = spec.timeout_seconds
    if limit is not None and lasted_seconds >= limit:
        return TimeoutError(f"{spec.title!r} was cancelled at its time limit of {limit:g} s")
    return None if context.cancelled else awaited_cancelled(error)

"""One call of a reconcile function, and what is done around it.

    being deleted?  ──> clean up, take the finalizer off
    failed for good, and nothing has changed?  ──> leave it alone, and say so
    finalizer ──> the function ──> status as returned ──> prune

The finalizer is there before the function is called, hence before its first write.
What the function raises is told as `shardsdk/operator/failures.py` says; nothing
is pruned then, and no status written.  While that cannot be told for a reason that
may pass it is tried again without the function (but not without the clean-up: nobody
changes the spec of what is on its way out).  The condition that told of a
`Permanent` is taken back when the function has succeeded, and has not said
anything of it; also that of another process, which the object shows as one of ours.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Collection, Sequence, Set
from functools import partial
from typing import Any, Final, Generic, TypeVar

from shardsdk.cache.cache import Cache
from shardsdk.cache.objects import metadata_of
from shardsdk.errors import (
    ApiError,
    ConfigurationError,
    Conflict,
    ConnectionFailed,
    Invalid,
    MethodNotAllowed,
    NotFound,
    TerminalError,
    TooManyWrites,
)
from shardsdk.events.recorder import EventType
from shardsdk.kinds import Kind, Model
from shardsdk.kinds.conditions import Condition
from shardsdk.kube.identity import describe_given
from shardsdk.kube.reflector import Delta, EventKind
from shardsdk.objects.finalizers import add_finalizer, remove_finalizer
from shardsdk.operator.failures import SPEC_CHANGE, Failures, Permanent, Retry
from shardsdk.operator.leftovers import Leftovers, Untold, failures_in, types_of, untrue_types
from shardsdk.operator.pruning import prune
from shardsdk.operator.put_back import PutBack
from shardsdk.operator.returns import instead, remedy, wrong_status
from shardsdk.operator.status import cached_object, take_back_failures, write_failure, write_status
from shardsdk.protocol.verdict import Verdict
from shardsdk.queueing.raised import FASTER, describe, is_failure, is_quiet, is_refresh, leaves_of, meant_by
from shardsdk.queueing.workers import Done, Outcome, Requeue, RequeueAfter, Waiting
from shardsdk.reconcile.context import Context
from shardsdk.reconcile.spec import Call

K = TypeVar("K", bound=Kind)

#: What a reconcile may return besides a status, and a clean-up.
_OUTCOMES: Final = (Done, Requeue, RequeueAfter, Waiting)


class Attempts(Generic[K]):
    """The calls of `function`, and of `clean_up` (`None`: nothing is cleaned up) for objects on their way out.

    `status` is the class of the objects' status (`None`: they have none), `observes` whether it tells of `function`
    which generation was dealt with, and not of another one.  `pruned` are the kinds of which children that were not
    applied are removed, `timers` the field owners whose part of them stays.  `timed`: time alone has it called.
    `former_finalizer` is one that objects may have from an earlier version, instead or besides.
    """

    def __init__(
        self,
        function: Callable[[Context[K]], Any],
        *,
        clean_up: Callable[[Context[K]], Any] | None = None,
        finalizer: str = "",
        former_finalizer: str = "",
        status: type[Any] | None,
        observes: bool,
        pruned: Sequence[type[Kind]] = (),
        timers: Collection[str] = (),
        timed: bool = False,
    ) -> None:
        self._function = function
        self._clean_up = clean_up
        self._finalizer = finalizer
        self._former = former_finalizer
        self._status = status
        self._observes = observes
        self._pruned = pruned
        self._timers = timers
        self._timed = timed
        self._failures = Failures()
        self._leftovers = Leftovers()
        self._put_back = PutBack()
        #: Whose changes say when what is remembered of an object ends.
        self._followed: Cache[Any] | None = None

    async def __call__(self, context: Context[K], call: Call) -> Outcome | None:
        """Reconcile the object, or clean up after it.  Raises: whatever the functions raise, but for what they mean."""
        uid, deleted = context.metadata.uid, context.metadata.deletion_timestamp is not None
        # What this call is about: by the time that it fails, the cache may show a spec which it has not seen.
        thing, version = cached_object(context), context.version
        known = None if thing is None else self._failures.permanent(thing)
        untold = None if known is None else self._failures.untold(uid)
        if known is not None and untold is None and not deleted:
            return Waiting(known, SPEC_CHANGE)
        try:
            if untold is not None and not deleted:
                raise untold.with_traceback(None)  # the function would raise it again; what is left is to say so
            outcome = await (self._finish(context, call) if deleted else self._reconcile(context, call, thing))
        except BaseException as error:
            # What keeps it from going has been told, and counted.  (One that writes wakes itself, and is to be heard.)
            if known is not None and untold is None and known == describe(error) and context.version == version:
                return Waiting(known)
            if (again := await self._failed(context, thing, error)) is None:
                raise
            return again
        self._failures.forget(uid)
        return outcome

    async def _reconcile(self, context: Context[K], call: Call, thing: K | None) -> Outcome | None:
        handed = thing if thing is not None and thing.metadata.resource_version == context.version else None
        if self._clean_up is not None:
            await add_finalizer(context, self._finalizer)
        version = context.version
        returned = await call(self._function)
        outcome = returned if isinstance(returned, _OUTCOMES) else None
        if outcome is None and returned is not None:
            self._check(context, returned)
            read = handed if context.version == version else None  # else it has written the object itself
            if await write_status(context, returned, observes=self._observes, read=read):
                self._put_back.note(context, returned, thing)
        told = True
        if (untrue := untrue_types(thing)) or self._failures.condition(context.metadata.uid) is not None:
            told = await self._take_back(context, untrue, types_of(getattr(returned, "conditions", None)))
        # One that asks to be called again may not have come to all that it applies.
        if self._pruned and not isinstance(outcome, Requeue | RequeueAfter):
            await prune(context, self._pruned, self._timers)
        if told or self._timed or outcome is not None or context.requeued is not None:
            return outcome
        return RequeueAfter(self._leftovers.pause(context))

    async def _take_back(self, context: Context[K], untrue: Set[object], said: Collection[object]) -> bool:
        """Have the status not tell any more that it failed for good, but by what the function has `said` itself.

        `untrue` are the types of the conditions that the object shows as False.  `False`: what another process has left
        could not be told yet.
        """
        uid, said = context.metadata.uid, {*said}
        failed = self._failures.condition(uid)
        if failed is not None and failed.type not in said and await take_back_failures(context, [failed]):
            said.add(failed.type)
        if not (left_over := untrue - said):
            return True
        try:
            found = await self._leftovers.read(context)
        except (Untold, ApiError, ConnectionFailed) as unread:
            if (error := unread.error if isinstance(unread, Untold) else unread) is not None:
                context.log.warning(
                    "What another process has said of a failure for good may still be in the status",
                    error=describe(error),
                )
            return False
        if found is not None:
            if left := failures_in(context, found, left_over):
                await take_back_failures(context, left, found)
            self._leftovers.forget(uid)
        return True

    async def _finish(self, context: Context[K], call: Call) -> Outcome | None:
        """The object is on its way out, and stays until its finalizers are gone."""
        ours = [each for each in context.metadata.finalizers or () if each in (self._finalizer, self._former)]
        if not ours:
            return None
        if self._clean_up is not None:
            returned = await call(self._clean_up)
            if returned is not None and not isinstance(returned, _OUTCOMES):
                # It may say that nothing is cleaned up yet, as False and a `Retry` do, and the object would be gone.
                raise ConfigurationError(
                    f"the clean-up of {context.controller!r} returned {describe_given(returned)}, and the finalizer"
                    " stays: return None when it is done, else Requeue() or RequeueAfter(seconds)" + instead(returned)
                )
            again = returned if isinstance(returned, Requeue | RequeueAfter | Waiting) else context.requeued
            if again is not None and not isinstance(returned, Done):
                return again  # not done yet
            if context.cancelled and not isinstance(returned, Done):
                raise asyncio.CancelledError("the clean-up was cancelled, and has not said that it is done")
        # Also that of an operator which had something to clean up once, and has nothing any more.
        for finalizer in ours:
            await remove_finalizer(context, finalizer)
        return None

    def _check(self, context: Context[K], returned: object) -> None:
        """Raises: ConfigurationError unless it is a status of such an object."""
        if self._status is not None and isinstance(returned, self._status):
            return
        status, kind = "Done()" if self._status is None else f"a {self._status.__qualname__}", type(context.object)
        raise ConfigurationError(
            f"the reconcile of {context.controller!r} returned {describe_given(returned)}, but"
            f" {wrong_status(kind, self._status)}: return {status}, None, Requeue() or RequeueAfter(seconds)"
            + (remedy(kind, type(returned)) if isinstance(returned, Model) else instead(returned))
        )

    async def _failed(self, context: Context[K], thing: K | None, error: BaseException) -> RequeueAfter | None:
        """Tell of what a call about `thing` has raised; when to call again, if that is all that it means."""
        leaves, lasts = leaves_of(error), self._lasts(context, error)
        wrong = [each for each in leaves if not is_quiet(each, context.metadata.namespace)]
        retries = [each for each in wrong if isinstance(each, Retry)]
        if retries and len(retries) == len(wrong):
            retry = min(retries, key=lambda each: each.after)
            context.log.info("Reconcile is to be tried again", reason=str(retry), next_attempt_seconds=retry.after)
            return RequeueAfter(retry.after)
        permanent = next((each for each in leaves if isinstance(each, Permanent)), None)
        if permanent is not None and all(isinstance(each, TerminalError) for each in leaves):
            if context.cancelled:  # for good it would have failed without that, too
                raise asyncio.CancelledError("it was cancelled, and raised Permanent") from error
            await self._give_up(context, thing, error, permanent)
        elif is_failure(error) and (wrong or lasts):
            self._tell(context, error)
        return None

    async def _give_up(self, context: Context[K], thing: K | None, error: BaseException, failure: Permanent) -> None:
        """Tell of it, and note it, by the condition that tells of it if the status has any.

        Raises: whatever had the status not written, if that may pass.
        """
        uid, text = context.metadata.uid, describe(error)
        deleted = context.metadata.deletion_timestamp is not None
        untold = self._failures.untold(uid)
        first = untold is None or describe(untold) != text
        if first:
            context.event(EventType.WARNING, failure.reason, failure.message)
        fields = set[str]() if self._status is None else field_names(self._status)
        condition = context.condition(failure.condition, False, failure.reason, failure.message)
        failed = [condition] if "conditions" in fields else []
        observes = self._observes and "observed_generation" in fields
        known = condition if failed else None
        if self._status is not None and (failed or observes):
            try:
                await write_failure(context, failed, status=self._status, observes=observes)
            except Conflict:
                raise  # perhaps it is to be otherwise by now
            except (ApiError, ConnectionFailed, TooManyWrites) as refusal:
                known = self._failures.condition(uid)
                # A clean-up is called again, and sends as much as before.
                used_up = deleted and isinstance(refusal, TooManyWrites)
                passes = not (used_up or isinstance(refusal, NotFound | MethodNotAllowed | Invalid))
                if first or not passes:
                    context.log.warning(
                        "The status cannot tell that the reconcile failed for good",
                        error=describe(refusal),
                        failure=text,
                    )
                # A right may be granted, a webhook get well; the function has nothing to do with that.
                if passes:
                    if thing is not None:
                        self._note_permanent(context, thing, text, known, untold=error)
                    raise
        if thing is not None:
            self._note_permanent(context, thing, text, known)
            for each in leaves_of(error):
                # One on its way out is tried again by each event: nobody changes its spec any more.  It may be raised
                # for others, too.
                if isinstance(each, TerminalError):
                    each.waits_for = TerminalError.waits_for if deleted else SPEC_CHANGE

    def _note_permanent(
        self, context: Context[K], thing: K, text: str, condition: Condition | None, untold: BaseException | None = None
    ) -> None:
        self._failures.note_permanent(thing, text, condition, untold=untold)
        cache = context.cache(context.main)
        if cache is not self._followed:
            self._followed = cache
            cache.listen(partial(self._on_change, context.judge))

    def _on_change(self, judge: Callable[[object], Verdict], delta: Delta[Any]) -> None:
        """Whoever has the object next may reconcile it: already its drain ends what is remembered, as of applies.

        So does what is shown next after a drain: a reconcile that ran then may have failed after it, and that the
        object has left, and is back, no event need tell.
        """
        versions = [each for each in (delta.object, delta.old) if each is not None]
        if delta.kind is EventKind.DELETED or any(judge(each) is not Verdict.RECONCILE for each in versions):
            self._failures.let_go(metadata_of(delta.object).uid)

    def _lasts(self, context: Context[K], error: BaseException) -> bool:
        """Whether somebody was faster so often in a row that it must be something else."""
        if is_refresh(meant_by(error)):
            return self._failures.refused(context.metadata.uid) >= FASTER
        self._failures.not_refused(context.metadata.uid)
        return False

    def _tell(self, context: Context[K], error: BaseException) -> None:
        """An Event for people, once for each error that is not the same as last time."""
        text = describe(error)
        if self._failures.is_news(context.metadata.uid, text):
            context.event(EventType.WARNING, "ReconcileFailed", text)


def field_names(model: type[Any]) -> set[str]:
    """The fields of a class, whatever makes it one with fields."""
    return {name for base in model.__mro__ for name in inspect.get_annotations(base)}

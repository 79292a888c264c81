"""The user's tasks: how they run, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Any, Final

from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock
from shardsdk.logs import logger_of
from shardsdk.queueing.raised import cancelled_inside
from shardsdk.reconcile.spec import TaskSpec

log: Final = logger_of(__name__)


async def run_task(task: TaskSpec, api: Api) -> None:
    """Run it.  Raises: what it raises; RuntimeError when something that it awaited was cancelled, and not it."""
    try:
        await task.function(api)
    except asyncio.CancelledError as error:
        if (failure := cancelled_inside(error)) is None:
            raise
        raise failure from error
    log.info("Task has ended", extra={"task": task.name})


async def be_patient(
    tasks: Sequence[asyncio.Task[Any]], specs: Sequence[TaskSpec], told_at: float, clock: Clock
) -> None:
    """Let them end by themselves in the grace of their `specs` since `told_at`, when they were told to stop."""
    patient = [task for task, spec in zip(tasks, specs, strict=True) if spec.grace_seconds]
    if patient:
        until = told_at + max(spec.grace_seconds for spec in specs)
        await asyncio.wait(patient, timeout=max(until - clock.monotonic(), 0.0))


def failed_meanwhile(tasks: Collection[asyncio.Task[Any]]) -> bool:
    """Whether any of these, which were to end, has failed instead; logs it."""
    failed = [task for task in tasks if task.done() and not task.cancelled() and task.exception() is not None]
    for task in failed:
        log.error("Task has failed while it was to end", extra={"task": task.get_name()}, exc_info=task.exception())
    return bool(failed)

"""Jobs on a schedule: the CronJob that kubebuilder's tutorial builds.

shardsdk run examples/ports/cronjob.py --install-crds   # besides: pip install cronsim

Schedules have five fields, in UTC.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from typing import Annotated, Final, Literal

from cronsim import CronSim, CronSimError

from shardsdk import Column, Context, CustomResource, Model, ObjectMeta, Operator, Permanent, Range
from shardsdk.admission import Denied, Review
from shardsdk.kinds import Job, JobSpec, ObjectReference, Rule

SCHEDULED_AT: Final = "batch.tutorial.kubebuilder.io/scheduled-at"
MAX_MISSED: Final = 100


class JobTemplate(Model):
    """What each Job is made from."""

    spec: JobSpec
    metadata: ObjectMeta = ObjectMeta()


class CronJobSpec(Model):
    """Which Job runs when."""

    schedule: Annotated[str, Column("Schedule")]
    job_template: JobTemplate
    starting_deadline_seconds: Annotated[int, Range(0)] | None = None
    concurrency_policy: Literal["Allow", "Forbid", "Replace"] = "Allow"
    suspend: Annotated[bool, Column("Suspend")] = False
    successful_jobs_history_limit: Annotated[int, Range(0)] = 3
    failed_jobs_history_limit: Annotated[int, Range(0)] = 1


class CronJobStatus(Model):
    """Which Jobs run, and which run was the last."""

    active: list[ObjectReference] = []
    last_schedule_time: Annotated[datetime | None, Column("Last Run")] = None


class CronJob(
    CustomResource[CronJobSpec, CronJobStatus],
    group="batch.tutorial.kubebuilder.io",
    version="v1",
    rules=[Rule("size(self.metadata.name) <= 52", "must be no more than 52 characters: a Job's name adds 11")],
):
    """A Job that runs at times."""


operator = Operator("cronjobs")


@operator.reconcile(CronJob, owns=[Job])
async def cronjob(ctx: Context[CronJob]) -> CronJobStatus:
    """Start the Job that is due, take away old ones, come back when the next is due."""
    spec, now = ctx.object.spec, ctx.clock.now()
    jobs = [job for job in ctx.children(Job) if job.metadata.deletion_timestamp is None]
    active = [job for job in jobs if not end_of(job)]
    for end, limit in (("Failed", spec.failed_jobs_history_limit), ("Complete", spec.successful_jobs_history_limit)):
        ended = sorted((job for job in jobs if end_of(job) == end), key=started)
        for job in ended[: max(len(ended) - limit, 0)]:
            await ctx.delete(job)

    times = [datetime.fromisoformat(started(job)) for job in jobs]
    last = max([ctx.object.status.last_schedule_time, *times], key=lambda time: time.timestamp() if time else 0.0)
    missed = [] if spec.suspend else runs_missed(ctx, last)
    if missed and not (active and spec.concurrency_policy == "Forbid"):
        if spec.concurrency_policy == "Replace":
            for job in active:
                await ctx.delete(job)
            active = []
        last = missed[-1]
        active.append(await ctx.apply(job_at(ctx.object, last)))
        ctx.log.info("Job started", job=active[-1].metadata.name)
    if not spec.suspend:
        ctx.requeue(after=(next(CronSim(spec.schedule, now)) - now).total_seconds())
    return CronJobStatus([reference_to(job) for job in active], last)


@operator.validate(CronJob)
async def check(review: Review[CronJob]) -> None:
    """Refuse a schedule that is none."""
    try:
        CronSim(review.object.spec.schedule, datetime.now(UTC))
    except CronSimError as error:
        raise Denied(f"{review.object.spec.schedule!r} is no schedule: {error}", field="spec.schedule") from None


def runs_missed(ctx: Context[CronJob], last: datetime | None) -> list[datetime]:
    """The times since the last run at which one was due, and is not too late by now."""
    spec, now = ctx.object.spec, ctx.clock.now()
    since = last or datetime.fromisoformat(ctx.metadata.creation_timestamp or now.isoformat())
    if spec.starting_deadline_seconds is not None:
        since = max(since, now - timedelta(seconds=spec.starting_deadline_seconds))
    try:
        missed = list(islice(takewhile(lambda time: time <= now, CronSim(spec.schedule, since)), MAX_MISSED + 1))
    except CronSimError as error:
        raise Permanent(f"schedule {spec.schedule!r} is none: {error}", reason="InvalidSchedule") from None
    if len(missed) > MAX_MISSED:
        raise Permanent(
            f"more than {MAX_MISSED} runs were missed: set or lower startingDeadlineSeconds", reason="TooManyMissed"
        )
    return missed


def job_at(cron: CronJob, time: datetime) -> Job:
    """The Job of one run; its name follows from the time, so that none is made twice."""
    template = cron.spec.job_template
    annotations = {**(template.metadata.annotations or {}), SCHEDULED_AT: time.isoformat()}
    name = f"{cron.metadata.name}-{int(time.timestamp())}"
    return Job(ObjectMeta(name, labels=template.metadata.labels, annotations=annotations), spec=template.spec)


def started(job: Job) -> str:
    """When the run was due."""
    return (job.metadata.annotations or {})[SCHEDULED_AT]


def end_of(job: Job) -> str:
    """Complete or Failed; empty while it runs."""
    found = (each.type for each in job.status.conditions or () if each.status == "True")
    return next((end for end in found if end in ("Complete", "Failed")), "")


def reference_to(job: Job) -> ObjectReference:
    """How the status names it."""
    of, resource = job.metadata, job.resource
    return ObjectReference(
        api_version=f"{resource.group}/{resource.version}",
        kind=resource.kind,
        namespace=of.namespace,
        name=of.name,
        uid=of.uid,
    )

"""The kind CronJob, and what it is made of; written by `make kinds` from Kubernetes' OpenAPI."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

import msgspec

from shardsdk.kinds.base import Kind, Model
from shardsdk.kinds.builtin.pods import JobSpec
from shardsdk.kinds.builtin.shared import ObjectReference
from shardsdk.protocol.objects import ObjectMeta, Resource


class CronJob(Kind, kw_only=True):
    """CronJob represents the configuration of a single cron job."""

    resource: ClassVar[Resource] = Resource("batch", "v1", "cronjobs", "CronJob")

    spec: CronJobSpec
    """Specification of the desired behavior of a cron job, including the schedule."""
    status: CronJobStatus = msgspec.field(default_factory=lambda: CronJobStatus())
    """Current status of a cron job."""


class CronJobSpec(Model, kw_only=True):
    """CronJobSpec describes how the job execution will look like and when it will actually run."""

    concurrency_policy: str | None = None
    """Specifies how to treat concurrent executions of a Job."""
    failed_jobs_history_limit: int | None = None
    """The number of failed finished jobs to retain."""
    job_template: JobTemplateSpec
    """Specifies the job that will be created when executing a CronJob."""
    schedule: str
    """The schedule in Cron format, see https://en.wikipedia.org/wiki/Cron."""
    starting_deadline_seconds: int | None = None
    """Optional deadline in seconds for starting the job if it misses scheduled time for any reason."""
    successful_jobs_history_limit: int | None = None
    """The number of successful finished jobs to retain."""
    suspend: bool | None = None
    """This flag tells the controller to suspend subsequent executions, it does not apply to already started
    executions.
    """
    time_zone: str | None = None
    """The time zone name for the given schedule, see https://en.wikipedia.org/wiki/List_of_tz_database_time_zones.
    """


class CronJobStatus(Model, kw_only=True):
    """CronJobStatus represents the current state of a cron job."""

    active: list[ObjectReference] | None = None
    """A list of pointers to currently running jobs."""
    last_schedule_time: datetime | None = None
    """Information when was the last time the job was successfully scheduled."""
    last_successful_time: datetime | None = None
    """Information when was the last time the job successfully completed."""


class JobTemplateSpec(Model, kw_only=True):
    """JobTemplateSpec describes the data a Job should have when created from a template"""

    metadata: ObjectMeta | None = None
    """Standard object's metadata of the jobs created from this template."""
    spec: JobSpec | None = None
    """Specification of the desired behavior of the job."""

"""The kind Job, and what it is made of; written by `make kinds` from Kubernetes' OpenAPI."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

import msgspec

from shardsdk.kinds.base import Kind, Model
from shardsdk.kinds.builtin.pods import JobSpec
from shardsdk.protocol.objects import Resource


class Job(Kind, kw_only=True):
    """Job represents the configuration of a single job."""

    resource: ClassVar[Resource] = Resource("batch", "v1", "jobs", "Job")

    spec: JobSpec
    """Specification of the desired behavior of a job."""
    status: JobStatus = msgspec.field(default_factory=lambda: JobStatus())
    """Current status of a job."""


class JobCondition(Model, kw_only=True):
    """JobCondition describes current state of a job."""

    last_probe_time: datetime | None = None
    """Last time the condition was checked."""
    last_transition_time: datetime | None = None
    """Last time the condition transit from one status to another."""
    message: str | None = None
    """Human readable message indicating details about last transition."""
    reason: str | None = None
    """(brief) reason for the condition's last transition."""
    status: str
    """Status of the condition, one of True, False, Unknown."""
    type: str
    """Type of job condition, Complete or Failed."""


class JobStatus(Model, kw_only=True):
    """JobStatus represents the current state of a Job."""

    active: int | None = None
    """The number of pending and running pods which are not terminating (without a deletionTimestamp)."""
    completed_indexes: str | None = None
    """completedIndexes holds the completed indexes when .spec.completionMode = "Indexed" in a text format."""
    completion_time: datetime | None = None
    """Represents time when the job was completed."""
    conditions: list[JobCondition] | None = None
    """The latest available observations of an object's current state."""
    failed: int | None = None
    """The number of pods which reached phase Failed."""
    failed_indexes: str | None = None
    """FailedIndexes holds the failed indexes when spec.backoffLimitPerIndex is set."""
    ready: int | None = None
    """The number of active pods which have a Ready condition and are not terminating (without a deletionTimestamp).
    """
    start_time: datetime | None = None
    """Represents time when the job controller started processing a job."""
    succeeded: int | None = None
    """The number of pods which reached phase Succeeded."""
    terminating: int | None = None
    """The number of pods which are terminating (in phase Pending or Running and have a deletionTimestamp)."""
    uncounted_terminated_pods: UncountedTerminatedPods | None = None
    """uncountedTerminatedPods holds the UIDs of Pods that have terminated but the job controller hasn't yet accounted
    for in the status counters.
    """


class UncountedTerminatedPods(Model, kw_only=True):
    """UncountedTerminatedPods holds UIDs of Pods that have terminated but haven't been accounted in Job status
    counters.
    """

    failed: list[str] | None = None
    """failed holds UIDs of failed Pods."""
    succeeded: list[str] | None = None
    """succeeded holds UIDs of succeeded Pods."""

"""The kind LimitRange, and what it is made of; written by `make kinds` from Kubernetes' OpenAPI."""

from __future__ import annotations

from typing import ClassVar

from shardsdk.kinds.base import Kind, Model
from shardsdk.protocol.objects import Resource


class LimitRange(Kind, kw_only=True):
    """LimitRange sets resource usage limits for each kind of resource in a Namespace."""

    resource: ClassVar[Resource] = Resource("", "v1", "limitranges", "LimitRange")

    spec: LimitRangeSpec
    """Spec defines the limits enforced."""


class LimitRangeItem(Model, kw_only=True):
    """LimitRangeItem defines a min/max usage limit for any resource that matches on kind."""

    default: dict[str, str] | None = None
    """Default resource requirement limit value by resource name if resource limit is omitted."""
    default_request: dict[str, str] | None = None
    """DefaultRequest is the default resource requirement request value by resource name if resource request is
    omitted.
    """
    max: dict[str, str] | None = None
    """Max usage constraints on this kind by resource name."""
    max_limit_request_ratio: dict[str, str] | None = None
    """MaxLimitRequestRatio if specified, the named resource must have a request and limit that are both non-zero where
    limit divided by request is less than or equal to the enumerated value; this represents the max burst for the
    named resource.
    """
    min: dict[str, str] | None = None
    """Min usage constraints on this kind by resource name."""
    type: str
    """Type of resource that this limit applies to."""


class LimitRangeSpec(Model, kw_only=True):
    """LimitRangeSpec defines a min/max usage limit for resources that match on kind."""

    limits: list[LimitRangeItem]
    """Limits is the list of LimitRangeItem objects that are enforced."""

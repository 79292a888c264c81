"""Conditions as they stand in the status of an object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, ClassVar

import msgspec

from shardsdk.kinds.markers import Doc, Format, OneOf


class ConditionStatus(StrEnum):
    """Whether a condition holds."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(msgspec.Struct, frozen=True, rename="camel"):
    """Kubernetes' metav1.Condition; use it in your own models as well.

    `reason` is a word in CamelCase, `message` a sentence for people.  Of a
    condition to be set the last two fields are filled in.
    """

    #: A list of conditions has one of each type; server-side apply merges it so.
    __list_map_keys__: ClassVar[tuple[str, ...]] = ("type",)
    __schema_doc__: ClassVar[str] = "What has been observed of the object, in one respect."

    type: Annotated[str, Doc("In which respect, in CamelCase, such as Ready.")]
    status: Annotated[str, OneOf("True", "False", "Unknown"), Doc("Whether it holds.")]
    reason: Annotated[str, Doc("Why it holds or not, as a word in CamelCase.")] = ""
    message: Annotated[str, Doc("Why it holds or not, as a sentence.")] = ""
    last_transition_time: Annotated[str | None, Format("date-time"), Doc("When `status` became what it is.")] = None
    observed_generation: Annotated[int | None, Doc("The `metadata.generation` that this was said of.")] = None


def merge_conditions(
    there: Sequence[Mapping[str, Any]], wanted: Sequence[Condition], *, generation: int, now: datetime
) -> list[dict[str, Any]]:
    """`there` with `wanted` set; others stay as they are, and in their order.

    >>> ready = Condition("Ready", "True", "Made", "it is there")
    >>> merge_conditions([], [ready], generation=1, now=datetime(2030, 1, 1, tzinfo=UTC))[0]["lastTransitionTime"]
    '2030-01-01T00:00:00Z'
    """
    merged = {each.get("type", ""): dict(each) for each in there}
    for condition in wanted:
        before = merged.get(condition.type, {})
        # Somebody may have written a condition without it.
        since = before.get("lastTransitionTime") if before.get("status") == condition.status else None
        # A field that a newer Kubernetes may add stays.
        fields = {
            **before,
            "type": condition.type,
            "status": str(condition.status),
            "reason": condition.reason,
            "message": condition.message,
            "lastTransitionTime": since or condition.last_transition_time or render_time(now),
        }
        observed = generation if condition.observed_generation is None else condition.observed_generation
        if observed:
            fields["observedGeneration"] = observed
        merged[condition.type] = fields
    return list(merged.values())


def render_time(moment: datetime) -> str:
    """As Kubernetes writes it, to the second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

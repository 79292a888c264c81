"""Conditions as they stand in the status of an object."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

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

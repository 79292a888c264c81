"""Objects of kinds, as a rig stores them and shows them."""

from __future__ import annotations

from typing import Any

import msgspec

from shardsdk.kinds import Kind, body_of, resource_of
from shardsdk.kube.decoding import codec_of
from shardsdk.protocol.objects import Resource
from shardsdk.testing.memory import Object


def body_given(thing: Kind) -> tuple[Resource, Object]:
    """An object as one begins with it: its resource and its body."""
    return resource_of(thing), body_of(thing)


def resource_named(kind: Resource | type[Kind]) -> Resource:
    """Where objects of a kind are."""
    return kind if isinstance(kind, Resource) else resource_of(kind)


def shown_as(kind: Resource | type[Kind], thing: Object) -> Any:
    """An object as it is stored, or as one of a kind."""
    return thing if isinstance(kind, Resource) else codec_of(kind).read(msgspec.json.encode(thing))

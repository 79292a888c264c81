"""What tells one object from another, whatever it is decoded to."""

from __future__ import annotations

from types import NoneType
from typing import Final, NamedTuple

from shardsdk.kinds.base import Kind
from shardsdk.protocol.objects import PartialObject, SlimMeta

#: Of these a message shows what they are.
_PLAIN: Final = (NoneType, bool, int, float)


class Identity(NamedTuple):
    """What tells one object, and one version of it, from another."""

    namespace: str
    name: str
    uid: str
    resource_version: str


def identify(thing: object) -> Identity:
    """Read identity from a struct, a dict or a typed model; missing parts are empty."""
    found = getattr(thing, "metadata", None)
    if isinstance(found, SlimMeta):
        return Identity(found.namespace, found.name, found.uid, found.resource_version)
    if isinstance(thing, dict):
        entries = thing.get("metadata") or {}
        return Identity(
            entries.get("namespace") or "",
            entries.get("name") or "",
            entries.get("uid") or "",
            entries.get("resourceVersion") or "",
        )
    return Identity(
        getattr(found, "namespace", None) or "",
        getattr(found, "name", None) or "",
        getattr(found, "uid", None) or "",
        getattr(found, "resource_version", None) or "",
    )


def describe_given(thing: object) -> str:
    """What a function of the user's has given, for messages: its type, and which object; never what is in it.

    Messages come into Events, logs and answers, and what was given may be a Secret, or a text out of one.
    """
    if type(thing) in _PLAIN:
        return repr(thing)
    if isinstance(thing, type):
        return f"the class {thing.__qualname__}"
    called = type(thing).__qualname__
    text = f"{'an' if called[0] in 'AEIOUaeiou' else 'a'} {called}"
    if not isinstance(thing, PartialObject | Kind):
        return text
    who = identify(thing)
    return f"{text} ({f'{who.namespace}/' if who.namespace else ''}{who.name})" if who.name else text

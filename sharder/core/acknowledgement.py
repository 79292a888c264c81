"""Which write is a shard's acknowledgement of a drain.

Does: compare an object before and after an update.  An acknowledgement takes off
the shard label and the drain label, and changes nothing else; so says the
protocol, and so a manifest that is put in the object's place is told from it: it
has neither `uid` nor `creationTimestamp` nor what others have written.

Annotations may come and change, not go: who admits objects before us (mutating
webhooks and policies of others) may note in each write when or by whom it was
made, and an acknowledgement that never counts would leave its object draining
for ever.  What they change once, labels and fields, costs one attempt more: the
next one finds it there.

Refuses: to tell a shard from others by name.  Who takes off both labels alone is
believed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from shardsdk.protocol.labels import RingLabels

#: What the API server changes by itself in any write.
_SERVERS_OWN: Final = frozenset({"managedFields", "resourceVersion", "generation"})
_Fields = Mapping[str, msgspec.Raw]
_ABSENT: Final = msgspec.Raw(b"null")


class _Request(msgspec.Struct, frozen=True, rename="camel"):
    object: dict[str, msgspec.Raw] = {}
    old_object: dict[str, msgspec.Raw] = {}


class _Review(msgspec.Struct, frozen=True):
    request: _Request


_reviews = msgspec.json.Decoder(_Review)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


def is_acknowledgement(review: bytes, labels: RingLabels) -> bool:
    """Whether the update under review takes off both labels of the ring and changes nothing else; never raises."""
    try:
        request = _reviews.decode(review).request
        return _lets_go(request.old_object, request.object, labels)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def _lets_go(old: _Fields, new: _Fields, labels: RingLabels) -> bool:
    if not all(_same(old, new, name) for name in _names(old, new) - {"metadata"}):
        return False
    before, after = _within(old, "metadata"), _within(new, "metadata")
    judged = _names(before, after) - _SERVERS_OWN - {"labels", "annotations"}
    if not all(_same(before, after, name) for name in judged):
        return False
    noted, noted_after = _within(before, "annotations"), _within(after, "annotations")
    if not noted.keys() <= noted_after.keys():
        return False
    worn, left = _within(before, "labels"), _within(after, "labels")
    removed = {labels.shard, labels.drain}
    return (
        removed <= worn.keys()
        and not removed & left.keys()
        and all(_same(worn, left, name) for name in _names(worn, left) - removed)
    )


def _names(*of: Iterable[str]) -> set[str]:
    return {name for each in of for name in each}


def _within(fields: _Fields, name: str) -> _Fields:
    raw = fields.get(name, _ABSENT)
    return {} if bytes(raw) == b"null" else _fields.decode(raw)


def _same(old: _Fields, new: _Fields, name: str) -> bool:
    """Whether a field has one value in both; API servers write equal values alike, so bytes mostly tell."""
    before, after = old.get(name, _ABSENT), new.get(name, _ABSENT)
    return bytes(before) == bytes(after) or _value(before) == _value(after)


def _value(raw: msgspec.Raw) -> Any:
    return msgspec.json.decode(raw)

"""What objects are decoded to, looked at when it is declared.

A model has to show the metadata that objects are told apart by; without it all
objects would look like one without a name, and none like a shard's.  That is found
out on an object made up for it.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final, get_origin, get_type_hints, is_typeddict

import msgspec

from shardsdk.errors import ConfigurationError
from shardsdk.kube.decoding import build_model, metadata_of
from shardsdk.protocol.objects import Resource

#: Metadata with a value in each field that a controller, its queue or its guard reads.
_SAMPLE: Final[dict[str, Any]] = {
    "name": "a",
    "namespace": "b",
    "uid": "c",
    "resourceVersion": "1",
    "generation": 1,
    "creationTimestamp": "2026-01-31T12:00:00Z",
    "deletionTimestamp": "2026-01-31T12:00:00Z",
    "labels": {"a": "b"},
    "annotations": {"a": "b"},
    "ownerReferences": [{"apiVersion": "v1", "kind": "Secret", "name": "a", "uid": "d", "controller": True}],
    "finalizers": ["example.com/a"],
}
_NEEDED: Final = (
    *("name", "namespace", "uid", "resource_version", "generation", "deletion_timestamp"),
    *("labels", "annotations", "owner_references", "finalizers"),
)


def check_model(model: Any, resource: Resource) -> None:
    """Raises: ConfigurationError when objects of `resource`, decoded to `model`, would not show their metadata."""
    try:
        thing = _decode_sample(model, resource)
    except Exception as error:  # by whatever a model of the user's is made of
        raise _refusal(model, resource, f"cannot be decoded to ({type(error).__name__}: {error})") from error
    if thing is None:
        return
    meta = metadata_of(thing)
    if lost := [name for name in _NEEDED if not getattr(meta, name)]:
        known = isinstance(thing, dict) or getattr(thing, "metadata", None) is not None
        why = f"does not show {', '.join(lost)} of an object" if known else "has no field `metadata`"
        raise _refusal(model, resource, why)


def _refusal(model: Any, resource: Resource, why: str) -> ConfigurationError:
    name = getattr(model, "__qualname__", repr(model))
    return ConfigurationError(
        f"{name}, the model of {resource.group_resource}, {why}: write `metadata: ObjectMeta` in a msgspec.Struct, a"
        " dataclass or a pydantic model (`from shardsdk import ObjectMeta`), or use dict"
    )


def _decode_sample(model: Any, resource: Resource) -> Any:
    """An object with the sample's metadata; `None`: it takes more than metadata to make one, and that is not known."""
    whole = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": _SAMPLE}
    try:
        return msgspec.convert(whole, model, dec_hook=build_model)
    except msgspec.ValidationError:
        pass  # it needs a spec, say
    hints = get_type_hints(get_origin(model) or model)
    if "metadata" not in hints:
        return None if hasattr(model, "from_dict") else SimpleNamespace()
    try:
        shown = {"metadata": msgspec.convert(_SAMPLE, hints["metadata"], dec_hook=build_model)}
    except msgspec.ValidationError:
        return None
    return shown if is_typeddict(model) else SimpleNamespace(**shown)

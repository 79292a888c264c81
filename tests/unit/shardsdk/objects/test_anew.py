"""What a reconcile may still write on, though its version is another one by now."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from shardsdk.objects.anew import is_still
from shardsdk.protocol.objects import ObjectMeta

KNOWN = ObjectMeta("home", "default", uid="uid-1", resource_version="3", generation=2, labels={"class": "ours"})


def still(known: ObjectMeta, **otherwise: Any) -> bool:
    context: Any = SimpleNamespace(metadata=known)
    return is_still(context, replace(known, **{"resource_version": "4", **otherwise}))


def test_annotations_and_finalizers_make_nothing_else_of_it() -> None:
    assert still(KNOWN, annotations={"beat": "1"}, finalizers=["example.com/theirs"])
    assert still(replace(KNOWN, labels=None), labels={})


@pytest.mark.parametrize(
    "otherwise", [{"uid": "uid-2"}, {"generation": 3}, {"labels": {"class": "theirs"}}, {"labels": None}]
)
def test_of_another_one_another_spec_or_other_labels_it_says_no(otherwise: dict[str, Any]) -> None:
    """Such as one that was deleted and created anew under its name, which is in its first generation as well."""
    assert not still(KNOWN, **otherwise)


def test_without_generations_nothing_tells() -> None:
    assert not still(replace(KNOWN, generation=0))

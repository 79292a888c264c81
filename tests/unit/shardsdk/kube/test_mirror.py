"""What a list changes in a store that has the object already."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from shardsdk.kube.api import WatchEvent, WatchKind
from shardsdk.kube.mirror import Listing, Mirror
from shardsdk.kube.store import Store
from shardsdk.protocol.objects import ObjectMeta


@dataclass
class Compared:
    metadata: ObjectMeta
    data: str = ""


@dataclass(eq=False)
class Identical(Compared):
    pass


class Raising(Compared):
    def __eq__(self, other: object) -> bool:
        raise ValueError("of a user's own")

    __hash__ = None  # type: ignore[assignment]


class Mirrored:
    """A mirror, and what it has told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.mirror: Mirror[Compared] = Mirror(
            "test", Store(), keep=None, transform=None, handler=lambda delta: self.told.append(delta.kind.name)
        )

    def show(self, thing: Compared, *, listed: bool) -> None:
        kind = WatchKind.ADDED if listed else WatchKind.MODIFIED
        event = WatchEvent(kind, thing, thing.metadata.resource_version)
        self.mirror.apply(event, Listing(1) if listed else None)


def meta(version: str) -> ObjectMeta:
    return ObjectMeta(name="a", namespace="default", uid="u", resource_version=version)


@pytest.mark.parametrize(("listed", "told"), [(True, ["ADDED", "MODIFIED"]), (False, ["ADDED"])])
def test_a_list_that_says_something_else_in_a_known_version_is_believed(listed: bool, told: list[str]) -> None:
    """A store that came back from a backup has given the version twice; a watch goes by versions alone."""
    mirrored = Mirrored()
    mirrored.show(Compared(meta("7"), "old"), listed=True)
    mirrored.show(Compared(meta("7"), "new"), listed=listed)
    assert mirrored.told == told
    found = mirrored.mirror.store.get("default", "a")
    assert found is not None
    assert found.data == ("new" if listed else "old")


@pytest.mark.parametrize("kind", [Compared, Identical, Raising])
def test_a_list_that_says_the_same_again_is_no_news(kind: type[Compared]) -> None:
    mirrored = Mirrored()
    mirrored.show(kind(meta("7"), "old"), listed=True)
    mirrored.show(kind(meta("7"), "old"), listed=True)
    assert mirrored.told == ["ADDED"]

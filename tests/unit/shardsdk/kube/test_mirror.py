"""What a list and what news change in a store that has an object of that name already."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from shardsdk.kube.api import Unfit, WatchEvent, WatchKind
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

    def hear(self, kind: WatchKind, metadata: ObjectMeta, *, unfit: bool = False, listed: bool = False) -> None:
        """One event; `unfit`: of an object that cannot be shown."""
        gone = kind is WatchKind.DELETED
        event: WatchEvent[Compared] = (
            WatchEvent(WatchKind.BOOKMARK, None, metadata.resource_version, unfit=Unfit(metadata, "odd", gone=gone))
            if unfit
            else WatchEvent(kind, Compared(metadata), metadata.resource_version)
        )
        self.mirror.apply(event, Listing(1) if listed else None)

    @property
    def known(self) -> list[str]:
        """The uids of what is there, shown or not."""
        shown = [thing.metadata.uid for thing in self.mirror.store]
        return shown + [unfit.metadata.uid for unfit in self.mirror.unfit.values()]

    def show(self, thing: Compared, *, listed: bool) -> None:
        kind = WatchKind.ADDED if listed else WatchKind.MODIFIED
        event = WatchEvent(kind, thing, thing.metadata.resource_version)
        self.mirror.apply(event, Listing(1) if listed else None)


def meta(version: str, uid: str = "u") -> ObjectMeta:
    return ObjectMeta(name="a", namespace="default", uid=uid, resource_version=version)


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


@pytest.mark.parametrize("listed_unfit", [False, True])
@pytest.mark.parametrize("heard_unfit", [False, True])
@pytest.mark.parametrize("kind", [WatchKind.ADDED, WatchKind.MODIFIED, WatchKind.DELETED])
def test_news_of_an_object_that_ended_before_the_next_of_its_name_was_listed_is_past(
    kind: WatchKind, heard_unfit: bool, listed_unfit: bool
) -> None:
    """A list beside the watch is ahead of it; what was made again would be gone for good, since nothing lists anew."""
    mirrored = Mirrored()
    mirrored.hear(WatchKind.ADDED, meta("12", "new"), unfit=listed_unfit, listed=True)
    before = list(mirrored.told)
    mirrored.hear(kind, meta("11", "old"), unfit=heard_unfit)
    assert mirrored.known == ["new"]
    assert mirrored.told == before


@pytest.mark.parametrize("version", ["13", "of another kind"])
def test_news_of_the_next_object_of_a_name_ends_the_one_before(version: str) -> None:
    mirrored = Mirrored()
    mirrored.hear(WatchKind.ADDED, meta("12", "old"))
    mirrored.hear(WatchKind.ADDED, meta(version, "new"))
    assert mirrored.known == ["new"]
    assert mirrored.told == ["ADDED", "DELETED", "ADDED"]


def test_the_end_of_an_object_is_believed_whatever_its_version() -> None:
    """A store that came back from a backup goes through its versions again."""
    mirrored = Mirrored()
    mirrored.hear(WatchKind.ADDED, meta("12"))
    mirrored.hear(WatchKind.DELETED, meta("11"))
    assert mirrored.known == []

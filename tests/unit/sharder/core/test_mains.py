"""What a shard reconciles as main counts a while longer than it is there."""

from __future__ import annotations

from typing import Final

from sharder.core.mains import AWAY_SECONDS, Mains
from sharder.core.membership import Membership
from shardsdk.protocol.objects import GroupResource

SECRETS: Final = GroupResource("", "secrets")
PODS: Final = GroupResource("", "pods")
NOBODY: Final = Membership()
SAYING: Final = Membership(available=frozenset("ab"), as_main=frozenset({(SECRETS, "a"), (SECRETS, "b"), (PODS, "b")}))


def seen(*memberships: tuple[float, Membership]) -> Mains:
    mains = Mains()
    for now, membership in memberships:
        mains.see(membership, now)
    return mains


def test_it_counts_of_its_resource_for_as_long_as_it_is_said() -> None:
    mains = seen((0, SAYING))
    assert (mains.shards(SECRETS, 1e6), mains.shards(PODS, 1e6)) == (("a", "b"), ("b",))
    assert mains.shards(GroupResource("apps", "pods"), 0) == ()


def test_whoever_has_gone_is_waited_for_from_then_on_and_not_from_each_look() -> None:
    mains = seen((0, SAYING), (50, NOBODY), (60, NOBODY))
    assert mains.shards(SECRETS, 50 + AWAY_SECONDS - 1) == ("a", "b")
    assert mains.shards(SECRETS, 50 + AWAY_SECONDS) == ()


def test_whoever_is_back_without_saying_it_is_not_even_where_it_gets_nothing() -> None:
    assert seen((0, SAYING), (1, Membership(available=frozenset("b")))).shards(SECRETS, 2) == ("a",)
    for held in ("available", "ambiguous", "unusable", "mixed", "overlong"):
        back = Membership(**{held: frozenset("a")})  # type: ignore[arg-type]
        assert seen((0, SAYING), (1, NOBODY), (2, back), (3, NOBODY)).shards(SECRETS, 4) == ("b",)


def test_whoever_comes_back_and_says_it_is_there() -> None:
    mains = seen((0, SAYING), (1, NOBODY), (2, SAYING))
    assert mains.shards(SECRETS, 1e6) == ("a", "b")


def test_what_counts_no_longer_is_kept_no_longer() -> None:
    assert not seen((0, SAYING), (1, NOBODY), (1 + AWAY_SECONDS, NOBODY))._until

"""A pass keeps what the decision does something about, and nothing of what stays where it is."""

from __future__ import annotations

from typing import Final

import pytest

from sharder.core import decisions, sifting
from sharder.core.decisions import Facts, Outcome
from sharder.core.hashring import HashRing
from sharder.core.membership import Membership
from sharder.core.ringspec import Role
from sharder.core.sifting import Sieve

SHARDS: Final = Membership(
    available=frozenset({"ready", "slow"}),
    ready=frozenset({"ready"}),
    ambiguous=frozenset({"twin"}),
    ring=HashRing({"ready", "slow"}),
)
KEYS: Final = [f"apps/Deployment/default/{number}" for number in range(50)]
#: Belongs on `ready`, belongs on `slow`.
TO_READY: Final = next(key for key in KEYS if SHARDS.target(key) == "ready")
TO_SLOW: Final = next(key for key in KEYS if SHARDS.target(key) == "slow")


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize(
    ("key", "label", "draining", "in_scope", "main", "controlled"),
    [
        (TO_READY, "ready", False, True, False, False),
        (TO_READY, "slow", False, True, True, True),
        (TO_SLOW, "ready", False, True, True, True),  # later, when `slow` renews again
        (TO_READY, "slow", True, True, False, True),  # shards acknowledge for main objects only
        (TO_READY, None, False, True, True, True),
        (TO_READY, None, False, False, False, False),
        (TO_READY, "gone", False, True, False, False),  # an informer shows it
        (TO_READY, "twin", False, True, False, False),
        (TO_READY, "twin", False, False, False, False),
        (TO_READY, "ready", False, False, True, True),
        (TO_READY, "ready", True, False, False, True),
        (TO_READY, "gone", False, False, True, True),
        (None, "slow", False, True, False, False),
        (None, None, False, True, False, False),
        (None, "slow", False, False, False, False),
    ],
)
def test_what_is_kept(
    role: Role, key: str | None, label: str | None, draining: bool, in_scope: bool, main: bool, controlled: bool
) -> None:
    sieve = Sieve(role, SHARDS, removed=False)
    kept = sieve.keeps(key, label, draining=draining, in_scope=in_scope)
    assert kept is (main if role is Role.MAIN else controlled)


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("key", [TO_READY, None])
def test_of_a_resource_that_was_removed_all_is_kept_that_has_a_shard(role: Role, key: str | None) -> None:
    sieve = Sieve(role, SHARDS, removed=True)
    assert sieve.keeps(key, "ready", draining=False, in_scope=True)
    assert sieve.keeps(key, "gone", draining=False, in_scope=True)
    assert not sieve.keeps(key, None, draining=False, in_scope=True)
    assert sieve.keeps(key, "ready", draining=True, in_scope=True) is (role is Role.CONTROLLED)


def test_of_what_is_kept_back_only_what_leaves_the_ring_or_has_no_shard_is_kept() -> None:
    sieve = Sieve(Role.MAIN, SHARDS, removed=False, kept_back=True)
    assert not sieve.keeps(TO_READY, "slow", draining=False, in_scope=True)
    assert not sieve.keeps(TO_SLOW, "ready", draining=False, in_scope=True)
    assert sieve.keeps(TO_READY, "slow", draining=False, in_scope=False)
    assert sieve.keeps(TO_READY, None, draining=False, in_scope=True)


def test_what_is_alike_is_decided_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decided: list[Facts] = []

    def decide(facts: Facts) -> Outcome:
        decided.append(facts)
        return decisions.decide(facts)

    monkeypatch.setattr(sifting, "decide", decide)
    sieve = Sieve(Role.MAIN, SHARDS, removed=False)
    kept = [key for key in KEYS if sieve.keeps(key, "slow", draining=False, in_scope=True)]
    assert kept == [key for key in KEYS if SHARDS.target(key) == "ready"]
    assert len(decided) == 2

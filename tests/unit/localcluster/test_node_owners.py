"""What judges the tests with real pods sees what is wrong."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest

from shardsdk.protocol.labels import SHARDER_HOLDER, parse_ring_name
from tests.integration.chronicle import LEASES, Version
from tests.node.owners import SECRETS, View, checksum, judge, taken_from_the_living

RING = parse_ring_name("one")


def view() -> View:
    """Two shards, and an object on each."""
    secrets: list[dict[str, Any]] = [
        {
            "metadata": {"name": f"s-{shard}", "labels": {RING.shard: shard}},
            "data": {"value": base64.b64encode(shard.encode()).decode()},
        }
        for shard in ("a", "b")
    ]
    children = [
        {
            "metadata": {
                "name": f"{secret['metadata']['name']}-checksum",
                "labels": dict(secret["metadata"]["labels"]),
            },
            "data": {"sha256": checksum(secret)},
        }
        for secret in secrets
    ]
    leases = [{"metadata": {"name": shard}, "spec": {"holderIdentity": shard}} for shard in ("a", "b")]
    conditions = [{"type": name, "status": "True"} for name in ("Ready", "Settled")]
    return View(["a", "b"], leases, {"status": {"conditions": conditions}}, secrets, children)


def test_one_owner_each_is_right() -> None:
    owners, wrong = judge(view(), RING, 2)
    assert wrong == []
    assert owners == {"a": 1, "b": 1}


def unassign(seen: View) -> None:
    del seen.secrets[0]["metadata"]["labels"][RING.shard]


def strand(seen: View) -> None:
    seen.secrets[0]["metadata"]["labels"][RING.shard] = "gone"


def drain(seen: View) -> None:
    seen.secrets[0]["metadata"]["labels"][RING.drain] = "true"


def leave_child_behind(seen: View) -> None:
    seen.children[0]["metadata"]["labels"][RING.shard] = "b"


def forget_change(seen: View) -> None:
    seen.secrets[0]["data"]["value"] = base64.b64encode(b"new").decode()


def lose_child(seen: View) -> None:
    del seen.children[0]


def lose_lease(seen: View) -> None:
    seen.leases[0]["spec"]["holderIdentity"] = SHARDER_HOLDER


def lose_pod(seen: View) -> None:
    seen.ready.remove("a")


def unsettle(seen: View) -> None:
    seen.ring["status"]["conditions"][1]["status"] = "False"


@pytest.mark.parametrize(
    "spoil",
    [unassign, strand, drain, leave_child_behind, forget_change, lose_child, lose_lease, lose_pod, unsettle],
)
def test_what_is_wrong_is_seen(spoil: Callable[[View], None]) -> None:
    seen = view()
    spoil(seen)
    assert judge(seen, RING, 2)[1]


def test_another_number_of_shards_is_seen() -> None:
    assert judge(view(), RING, 3)[1]


def secret(at: int, shard: str | None, *, draining: bool = False) -> Version:
    carried = {RING.shard: shard} if shard else {}
    labels = carried | ({RING.drain: "true"} if draining else {})
    return Version(at, SECRETS, False, {"metadata": {"name": "s", "labels": labels}}, RING)


def lease(at: int, holder: str) -> Version:
    body: dict[str, Any] = {"metadata": {"name": "a"}, "spec": {"holderIdentity": holder}}
    return Version(at, LEASES, False, body, RING)


@pytest.mark.parametrize(
    ("before", "after", "held", "wrong"),
    [
        (secret(2, "a"), secret(5, "b"), [lease(1, "a")], True),
        (secret(2, "a"), secret(5, None), [lease(1, "a")], True),
        (secret(2, "a", draining=True), secret(5, None), [lease(1, "a")], False),
        (secret(2, "a"), secret(5, "b"), [lease(1, "a"), lease(4, SHARDER_HOLDER)], False),
        (secret(2, "a"), secret(5, "b"), [lease(1, "a"), lease(6, SHARDER_HOLDER)], True),
        (secret(2, "a"), secret(5, "a"), [lease(1, "a")], False),
        (secret(2, None), secret(5, "b"), [], False),
    ],
)
def test_objects_taken_from_the_living_are_seen(
    before: Version, after: Version, held: list[Version], wrong: bool
) -> None:
    assert bool(taken_from_the_living([(before, after)], lambda _: held)) == wrong

"""What a ring lists no more has its labels until the sharder has taken them off: its role keeps that for as long."""

from __future__ import annotations

import pytest

from tests.permissions import Permission, read_permissions
from tests.printed_manifests import complaint, folder, of_kind, printed, write

__all__ = ["folder"]  # applies to all tests of this file


def test_what_was_on_the_ring_is_in_the_sharders_role_and_nowhere_else(capsys: pytest.CaptureFixture[str]) -> None:
    write("sharded=True")
    before = printed(capsys=capsys)
    after = printed("--former", "jobs.batch,pods", "--former", "configmaps", capsys=capsys)
    assert of_kind(after, "ClusterRing") == of_kind(before, "ClusterRing")
    was, has = read_permissions(before), read_permissions(after)
    assert has["sharding-system/sharder"] - was["sharding-system/sharder"] == {
        Permission(resource, verb, "", "") for resource in ("jobs.batch", "pods") for verb in ("list", "watch", "patch")
    }
    assert has["default/sites"] == was["default/sites"]


@pytest.mark.parametrize(
    ("operator", "further", "says"),
    [
        ("", [], "--former is for a ring that labels objects; leave it away"),
        ("sharded=True", ["--hash-by=Namespace"], "--former is for a ring that labels objects; leave it away"),
        ("sharded=True", ["--former", "Job"], "'Job' is no resource; write the plural"),
    ],
)
def test_what_has_no_labels_to_lose_is_refused(
    operator: str, further: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(operator)
    said = complaint("manifests", "sites.py", "--image=i:1", "--former", "pods", *further, capsys=capsys)
    assert says in said

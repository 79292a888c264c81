"""`shardsdk manifests --hash-by` prints a ring that assigns by ranges, and what that takes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from shardsdk.cli import main
from tests.permissions import Permission, read_permissions
from tests.printed_manifests import LEASES, complaint, folder, of_kind, printed, write

__all__ = ["folder"]  # applies to all tests of this file


def test_of_a_ring_by_ranges_the_sharder_may_touch_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    write("sharded=True")
    made = printed("-n", "team", "--hash-by", "Namespace", capsys=capsys)
    spec = of_kind(made, "ClusterRing")["spec"]
    assert (spec["assignment"], spec["hashBy"]) == ("Ranges", "Namespace")
    granted = read_permissions(made)
    assert granted.keys() == {"team/sites"}, "the sharder needs no right of its own"
    assert granted["team/sites"] >= {
        Permission("ringassignments.sharding.timebertt.dev", verb, "", "sites") for verb in ("get", "list", "watch")
    }
    assert granted["team/sites"] >= LEASES | {Permission("leases.coordination.k8s.io", "list", "team", "")}


def test_a_chart_for_a_ring_by_ranges_asks_for_no_sharder(capsys: pytest.CaptureFixture[str]) -> None:
    write("sharded=True")
    arguments = ("manifests", "sites.py", "--image", "registry.example.com/sites:1", "--helm", "chart")
    assert main((*arguments, "--hash-by", "Namespace")) == 0
    assert "sharder" not in yaml.safe_load(Path("chart/values.yaml").read_text())
    (ring,) = yaml.safe_load_all(Path("chart/templates/ring.yaml").read_text())
    assert ring["spec"]["hashBy"] == "Namespace"


@pytest.mark.parametrize(
    ("arguments", "by", "says"),
    [
        ("", "UID", "operator 'sites' is not sharded; --hash-by is for the ring of one that is"),
        ("sharded=True", "UID", "with --hash-by UID Site and what it owns lie apart: write --hash-by Namespace"),
    ],
)
def test_what_a_ring_cannot_hash_is_refused(
    arguments: str, by: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(arguments)
    assert says in complaint("manifests", "sites.py", "--image", "i:1", "--hash-by", by, capsys=capsys)


def test_what_is_in_no_namespace_is_hashed_by_its_uid(capsys: pytest.CaptureFixture[str]) -> None:
    write("sharded=True")
    text = (
        Path("sites.py")
        .read_text()
        .replace(", owns=[ConfigMap]", "")
        .replace('version="v1"', 'version="v1", scope="Cluster"')
    )
    Path("sites.py").write_text(text)
    command = ("manifests", "sites.py", "--image", "i:1", "--hash-by")
    assert "Site is in no namespace: write --hash-by UID" in complaint(*command, "Namespace", capsys=capsys)
    assert of_kind(printed("--hash-by", "UID", capsys=capsys), "ClusterRing")["spec"]["hashBy"] == "UID"

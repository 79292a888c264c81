"""The same operator in two namespaces: what `shardsdk manifests` prints for the one takes nothing from the other."""

from __future__ import annotations

import pytest

from shardsdk.cli import main
from tests.printed_manifests import folder, printed, write

__all__ = ["folder"]  # applies to all tests of this file


@pytest.mark.parametrize("declared", ["", "sharded=True"])
def test_what_two_namespaces_have_under_one_name_is_the_same_in_both(
    declared: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever applies the second takes nothing from the first: its binding would be for the other account then."""
    write(declared)
    blue, green = (
        {
            (each["kind"], each["metadata"]["name"]): each
            for each in printed("-n", namespace, capsys=capsys)
            if "namespace" not in each["metadata"]
        }
        for namespace in ("blue", "green")
    )
    shared = blue.keys() & green.keys()
    assert ("CustomResourceDefinition", "sites.example.com") in shared
    assert not [each for each in shared if blue[each] != green[each]]


@pytest.mark.parametrize("more", [("--image", "registry.example.com/sites:1"), ("--ring-only",)])
def test_that_its_ring_covers_some_namespaces_for_all_its_shards_is_said_beside(
    more: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Applied for a second namespace, it would take the first one's objects off the ring."""
    write("sharded=True, ring='spread'")
    assert main(["manifests", "sites.py", "--watch-namespace", "shop", "--watch-namespace", "pages", *more]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert "ring 'spread' covers pages, shop and no other namespace" in line
    assert "Operator(…, ring=…)" in line


@pytest.mark.parametrize(
    ("declared", "where"),
    [("", ("--watch-namespace", "pages")), ("sharded=True", ()), ("sharded=True, watch_namespace='pages'", ())],
)
def test_where_no_option_limits_a_ring_nothing_is_said(
    declared: str, where: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    write(declared)
    assert main(["manifests", "sites.py", "--image", "registry.example.com/sites:1", *where]) == 0
    assert not capsys.readouterr().err

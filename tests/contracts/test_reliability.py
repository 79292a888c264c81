"""What is guaranteed was tried: each claim names faults, each fault has a row, and rows are what a run observed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.chaos.faults import FAULTS, NOT_BY_RANGES, PLAYED, SELECTED
from tests.chaos.play import Row
from tests.chaos.results import load, render_row
from tests.walking import section_of

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text()
#: One bullet of the README, its further lines indented.
CLAIMS = re.findall(r"^- .*\n(?:  .*\n)*", section_of((ROOT / "README.md").read_text(), "## Guarantees"), re.MULTILINE)


def test_the_claims_are_found() -> None:
    assert len(CLAIMS) == 5


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim[2:30])
def test_each_claim_names_rows_that_there_are(claim: str) -> None:
    named = re.findall(r"\[([\w-]+)\]\(docs/reliability\.md#([\w-]+)\)", claim)
    assert named
    assert [name for name, anchor in named if name != anchor or name not in FAULTS] == []


def test_each_fault_has_a_row() -> None:
    rows = [*FAULTS, *(f"ranges-{name}" for name in PLAYED["Ranges"])]
    assert re.findall(r'^\| <a id="([\w-]+)">', PAGE, re.MULTILINE) == rows


def test_what_is_not_played_by_ranges_is_said() -> None:
    assert FAULTS.keys() - PLAYED["Ranges"].keys() == NOT_BY_RANGES.keys()


def test_what_is_played_in_each_run_of_the_tests_is_in_the_list() -> None:
    assert set(SELECTED) <= FAULTS.keys()


def test_a_row_that_does_not_hold_says_so() -> None:
    row = Row("shard-killed", {"late write": 2}, (), 4, 1, 99.0, 25.0, True, 9, 9, 40, 15, 60.0, "2026-01-01", 7)
    line = render_row("shard-killed", row)
    assert "2 × late write" in line
    assert "**1 without need**" in line
    assert "99.0 s (≤ 25)" in line
    assert "**does not hold**" in line


def test_a_row_that_only_took_too_long_says_so() -> None:
    row = Row("shard-killed", {}, (), 4, 0, 99.0, 25.0, True, 9, 9, 40, 15, 60.0, "2026-01-01", 7)
    assert "safe, **late**" in render_row("shard-killed", row)


@pytest.mark.parametrize("assignment", PLAYED)
def test_what_is_kept_can_be_read(assignment: str) -> None:
    assert load(assignment).keys() <= PLAYED[assignment].keys()

"""The list of planted faults: each can be planted where it says, and docs/mutants.md says what found it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutants import __main__ as mutants
from tests.mutants.__main__ import Untried, try_fault
from tests.mutants.fault import Fault
from tests.mutants.faults import FAULTS
from tests.mutants.planting import ROOT, Misplaced, plant, source_of
from tests.mutants.results import PAGE, load, names, render


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_has_its_place_exactly_once_and_leaves_code_that_compiles(name: str) -> None:
    fault = FAULTS[name]
    assert fault.old != fault.new
    assert all((ROOT / each).exists() for each in fault.tests)
    compile(source_of(fault), fault.module, "exec")


def test_a_fault_whose_place_is_gone_is_refused() -> None:
    with pytest.raises(Misplaced, match="0 places"):
        source_of(Fault("no rule", "sharder.core.patches", "what nobody wrote", ""))


def test_a_fault_that_comes_too_late_is_refused() -> None:
    import sharder.core.patches  # noqa: F401

    with pytest.raises(Misplaced, match="loaded already"):
        plant(FAULTS["ASSIGN_ANY_VERSION"])


def test_the_page_has_a_row_for_each_fault_and_no_other() -> None:
    assert re.findall(r"^\| ([A-Z_]+) \|", PAGE.read_text(), re.MULTILINE) == names()
    assert PAGE.read_text() == render(load()), "make mutants prints it"


def test_none_is_missed() -> None:
    assert [name for name, result in load().items() if not result["by"]] == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["RECONCILE_WHILE_DRAINING", "DO_NOT_AWAIT", "ASSIGN_ANY_VERSION"])
def test_a_planted_fault_is_found_by_a_test_that_is_meant_for_it(name: str) -> None:
    found = try_fault(name, seeds=0)["by"]
    assert str(found).startswith(FAULTS[name].tests[0])


@pytest.mark.parametrize("body", ["raise AssertionError", "time.sleep(600)"], ids=["fails", "does not end"])
def test_nothing_is_found_by_a_test_that_does_not_pass_without_the_fault(
    body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine is busy, say, or somebody else has broken what it tests."""
    (tmp_path / "test_it.py").write_text(f"import time\n\n\ndef test_it():\n    {body}\n")
    monkeypatch.setitem(FAULTS, "DO_NOT_AWAIT", replace(FAULTS["DO_NOT_AWAIT"], tests=(str(tmp_path / "test_it.py"),)))
    if "sleep" in body:
        monkeypatch.setattr(mutants, "TEST_SECONDS", 5)
    with pytest.raises(Untried, match="not pass without the fault"):
        try_fault("DO_NOT_AWAIT", seeds=0)

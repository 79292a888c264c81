"""What is installed is under licences that somebody has agreed to, and the list of it is whole."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

LICENCES: dict[str, Any] = runpy.run_path(".ci/licences.py")
LOCK = Path("requirements.txt")


@pytest.mark.parametrize(
    ("expression", "fine"),
    [
        ("MIT", True),
        ("Apache-2.0 OR BSD-3-Clause", True),
        ("GPL-3.0-only OR MIT", True),
        ("MIT AND Python-2.0", True),
        ("MIT AND GPL-3.0-only", False),
        ("GPL-3.0-or-later", False),
        ("UNKNOWN", False),
        ("Proprietary", False),
    ],
)
def test_what_may_be_chosen_counts(expression: str, fine: bool) -> None:
    assert LICENCES["allowed"](expression) is fine


def test_a_distribution_under_another_licence_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text("pytest==1.0\nno-such-distribution==1.0\n")
    assert LICENCES["main"](lock) is False
    LICENCES["ALLOWED"].remove("MIT")
    try:
        assert LICENCES["main"](lock) is True
    finally:
        LICENCES["ALLOWED"].add("MIT")
    assert "pytest is under 'MIT'" in capsys.readouterr().out


def test_everything_that_is_installed_here_says_its_licence() -> None:
    found = {name: LICENCES["licence_of"](name) for name, _ in LICENCES["locked"](LOCK)}
    assert len(found) > 15
    assert sum(said is None for said in found.values()) <= 5, "of other platforms"
    assert "UNKNOWN" not in found.values()


def sbom() -> str:
    command = [sys.executable, ".ci/sbom.py", str(LOCK), "1.2.3"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_bill_of_materials_is_the_lock_and_the_same_each_time() -> None:
    printed = sbom()
    assert printed == sbom()
    made = json.loads(printed)
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.6")
    listed = {(each["name"], each["version"]) for each in made["components"]}
    assert listed == {(re.sub(r"[-_.]+", "-", name).lower(), version) for name, version in LICENCES["locked"](LOCK)}
    hashes = [
        each["content"] for part in made["components"] for file in part["externalReferences"] for each in file["hashes"]
    ]
    assert sorted(hashes) == sorted(re.findall(r"sha256:([0-9a-f]{64})", LOCK.read_text()))
    assert made["dependencies"][0]["dependsOn"] == [each["bom-ref"] for each in made["components"]]

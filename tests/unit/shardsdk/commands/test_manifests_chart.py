"""`shardsdk manifests --helm` writes over what it has written itself, and over nothing else."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from shardsdk.cli import main
from tests.printed_manifests import complaint, folder, write
from tests.sites import write_sites

__all__ = ["folder"]  # applies to all tests of this file

ARGUMENTS = ("manifests", "sites.py", "--image", "registry.example.com/sites:1", "--helm", "chart")


def texts(chart: Path) -> dict[str, bytes]:
    return {str(path.relative_to(chart)): path.read_bytes() for path in chart.rglob("*") if path.is_file()}


@pytest.mark.parametrize("about", ["name: my-platform\nversion: 4.0.0\n", "name: [\n", "- sites\n", ""])
def test_somebody_elses_chart_is_left_alone(about: str, capsys: pytest.CaptureFixture[str]) -> None:
    write()
    Path("chart/templates").mkdir(parents=True)
    Path("chart/Chart.yaml").write_text(about)
    Path("chart/values.yaml").write_text("mine: true\n")
    before = texts(Path("chart"))
    said = complaint(*ARGUMENTS, capsys=capsys)
    assert said.endswith(", not 'sites'; name another folder")
    assert texts(Path("chart")) == before


def test_another_operators_chart_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    write()
    assert main(ARGUMENTS) == 0
    capsys.readouterr()
    before = texts(Path("chart"))
    other = write_sites(Path())
    # Of another length: what was compiled of it within the same second would do else.
    other.write_text(other.read_text().replace('Operator("sites"', 'Operator("others"'))
    sys.modules.pop("sites")
    assert complaint(*ARGUMENTS, capsys=capsys).endswith("holds the chart 'sites', not 'others'; name another folder")
    assert texts(Path("chart")) == before


@pytest.mark.parametrize("name", ["templates/workload.yaml", "crds/sites.example.com.yaml"])
def test_a_file_of_somebodys_own_is_not_written_over(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    write()
    assert main(ARGUMENTS) == 0
    capsys.readouterr()
    Path("chart", name).write_text("# by hand\n")
    before = texts(Path("chart"))
    assert complaint(*ARGUMENTS, capsys=capsys).startswith(
        f"shardsdk: chart/{name} would be written over, and does not"
    )
    assert texts(Path("chart")) == before


def test_a_chart_of_a_version_that_did_not_mark_its_files_is_written_anew_as_the_refusal_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write()
    assert main(ARGUMENTS) == 0
    capsys.readouterr()
    written = texts(Path("chart"))
    for path in Path("chart").rglob("*/*.yaml"):
        path.write_text(path.read_text().partition("\n")[2])
    Path("chart/templates/mine.yaml").write_text("# by hand\n")
    named, _, remedy = (
        complaint(*ARGUMENTS, capsys=capsys).removeprefix("shardsdk: ").partition(" would be written over")
    )
    assert "delete what an older version of it has written" in remedy
    for each in named.split(", "):
        Path(each).unlink()
    assert main(ARGUMENTS) == 0
    assert Path("chart/templates/mine.yaml").exists()
    Path("chart/templates/mine.yaml").unlink()
    assert texts(Path("chart")) == written

"""What `shardsdk manifests` prints for the operator of tests/sites.py."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from shardsdk.cli import main
from tests.permissions import Permission
from tests.sites import write_sites

LEASES = {Permission("leases.coordination.k8s.io", verb, "team", "") for verb in ("get", "create", "patch")}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    path = [*sys.path]
    yield tmp_path
    sys.path[:] = path
    sys.modules.pop("sites", None)


def write(arguments: str = "") -> None:
    write_sites(Path(), arguments)


def printed(*arguments: str, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    assert main(["manifests", "sites.py", "--image", "registry.example.com/sites:1", *arguments]) == 0
    return list(yaml.safe_load_all(capsys.readouterr().out))


def named(documents: list[dict[str, Any]]) -> list[str]:
    return [f"{each['kind']} {each['metadata']['name']}" for each in documents]


def of_kind(documents: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = [each for each in documents if each["kind"] == kind]
    return found


def complaint(*arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    return line

"""What is installed is under licences that somebody has agreed to, has no known hole, and the list of it is whole."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

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


class Osv(BaseHTTPRequestHandler):
    """Answers as OSV does: `left-pad` 1.0 has two holes, the second on a page of its own."""

    asked: ClassVar[list[dict[str, Any]]] = []
    broken: ClassVar[bytes | None] = None

    def do_POST(self) -> None:
        queries = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
        Osv.asked += queries
        results = [self.about(each) for each in queries] if self.path == "/v1/querybatch" else []
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.broken or json.dumps({"results": results}).encode())

    def about(self, query: dict[str, Any]) -> dict[str, Any]:
        if (query["package"], query["version"]) != ({"name": "left-pad", "ecosystem": "PyPI"}, "1.0"):
            return {}
        if "page_token" in query:
            return {"vulns": [{"id": "PYSEC-2"}]}
        return {"vulns": [{"id": "PYSEC-1"}], "next_page_token": "more"}

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def osv(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(Osv, "asked", [])
    with ThreadingHTTPServer(("127.0.0.1", 0), Osv) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def audit(service: str, *arguments: str | Path) -> tuple[int, str, str]:
    command = [sys.executable, ".ci/audit.py", *map(str, arguments)]
    environment = {**os.environ, "OSV_URL": service}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout, done.stderr


def test_known_holes_of_whatever_is_locked_are_named(osv: str, tmp_path: Path) -> None:
    holed = tmp_path / "lock.txt"
    holed.write_text("left-pad==1.0 \\\n    --hash=sha256:0\nright-pad==1.0 ; sys_platform == 'win32'\n")
    code, out, _ = audit(osv, "--if-reachable", LOCK, holed)
    assert code == 1
    assert out == "left-pad 1.0 has PYSEC-1, PYSEC-2 (https://osv.dev/PYSEC-1): `make lock` takes another version\n"
    names = {each["package"]["name"] for each in Osv.asked}
    assert names == {name for name, _ in LICENCES["locked"](LOCK)} | {"left-pad", "right-pad"}
    assert audit(osv, LOCK) == (0, "", "")


@pytest.mark.parametrize("answer", [b"<html>", b"{}", b'{"results": []}', None])
def test_where_nobody_knows_a_check_goes_on_and_an_audit_fails(
    osv: str, answer: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Osv, "broken", answer)
    service = osv if answer is not None else "http://127.0.0.1:1/"
    code, _, said = audit(service, "--if-reachable", LOCK)
    assert code == 0
    assert said.startswith(f"{LOCK}: not audited: {service} ")
    assert audit(service, LOCK)[0] == 1


def test_both_locks_are_audited_by_make() -> None:
    shown = subprocess.run(["make", "-n", "check", "audit"], capture_output=True, text=True, check=True).stdout
    wanted = "python .ci/audit.py {}requirements.txt requirements-dev.txt"
    assert wanted.format("--if-reachable ") in shown
    assert wanted.format("") in shown


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

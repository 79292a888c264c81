"""The image's recipe: locked dependencies, nothing but what runs, nobody special. tests/node builds and runs it."""

from __future__ import annotations

import re
from pathlib import Path

from shardsdk.version import VERSION

DOCKERFILE = Path("Dockerfile").read_text()
STEPS = [line.strip() for line in DOCKERFILE.replace("\\\n", "").splitlines() if line.strip() and line[0] != "#"]
IGNORED = Path(".dockerignore").read_text().splitlines()


def pins(lock: str) -> dict[str, str]:
    """Versions by name, of a lock file."""
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", Path(lock).read_text(), re.MULTILINE))


def test_its_packages_are_locked_as_the_tested_ones_are() -> None:
    locked, tested = pins("requirements.txt"), pins("requirements-dev.txt")

    assert locked.items() <= tested.items()
    assert {"aiohttp", "kubernetes", "uvicorn", "cryptography"} <= locked.keys()
    assert not {"pytest", "mypy", "hatchling"} & locked.keys()
    assert any("--require-hashes" in step for step in STEPS)


def test_it_is_pinned_and_its_base_is_an_argument() -> None:
    bases = [step for step in STEPS if step.startswith("FROM ")]

    assert "ARG BASE=docker.io/library/python:" in DOCKERFILE
    assert re.search(r"ARG BASE=\S+:3\.\d+\.\d+-slim\S*$", DOCKERFILE, re.MULTILINE)
    assert bases[0] == "FROM ${BUILD_BASE} AS build"
    assert bases[1] == "FROM ${BASE} AS runtime"
    assert bases[-1] == "FROM runtime AS sharder", "what is built when nothing else is said"


def test_it_runs_as_nobody_by_number_and_starts_the_command() -> None:
    after = STEPS[STEPS.index("FROM ${BASE} AS runtime") :]

    assert "USER 65532:65532" in after
    assert after[-1] == 'ENTRYPOINT ["/opt/sharder/bin/sharder"]'
    assert not [step for step in after if step.startswith("RUN")], "tools of the build stay in the build"


def test_what_goes_in_is_named_one_by_one() -> None:
    copied = {step.split()[1].rstrip("/") for step in STEPS if step.startswith("COPY ") and "--from" not in step}
    allowed = {line[1:] for line in IGNORED if line.startswith("!")}

    assert IGNORED[1] == "*"
    assert copied == allowed
    assert "**/__pycache__" in IGNORED


def test_it_says_what_it_is() -> None:
    labels = set(re.findall(r"org\.opencontainers\.image\.(\w+)=", DOCKERFILE))

    assert labels == {"title", "description", "licenses", "version", "revision"}
    assert VERSION not in "".join(step for step in STEPS if "LABEL" in step), "the version is an argument"

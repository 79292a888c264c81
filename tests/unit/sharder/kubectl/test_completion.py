"""What a shell offers, by kubectl's protocol for plugins."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from sharder.kubectl import cli, suggestions
from sharder.kubectl.completion import FILES, NO_FILES, main, suggest

ASK: Final = suggestions.ask_cluster


@pytest.fixture(autouse=True)
def cluster(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """A cluster that has two of everything; what it was asked."""
    asked: list[tuple[str, dict[str, Any]]] = []

    async def ask(dest: str, given: Mapping[str, Any], seconds: float) -> list[str]:
        asked.append((dest, dict(given)))
        return [f"{dest}-1", f"{dest}-2"]

    monkeypatch.setattr(suggestions, "ask_cluster", ask)
    return asked


def offered(*words: str) -> list[str]:
    found, _ = suggest(words)
    return [each.partition("\t")[0] for each in found]


def test_what_is_printed_has_the_help_behind_a_tab(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sta"]) == 0
    assert capsys.readouterr().out == ("status\tshards, leases, objects per shard, and what is not in its place\n:4\n")


def test_commands_come_first_with_what_they_do() -> None:
    found, directive = suggest([""])
    assert directive == NO_FILES
    assert "status\tshards, leases, objects per shard, and what is not in its place" in found
    assert offered("sta") == ["status"]


@pytest.mark.parametrize(
    ("words", "suggestions"),
    [
        (["status", ""], ["ring-1", "ring-2"]),
        (["status", "ring-2"], ["ring-2"]),
        (["status", "checksum", ""], []),
        (["status", "-w", ""], ["ring-1", "ring-2"]),
        (["-n", ""], ["namespace-1", "namespace-2"]),
        (["-n", "default", "sta"], ["status"]),
        (["status", "--namespace=namespace-1"], ["--namespace=namespace-1"]),
        (["status", "-o", ""], ["wide", "json", "yaml"]),
        (["status", "--output=y"], ["--output=yaml"]),
        (["status", "--wa"], ["--watch"]),
        (["explain", ""], ["resource-1", "resource-2"]),
        (["explain", "resource-1", "name-2"], ["name-2"]),
        (["status", "--context", ""], ["context-1", "context-2"]),
        (["nonsense", "sta"], ["status"]),
    ],
)
def test_the_word_decides(words: list[str], suggestions: list[str]) -> None:
    assert offered(*words) == suggestions


@pytest.mark.parametrize("words", [["status", "--kubeconfig", ""], ["rbac", "-f", ""]])
def test_files_are_the_shells_business(words: list[str]) -> None:
    assert suggest(words) == ([], FILES)


def test_what_was_typed_before_is_known_to_who_asks_the_cluster(cluster: list[tuple[str, dict[str, Any]]]) -> None:
    suggest(["-n", "here", "explain", "--context=there", "secrets", ""])

    [(dest, given)] = cluster
    assert dest == "name"
    assert {key: value for key, value in given.items() if value is not None} == {
        "namespace": "here",
        "context": "there",
        "resource": "secrets",
    }


@pytest.fixture
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """What asks one in earnest."""
    monkeypatch.setattr(suggestions, "ask_cluster", ASK)


@pytest.mark.usefixtures("no_cluster")
def test_contexts_come_from_the_kubeconfig(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config"
    path.write_text("contexts: [{name: one}, {name: two}]")
    assert main(["--kubeconfig", str(path), "--context", ""]) == 0
    assert capsys.readouterr().out == "one\ntwo\n:4\n"


@pytest.mark.usefixtures("no_cluster")
@pytest.mark.parametrize("content", ["contexts: 5", "- a", ":", "\x00", "{contexts: [{}]}"])
def test_a_broken_kubeconfig_suggests_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str) -> None:
    path = tmp_path / "config"
    path.write_text(content)
    assert main(["--kubeconfig", str(path), "--context", ""]) == 0
    assert main(["--kubeconfig", str(path), "status", ""]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == (":4\n:4\n", "")


@pytest.mark.usefixtures("no_cluster")
def test_a_cluster_that_does_not_answer_suggests_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "config"
    path.write_text(
        "{current-context: c, contexts: [{name: c, context: {cluster: c}}],"
        " clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]}"
    )
    monkeypatch.setattr(cli, "COMPLETION_SECONDS", 0.5)
    assert main(["--kubeconfig", str(path), "status", ""]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == (":4\n", "")

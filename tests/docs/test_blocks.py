"""Every fenced block of the documentation is run, applied or parsed.

Manifests go to a real API server (as a dry run), settings through the parser
that reads them, charts' values through Helm, Python is run, commands are run
against a sharder with a ring (tests/docs/test_commands.py), or as a whole
walk-through (tests/docs/test_tutorial.py, and tests/node/test_tutorial.py on
pods).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kopf
import pytest
import yaml

from docsite.pages import Block, blocks_of, read_pages
from localcluster import ControlPlane
from sharder.config import load_config
from shardsdk.contrib.kopf import KopfShard
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.chart.helm import Helm

#: The SDK's pages have tests of their own.
PAGES = {page: text for page, text in read_pages().items() if not page.startswith("sdk/")}
BLOCKS = [block for page, text in PAGES.items() for block in blocks_of(page, text)]
#: Shown, not run: output, labels, usage.
SHOWN = {"text", ""}
#: Flags of `helm install` and `helm upgrade` that say nothing about manifests.
NOT_OF_TEMPLATE = ("--install", "--create-namespace", "--reset-then-reuse-values", "--wait")


def of(language: str) -> list[Block]:
    return [block for block in BLOCKS if block.language == language]


def test_every_language_is_looked_at() -> None:
    assert {block.language for block in BLOCKS} <= {"yaml", "python", "json", "sh", "promql", "dockerfile", *SHOWN}


@pytest.mark.parametrize("block", of("json"), ids=str)
def test_json_can_be_read(block: Block) -> None:
    assert json.loads(block.text)


@pytest.mark.parametrize("block", of("yaml"), ids=str)
async def test_yaml_is_accepted_by_whoever_reads_it(block: Block, rings: ControlPlane, tmp_path: Path) -> None:
    for document in yaml.safe_load_all(block.text):
        if document.get("kind") == "SharderConfig":
            file = tmp_path / "config.yaml"
            file.write_text(block.text)
            assert not load_config(str(file)).without_effect
        elif "kind" in document:
            await rings.kubectl(
                "create", "--dry-run=server", "--validate=strict", "-f", "-", stdin=json.dumps(document)
            )
        else:
            assert block.file.endswith("values.yaml"), "neither a manifest nor a chart's values"
            assert used_by_helm(block), f"no command uses {block.file}"


@pytest.mark.parametrize("block", [block for block in of("sh") if "helm " in block.text], ids=str)
def test_helm_accepts_the_commands(block: Block, helm: Helm, tmp_path: Path) -> None:
    files = {other.file: other.text for other in BLOCKS if other.page == block.page and other.file}
    for command in block.commands:
        if not command.startswith(("helm install", "helm upgrade")):
            continue
        words = [word for word in command.split()[2:] if word not in NOT_OF_TEMPLATE]
        for number, word in enumerate(words):
            if word in files:
                (tmp_path / word).write_text(files[word])
                words[number] = str(tmp_path / word)
        assert "kind: " in helm.run("template", *words)


@pytest.mark.parametrize("block", [block for block in of("python") if block.page != "tutorial.md"], ids=str)
def test_python_runs(block: Block) -> None:
    """Those that run for long, or are a program, are compiled; wire-contract.md's are compared below."""
    code = compile(block.text, str(block), "exec")
    if not block.file:
        exec(code, {"__name__": "docs"})


@in_virtual_time
async def test_the_kopf_operator_handles_an_object_again_when_it_is_resumed(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    [block] = [block for block in of("python") if block.file == "kopf_shard.py"]
    server, started = MemoryServer(), list[dict[str, Any]]()
    monkeypatch.setattr(KopfShard, "run", lambda _, **operator: started.append(operator))
    monkeypatch.setattr(KopfShard, "api", MemoryApi(server, clock))
    monkeypatch.setattr(KopfShard, "label", lambda *_: None)
    monkeypatch.setattr(kopf, "adopt", lambda *_: None)
    monkeypatch.setattr(kopf, "get_default_registry", kopf.OperatorRegistry)
    program: dict[str, Any] = {"__name__": "__main__"}
    exec(block.text, program)
    assert started == [{"namespaces": ["default"]}]
    for _ in range(2):
        await program["handle"](name="a", namespace="default")
    assert server.find(program["CONFIGMAPS"], "a-seen", "default")


@pytest.fixture(scope="module")
def contract() -> dict[str, Callable[..., Any]]:
    """The functions that the wire contract's page defines."""
    names: dict[str, Any] = {}
    for block in of("python"):
        if block.page == "wire-contract.md":
            exec(block.text, names)
    return names


def test_the_contracts_suffix_agrees_with_the_vectors(contract: dict[str, Callable[..., Any]]) -> None:
    vectors = json.loads(Path("tests/vectors/labels.json").read_text())["labels"]
    assert {vector["ring"]: contract["suffix"](vector["ring"]) for vector in vectors} == {
        vector["ring"]: vector["suffix"] for vector in vectors
    }


def test_the_contracts_hash_agrees_with_the_vectors(contract: dict[str, Callable[..., Any]]) -> None:
    ring = json.loads(Path("tests/vectors/hashring.json").read_text())["rings"][1]
    few = list(ring["owners"])[:10]
    assert {key: contract["owner"](key, ring["shards"]) for key in few} == {key: ring["owners"][key] for key in few}


def used_by_helm(block: Block) -> bool:
    commands = [command for other in BLOCKS if other.page == block.page for command in other.commands]
    return any(command.startswith("helm ") and block.file in command for command in commands)

"""Whatever a configuration file or a manifest holds: what it says, or an error whose problems can be printed."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from sharder.config import API_VERSION, KIND, InvalidConfig, load_config, parse_config, render_reference
from sharder.core.ringspec import RingSpec
from sharder.manifests import read_rings
from shardsdk.errors import ConfigurationError
from tests.fuzz.hostile_values import examples, mutated, texts, values

HEADER = {"apiVersion": API_VERSION, "kind": KIND}
#: Each setting that there is, at its place, so that each parser gets something.
PATHS = [path.split(".") for path in re.findall(r"^\| `([^`]+)`", render_reference(), re.MULTILINE)]


def placed(settings_made: list[tuple[list[str], Any]]) -> dict[str, Any]:
    document: dict[str, Any] = dict(HEADER)
    for path, value in settings_made:
        node = document
        for name in path[:-1]:
            inner = node.get(name)
            node[name] = inner if isinstance(inner, dict) else {}
            node = node[name]
        node[path[-1]] = value
    return document


plausible = st.sampled_from(
    [
        "15s",
        "1h",
        "-1s",
        "0",
        ":8080",
        "[::1]:9443",
        "https://a/b",
        "default",
        9443,
        0,
        True,
        {"matchLabels": {}},
    ]
)
rings = st.fixed_dictionaries(
    {"kind": st.just("ClusterRing"), "metadata": st.just({"name": "example"})},
    optional={"spec": st.just({"resources": [{"resource": "secrets"}]}), "items": values},
)
configurations = st.lists(st.tuples(st.sampled_from(PATHS), plausible | values), max_size=6).map(placed)
#: YAML's own traps: anchors, tags, keys that are no strings, several documents, what never closes.
yaml_pieces = st.lists(
    st.sampled_from(
        ["&a ", "*a", "- ", "? ", ": ", "{", "}", "[", "]", "\n", "  ", "!!binary x", "!!python/object:os.system x",
         "!!timestamp 2030-99-99", "!!int 0x", "!!float .", "---\n", "...\n", "<<: ", "'", '"', "|", ">", "%YAML 9.9\n",
         "@", "`", "\t", "#", "a: b\n", "1: 2\n", "? [a]\n: b\n", "kind: SharderConfig\n", "1_0:60", "\x07", "\x85"]
    )
    | texts,
    max_size=14,
).map("".join)  # fmt: skip


def judge(text: str) -> None:
    try:
        loaded = parse_config(text, source="a file")
    except InvalidConfig as error:
        refusal = error
    else:
        assert all(math.isfinite(value) for value in seconds_of(loaded.config))
        return
    assert refusal.problems
    assert all(problem.message and problem.remedy for problem in refusal.problems)
    assert str(refusal).startswith("a file: ")
    # Of a length that somebody may want to read.
    assert len(str(refusal)) < 100_000


def seconds_of(config: Any) -> list[float]:
    election = config.leader_election
    return [election.lease_duration_seconds, election.renew_deadline_seconds, election.retry_period_seconds]


@given(mutated(configurations), st.sampled_from(["yaml", "json"]))
@examples(250)
def test_settings_of_any_value_make_a_configuration_or_problems(document: Any, form: str) -> None:
    judge(json.dumps(document) if form == "json" else yaml.safe_dump(document))


@given(yaml_pieces | st.text(max_size=60))
@examples(250)
@example("a: " + "[" * 5000)
@example("{" * 5000)
@example('{"a": ' * 5000)
@example("a: 1" + "0" * 5000)
@example('{"apiVersion": 1' + "0" * 5000 + "}")
@example("? {a: b}\n: c")
@example("a: &a [*a]")
@example("!!timestamp 2030-99-99")
def test_any_text_makes_a_configuration_or_problems(text: str) -> None:
    judge(text)


@given(st.binary(max_size=60))
@examples(60)
def test_any_file_makes_a_configuration_or_a_configuration_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "sharder.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError):
        load_config(str(path))


def test_a_file_that_expands_to_gigabytes_is_refused_at_once() -> None:
    bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
    )
    with pytest.raises(InvalidConfig):
        parse_config(f"{bomb}apiVersion: *i\nkind: *i\ncontroller: {{sharder: {{syncPeriod: *i}}}}\n")


def read(text: str, path: Path) -> list[RingSpec] | ConfigurationError:
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    try:
        return [spec for spec, _ in read_rings(str(path))]
    except ConfigurationError as error:
        return error


@given(yaml_pieces | st.text(max_size=60) | mutated(rings).map(yaml.safe_dump))
@examples(150)
@example("&a {items: [*a]}")
@example("[" * 5000)
@example("!!int ''")
@example("!!timestamp x")
def test_any_manifest_names_rings_or_is_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    found = read(text, tmp_path_factory.getbasetemp() / "ring.yaml")
    assert found
    assert isinstance(found, list) or str(found)

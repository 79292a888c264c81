"""Label selectors match what the API server's match."""

from __future__ import annotations

from typing import Any

import pytest

from sharder.core.selectors import LabelSelector, all_namespaces_except, parse_selector

LABELS = {"env": "prod", "team": "a"}


@pytest.mark.parametrize(
    ("raw", "matches"),
    [
        ({}, True),
        ({"matchLabels": {"env": "prod"}}, True),
        (
            {"matchExpressions": [{"key": "p" * 253 + "/" + "k" * 63, "operator": "NotIn", "values": ["", "A_b.c-1"]}]},
            True,
        ),
        ({"matchLabels": {"env": "prod", "team": "b"}}, False),
        ({"matchLabels": {"gone": "x"}}, False),
        ({"matchExpressions": [{"key": "env", "operator": "In", "values": ["dev", "prod"]}]}, True),
        ({"matchExpressions": [{"key": "env", "operator": "In", "values": ["dev"]}]}, False),
        ({"matchExpressions": [{"key": "gone", "operator": "In", "values": ["dev"]}]}, False),
        ({"matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["prod"]}]}, False),
        ({"matchExpressions": [{"key": "gone", "operator": "NotIn", "values": ["prod"]}]}, True),
        ({"matchExpressions": [{"key": "env", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "gone", "operator": "Exists"}]}, False),
        ({"matchExpressions": [{"key": "env", "operator": "DoesNotExist"}]}, False),
        ({"matchExpressions": [{"key": "gone", "operator": "DoesNotExist", "values": []}]}, True),
        ({"matchLabels": {"env": "prod"}, "matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}, False),
    ],
)
def test_matches_and_renders_what_was_written(raw: dict[str, Any], matches: bool) -> None:
    selector, problems = parse_selector(raw, "s")
    assert problems == ()
    assert selector.matches(LABELS) is matches
    again, _ = parse_selector(selector.render(), "s")
    assert again == selector


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        ([], "s"),
        ("env=prod", "s"),
        ({"matchlabels": {}}, "s"),
        ({"matchLabels": ["env"]}, "s.matchLabels"),
        ({"matchLabels": {"env": 1}}, "s.matchLabels"),
        ({"matchLabels": {str(index): "" for index in range(65)}}, "s.matchLabels"),
        ({"matchLabels": {"bad key!": "x"}}, "s.matchLabels"),
        ({"matchLabels": {"": "x"}}, "s.matchLabels"),
        ({"matchLabels": {"Example.com/env": "x"}}, "s.matchLabels"),
        ({"matchLabels": {"a/b/c": "x"}}, "s.matchLabels"),
        ({"matchLabels": {"k" * 64: "x"}}, "s.matchLabels"),
        ({"matchLabels": {"p" * 254 + "/k": "x"}}, "s.matchLabels"),
        ({"matchLabels": {"env": "not this"}}, "s.matchLabels['env']"),
        ({"matchLabels": {"env": "v" * 64}}, "s.matchLabels['env']"),
        ({"matchExpressions": {}}, "s.matchExpressions"),
        ({"matchExpressions": [{}] * 65}, "s.matchExpressions"),
        ({"matchExpressions": ["x"]}, "s.matchExpressions[0]"),
        ({"matchExpressions": [{"operator": "Exists"}]}, "s.matchExpressions[0].key"),
        ({"matchExpressions": [{"key": "-env", "operator": "Exists"}]}, "s.matchExpressions[0].key"),
        (
            {"matchExpressions": [{"key": "env", "operator": "In", "values": ["a", "b c"]}]},
            "s.matchExpressions[0].values",
        ),
        ({"matchExpressions": [{"key": "env", "operator": "exists"}]}, "s.matchExpressions[0].operator"),
        ({"matchExpressions": [{"key": "env", "operator": ["In"]}]}, "s.matchExpressions[0].operator"),
        ({"matchExpressions": [{"key": "env", "operator": "In"}]}, "s.matchExpressions[0].values"),
        ({"matchExpressions": [{"key": "env", "operator": "In", "values": "prod"}]}, "s.matchExpressions[0].values"),
        ({"matchExpressions": [{"key": "env", "operator": "In", "values": [1]}]}, "s.matchExpressions[0].values"),
        (
            {"matchExpressions": [{"key": "env", "operator": "Exists", "values": ["x"]}]},
            "s.matchExpressions[0].values",
        ),
        (
            {"matchExpressions": [{"key": "env", "operator": "In", "values": ["x"] * 257}]},
            "s.matchExpressions[0].values",
        ),
    ],
)
def test_a_malformed_term_is_told_with_its_path(raw: object, path: str) -> None:
    _, problems = parse_selector(raw, "s")
    assert [problem.path for problem in problems] == [path]
    assert problems[0].remedy


def test_all_problems_are_told_at_once() -> None:
    _, problems = parse_selector({"matchLabels": 1, "matchExpressions": [1, {"key": "k", "operator": "?"}]}, "s")
    assert len(problems) == 3


def test_an_empty_selector_matches_everything() -> None:
    assert LabelSelector().matches({})


def test_namespaces_are_excluded_by_name() -> None:
    selector = all_namespaces_except("kube-system")
    assert not selector.matches({"kubernetes.io/metadata.name": "kube-system"})
    assert selector.matches({"kubernetes.io/metadata.name": "default"})

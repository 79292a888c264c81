"""Which namespaces a ring covers, by their names."""

from __future__ import annotations

from typing import Any

import pytest

from shardsdk.errors import ConfigurationError
from shardsdk.protocol.namespaces import NAME_LABEL, CoveredNamespaces


def term(operator: str, *values: str) -> dict[str, Any]:
    return {"key": NAME_LABEL, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("selector", "covered"),
    [
        (None, "a b"),
        ({}, "a b kube-system sharding-system"),
        ({"matchLabels": {NAME_LABEL: "a"}}, "a"),
        ({"matchExpressions": [term("NotIn", "a", "kube-system")]}, "b sharding-system"),
        ({"matchLabels": {NAME_LABEL: "a"}, "matchExpressions": [term("In", "a", "b"), term("NotIn", "a")]}, ""),
    ],
)
def test_names_tell_what_is_covered(selector: dict[str, Any] | None, covered: str) -> None:
    found = CoveredNamespaces.parse(selector)
    assert [each for each in ("a", "b", "kube-system", "sharding-system") if found.covers(each)] == covered.split()
    assert found.covers(""), "cluster-scoped objects are"


@pytest.mark.parametrize(
    "selector", [{"matchLabels": {"team": "a"}}, {"matchExpressions": [{"key": NAME_LABEL, "operator": "Exists"}]}]
)
def test_what_names_do_not_tell_is_refused(selector: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"use kubernetes\.io/metadata\.name with In or NotIn"):
        CoveredNamespaces.parse(selector)

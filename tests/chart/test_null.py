"""`null` takes a value's default away: then it is refused by name, or stands for the default or for nothing at all.

So do values that an older chart has left behind (`helm upgrade --reuse-values`): they lack what is newer.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.helm import CONTROLLER, SHARDER, Helm, HelmFailed, merge, set_in
from tests.chart.options import OPTIONS, RING
from tests.chart.test_values import EXAMPLE, values_of

#: What Kubernetes or Prometheus has a default of its own for.
OPTIONAL = {
    SHARDER: ("hooks.activeDeadlineSeconds", "metrics.serviceMonitor.interval", "metrics.serviceMonitor.scrapeTimeout"),
    CONTROLLER: ("podMonitor.interval", "terminationGracePeriodSeconds"),
}
#: What has every value matter.
EVERYTHING = {
    SHARDER: [
        merge(*(OPTIONS[each] for each in ("monitoring", "network policy", "admission policy", "certManager"))),
        merge(RING, OPTIONS["secret"]),
    ],
    CONTROLLER: [
        merge(yaml.safe_load(EXAMPLE.read_text()), {"podMonitor": {"enabled": True}}),
        merge(yaml.safe_load(EXAMPLE.read_text()), {"ring": {"assignment": "Ranges", "hashBy": "Namespace"}}),
    ],
}


def leaves(chart: Path) -> Iterator[tuple[str, Any]]:
    """The values that are no sections, each with its default."""
    defaults = yaml.safe_load((chart / "values.yaml").read_text())
    every = values_of(chart)
    for path in sorted(every):
        if not any(other.startswith(f"{path}.") for other in every):
            value = defaults
            for step in path.split("."):
                value = value[step]
            yield path, value


def said(node: Any) -> Any:
    """A manifest without what says nothing."""
    if isinstance(node, dict):
        return {key: said(value) for key, value in node.items() if said(value) not in (None, {}, [])}
    return [said(each) for each in node] if isinstance(node, list) else node


def tried(helm: Helm, values: dict[str, Any], chart: Path) -> Any:
    """What it renders to, or the text that refuses it."""
    try:
        return said(helm.render(values, chart=chart))
    except HelmFailed as refused:
        return str(refused)


def no_more(made: Any, usual: Any) -> bool:
    """Whether it says what is usual, and perhaps less."""
    if isinstance(made, dict) and isinstance(usual, dict):
        return all(key in usual and no_more(value, usual[key]) for key, value in made.items())
    if isinstance(made, list) and isinstance(usual, list):
        return all(any(no_more(each, other) for other in usual) for each in made)
    return bool(made == usual)


def without(values: dict[str, Any], path: str) -> dict[str, Any]:
    """The values, but for what they say at a path."""
    head, _, rest = path.partition(".")
    if head not in values:
        return values
    others = {key: value for key, value in values.items() if key != head}
    return {**others, head: without(values[head], rest)} if rest else others


@pytest.mark.parametrize(
    ("chart", "path", "default"),
    [(chart, *leaf) for chart in (SHARDER, CONTROLLER) for leaf in leaves(chart)],
    ids=lambda each: each.name if isinstance(each, Path) else None,
)
def test_null_is_refused_by_name_or_is_the_default_or_nothing(helm: Helm, chart: Path, path: str, default: Any) -> None:
    for values in EVERYTHING[chart]:
        made = tried(helm, merge(values, set_in(path, None)), chart)
        if isinstance(made, str):
            assert path not in OPTIONAL[chart]
            assert path.rpartition(".")[2] in made
            assert "error calling" not in made
            continue
        usual = said(helm.render(without(values, path), chart=chart))
        if isinstance(default, dict | list) or path in OPTIONAL[chart]:
            assert no_more(made, usual)
        else:
            assert made == usual

"""Every metric of sharder and SDK: type, unit, labels and meaning, read off the registries.

Does: print the meaning that the code itself gives (what `/metrics` shows as
HELP).  Refuses: a metric whose labels nobody has explained.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import yaml
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.metrics_core import Metric

from docsite.pages import ROOT
from sharder.core.conditions import ConditionType
from sharder.core.shards import State
from sharder.telemetry import Telemetry
from shardsdk.admission.metrics import WebhookMetrics
from shardsdk.kube.clock import SystemClock
from shardsdk.protocol.objects import GroupResource
from shardsdk.queueing.metrics import Metrics
from shardsdk.queueing.queue import WorkQueue

#: What label values stand for.
LABELS: Final[Mapping[str, str]] = {
    "code": "HTTP status; `0`: no answer",
    "controller": "name of the controller",
    "decision": "`assign` (an object without a shard) or `move` (from another shard)",
    "generation": "generation of Python's garbage collector",
    "group": "API group of the resource, empty for the core group",
    "implementation": "of Python",
    "kind": "always `clusterring`",
    "major": "of Python's version",
    "method": "verb of the request: `get`, `list`, `patch`, …; in capitals where it names no resource (discovery)",
    "minor": "of Python's version",
    "name": "name of the ring, of the queue, or of the leader's lease",
    "namespace": "always empty",
    "outcome": "see [outcomes](#webhook-outcomes)",
    "patchlevel": "of Python's version",
    "priority": "`fresh`: events; `bulk`: resyncs",
    "resource": "plural of the resource",
    "result": "how it ended: ",  # and each metric's values
    "ringKind": "always `clusterring`",
    "ringName": "name of the ring",
    "ringNamespace": "always empty",
    "state": "state of the shard's lease",
    "type": "type of the condition",
    "verb": "verb of the request: `get`, `list`, `patch`, …; in capitals where it names no resource (discovery)",
    "version": "of this package, or of Python",
    "webhook": "name of the webhook, as people read it when they are refused",
}
#: How the meaning of a metric begins that is 1 or 0, maybe after where it is that.
_SWITCH: Final = re.compile(r"(^|: )(1 (while|where|on) |Whether )")


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: the name that a query asks for (a histogram's without `_bucket`, `_sum`, `_count`), and the rest.

    `results`: the values of the label `result`, where it has that.
    """

    name: str
    type: str
    documentation: str
    labels: tuple[str, ...]
    results: tuple[str, ...] = ()


def render_sharder() -> str:
    """The sharder's."""
    return _render(sharder_families())


def render_shardsdk() -> str:
    """A shard's."""
    return _render(shardsdk_families())


def sharder_families() -> tuple[Family, ...]:
    """Every family, with one sample at least wherever it has labels."""
    telemetry = Telemetry.create()
    metrics = telemetry.metrics
    metrics.ring("r").set_shards([State.READY])
    metrics.resource("r", GroupResource("", "secrets"))
    metrics.ring_conditions("r", {each.value: True for each in ConditionType})
    metrics.webhook_answered("r", "assigned", 0.1)
    metrics.api_called("get", 200, 0.1)
    metrics.certificate_loaded(True)
    metrics.certificate_loaded(False)
    metrics.leading("sharder", True)
    return _families(telemetry.registry)


def shardsdk_families() -> tuple[Family, ...]:
    """The same of the SDK's runtime, as `Manager` fills it."""
    metrics = Metrics()
    metrics.controller("secrets", 1)
    metrics.shard("secrets")
    metrics.leader("websites", float)
    metrics.count_call("get", 200, 0.1)
    metrics.observe_queue(WorkQueue[str](SystemClock(), name="secrets"))
    for of_the_process in (ProcessCollector, PlatformCollector, GCCollector):  # as the default registry has them
        of_the_process(registry=metrics.registry)
    WebhookMetrics(metrics.registry).prepare("check.websites.example.com")
    for name, meaning in _gauges_of_shardsdk():
        metrics.gauge(name, meaning, float)
    return _families(metrics.registry)


@cache  # the source stays as it is, and to parse all of it takes half a second
def _gauges_of_shardsdk() -> tuple[tuple[str, str], ...]:
    """Those that are made where what they read is."""
    paths = sorted((ROOT / "shardsdk").rglob("*.py"))
    return tuple(gauge for path in paths for gauge in gauges_in(path.read_text(), str(path.relative_to(ROOT))))


def gauges_in(source: str, path: str) -> Iterator[tuple[str, str]]:
    """Name and meaning of what calls of `metrics.gauge` make.  Raises: ValueError, where they are not written out."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "gauge":
            passed = dict(zip(("name", "documentation"), node.args, strict=False))
            passed |= {each.arg: each.value for each in node.keywords if each.arg is not None}
            try:
                yield ast.literal_eval(passed["name"]), ast.literal_eval(passed["documentation"])
            except (KeyError, ValueError) as error:
                what = "name and documentation of a gauge have to be written out, for docs/metrics.md"
                raise ValueError(f"{path}:{node.lineno}: {what}") from error


def unit_of(name: str, documentation: str) -> str:
    """What its numbers are in."""
    match name.removesuffix("_total").split("_"):
        case [*_, "timestamp", "seconds"] | [_, "start", "time", "seconds"]:
            return "Unix time in seconds"
        case [*_, "seconds" | "bytes" | "ratio" as unit]:
            return unit
        case [*_, "info"]:
            return "always 1"
        case _:
            return "0 or 1" if _SWITCH.search(documentation) else "count"


def _render(families: Iterable[Family]) -> str:
    families = list(families)
    lines = ["| metric | type | unit | labels | meaning |", "|---|---|---|---|---|"]
    for family in families:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        unit, meaning = unit_of(family.name, family.documentation), _sentence(family.documentation)
        row = (f"`{family.name}`", family.type, unit, labels, meaning)
        lines.append(f"| {' | '.join(row)} |")
    used = sorted({label for family in families for label in family.labels})
    lines += ["", "| label | value |", "|---|---|"]
    for label in used:
        values = "; ".join(_render_results(each) for each in families if each.results) if label == "result" else ""
        lines.append(f"| `{label}` | {LABELS[label]}{values} |")
    return "\n".join(lines)


def _render_results(family: Family) -> str:
    return f"of `{family.name}` {', '.join(f'`{each}`' for each in family.results)}"


def render_alerts() -> str:
    """Every alert: how bad, after how long, what it says."""
    groups = yaml.safe_load((ROOT / "charts" / "sharder" / "files" / "alerts.yaml").read_text())["groups"]
    lines = ["| alert | severity | after | meaning and remedy |", "|---|---|---|---|"]
    for rule in (rule for group in groups for rule in group["rules"]):
        said = rule["annotations"]
        text = re.sub(r"\{\{ \$labels\.(\w+) \}\}", r"*\1*", f"{said['summary']}. {said['description']}")
        text = re.sub(r"\{\{ \$value[^}]*\}\}", "*n*", " ".join(text.split()))
        lines.append(f"| `{rule['alert']}` | {rule['labels']['severity']} | {rule.get('for', 'at once')} | {text} |")
    return "\n".join(lines)


def _families(registry: CollectorRegistry) -> tuple[Family, ...]:
    """By name.  Labels are the collector's own where it knows them: a family without samples shows none."""
    known = {
        name: tuple(getattr(collector, "_labelnames", ()))
        for collector, names in registry._collector_to_names.items()
        for name in names
    }
    return tuple(sorted((_family(family, known) for family in _collect(registry)), key=lambda family: family.name))


def _family(family: Metric, known: Mapping[str, tuple[str, ...]]) -> Family:
    shown = {label for sample in family.samples for label in sample.labels} - {"le", "quantile"}
    name = f"{family.name}_total" if family.type == "counter" else family.name
    labels = sorted({*known.get(family.name, ()), *shown})
    results = dict.fromkeys(sample.labels["result"] for sample in family.samples if "result" in sample.labels)
    return Family(name, family.type, family.documentation, tuple(labels), tuple(results))


def _collect(registry: Any) -> Iterator[Metric]:
    yield from registry.collect()


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."

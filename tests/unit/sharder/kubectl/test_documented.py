"""The examples of docs/kubectl.md: what the commands print, letter by letter, of the cluster that they show."""

from __future__ import annotations

import re
from typing import Any

from docsite.pages import blocks_of, read_pages
from sharder.kubectl.check.command import Section, render_section, summarize
from sharder.kubectl.check.findings import Finding, Level
from sharder.kubectl.explain.explanation import explain
from sharder.kubectl.explain.text import render_explanation
from sharder.kubectl.leader import Leading
from sharder.kubectl.text import Painter
from shardsdk.protocol.labels import SHARDER_HOLDER
from shardsdk.protocol.objects import ObjectMeta
from tests.unit.sharder.kubectl.explain.test_explanation import known
from tests.unit.sharder.kubectl.rings import CONFIGMAPS, SECRETS, SPEC, lease, members
from tests.unit.sharder.kubectl.status.test_command import Cluster

PAGE = "kubectl.md"
SHARDS = ("checksum-1", "checksum-2", "checksum-3")
LEFT = ("checksum-1", "checksum-3")
LEVELS = {"✓": Level.OK, "✗": Level.PROBLEM, "!": Level.WARNING, "?": Level.UNKNOWN, "-": Level.SKIPPED}


def example(command: str) -> str:
    """What the page says that a command prints."""
    text = next(text for page, text in read_pages().items() if str(page).endswith(PAGE))
    [found] = [
        block.text for block in blocks_of(PAGE, text) if block.text.startswith(f"$ kubectl sharding {command}\n")
    ]
    return found.partition("\n")[2].rstrip("\n") + "\n"


async def test_status_of_the_demo_in_the_middle_of_a_failover() -> None:
    """300 Secrets with a ConfigMap each, and one without; a shard has died after it was asked to let go of some."""
    selector = {"matchLabels": {"kubernetes.io/metadata.name": "default"}}
    cluster = Cluster(
        lease("checksum-1", renewed=0, held=71),
        lease("checksum-2", renewed=4, held=4, holder=SHARDER_HOLDER, state="dead"),
        lease("checksum-3", renewed=2, held=71),
        spec={**SPEC, "namespaceSelector": selector},
    )
    before, draining = members(*SHARDS), 28
    for name in [*(f"demo-{number:03d}" for number in range(300)), "late"]:
        shard = before.target(f"/Secret/default/{name}")
        leaves = shard == "checksum-2" and draining > 0
        draining -= leaves
        cluster.put(SECRETS, name, shard, drain=leaves)
        if name != "late":
            cluster.put(CONFIGMAPS, f"{name}-checksum", shard, owner=name)

    _, text = await cluster.status()

    assert text == example("status checksum")


def test_explain_of_an_object_that_waits_for_a_sharder() -> None:
    meta = ObjectMeta(name="late", namespace="default")
    gone = Leading(False, "sharder-1 last renewed the lease sharding-system/sharder 20s ago")
    waiting: dict[str, Any] = {"meta": meta, "membership": members(*LEFT), "leading": gone, "shard_statuses": ()}

    explanation = explain(known(**waiting))

    assert example("explain secret late") == "\n".join(
        ["Secret default/late", "", *render_explanation(explanation, Painter(False)), ""]
    )


def test_check_is_laid_out_as_it_is_shown() -> None:
    """What it finds is tried on a real control plane; here it is how it says so."""
    text = example("check checksum")
    sections: list[Section] = []
    for line in text.splitlines():
        if line == "Sharder" or line.startswith("Ring "):
            sections.append(Section(line.removeprefix("Ring ") if line != "Sharder" else None, ()))
        elif found := re.fullmatch(r"  (\S) (\w+) +(.+)", line):
            sections[-1] = add(sections[-1], Finding(found[2], LEVELS[found[1]], found[3]))
        elif found := re.fullmatch(r" +→ (.+)", line):
            *rest, last = sections[-1].findings
            remedied = Finding(last.topic, last.level, last.message, found[1])
            sections[-1] = Section(sections[-1].ring, (*rest, remedied))
    findings = [finding for section in sections for finding in section.findings]

    rendered = [line for section in sections for line in [*render_section(section, Painter(False), quiet=False), ""]]

    assert len(findings) > 10
    assert text == "\n".join([*rendered, summarize(findings, Painter(False)), ""])


def add(section: Section, finding: Finding) -> Section:
    return Section(section.ring, (*section.findings, finding))

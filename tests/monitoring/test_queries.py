"""Dashboard, alerts and the documentation's questions, asked of a real Prometheus that scrapes a sharder at work.

Two replicas of the sharder and three shards, as processes on a real control
plane, with objects that come, drain and lose their shard, and an API server
that for a moment cannot reach the webhook.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from docsite import meters
from docsite.pages import blocks_of, read_pages
from localcluster import AdminClient, ControlPlane, find_binaries
from localcluster.binaries import say
from localcluster.installation import Installation, SharderTimings
from localcluster.ports import LOOPBACK, ReservedPort, reserve_port
from tests.monitoring.picture import draw
from tests.monitoring.prometheus import POLL_SECONDS, WAIT_SECONDS, Prometheus, run_prometheus

CHART = Path("charts/sharder/files")
DASHBOARD = json.loads((CHART / "dashboard.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
#: What Grafana puts in: all rings, and an interval of several scrapes.
VARIABLES = {"$__rate_interval": "1m", "$ring": ".+", "$cluster": ".*"}
QUESTIONS = [
    block.text for page, text in read_pages().items() for block in blocks_of(page, text) if block.language == "promql"
]
RING = {
    "resources": [
        {"group": "", "resource": "secrets", "controlledResources": [{"group": "", "resource": "configmaps"}]}
    ]
}
#: Leases that a busy machine keeps: nobody starts a process again that has lost its own.
LEASE_SECONDS = 8
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.asyncio(loop_scope="module")]


@dataclass(frozen=True, slots=True)
class Scene:
    """What runs."""

    prometheus: Prometheus
    installation: Installation
    admin: AdminClient
    ports: dict[str, ReservedPort]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene() -> AsyncIterator[Scene]:
    say(f"\nlocalcluster: Kubernetes programs: {find_binaries().source}")
    ports = {name: reserve_port() for name in ("one", "two", "three")}
    timings = SharderTimings.for_lease(LEASE_SECONDS)
    async with ControlPlane() as plane, Installation(plane, timings) as installation, plane.admin() as admin:
        for name in ("a", "b"):
            await installation.start_sharder(f"sharder-{name}")
        async with run_prometheus(targets(installation, ports), [CHART / "alerts.yaml"]) as prometheus:
            scene = Scene(prometheus, installation, admin, ports)
            await play(scene)
            yield scene
    for port in ports.values():
        port.release()


def targets(installation: Installation, ports: dict[str, ReservedPort]) -> list[dict[str, Any]]:
    """What Prometheus scrapes: the sharders, the shards, the API server."""
    plane = installation.plane
    sharders = [replica.metrics_url.removeprefix("http://") for replica in installation.sharders.values()]
    shards = [f"{LOOPBACK}:{port.number}" for port in ports.values()]
    admin = plane.admin()
    return [
        {"job_name": "sharder", "static_configs": [{"targets": sharders}]},
        {"job_name": "shards", "static_configs": [{"targets": shards}]},
        {
            "job_name": "apiserver",
            "scheme": "https",
            "authorization": {"credentials": admin._token},
            "tls_config": {"insecure_skip_verify": True},
            "static_configs": [{"targets": [plane.url.removeprefix("https://")]}],
        },
    ]


async def play(scene: Scene) -> None:
    """Something of everything that metrics count, and nothing left undone."""
    plane = scene.installation.plane
    await plane.apply(Path("rbac/shard.yaml"))
    await scene.installation.ring("checksum", RING)
    await keep_webhook_away(scene)
    await start_shard(scene, "one")
    await start_shard(scene, "two")
    # Written while there are shards, so that the webhook assigns.
    await scene.prometheus.eventually('sum(controller_sharding_shards{state="ready"}) == 2')
    for number in range(40):
        await scene.admin.create("v1/secrets", {"metadata": {"name": f"s{number}"}}, "default")
    await scene.prometheus.eventually("sum(controller_sharding_assignments_total) > 30")
    # Some objects are drained for a shard that arrives, and move when it crashes.
    three = await start_shard(scene, "three")
    # Drains alone say little: there may have been some for the second one, too.
    await scene.prometheus.eventually('sum(controller_sharding_shards{state="ready"}) == 3')
    await scene.prometheus.eventually("sum(controller_sharding_drains_total) > 0")
    await scene.prometheus.eventually('max(controller_sharding_ring_condition{type="Settled"}) == 1')
    await three.kill()
    await scene.prometheus.eventually("sum(controller_sharding_lease_takeovers_total) > 0")
    await scene.prometheus.eventually("sum(controller_sharding_movements_total) > 0")


async def keep_webhook_away(scene: Scene) -> None:
    """The API server finds no webhook to ask; it counts such requests, and the alert about them sees it."""
    replicas = list(scene.installation.sharders.values())
    await scene.prometheus.eventually('max(controller_sharding_ring_condition{type="Ready"}) == 1')
    for replica in replicas:
        await replica.process.kill()
    (rule,) = [rule for rule in await scene.prometheus.rules() if rule["name"] == "SharderWebhookFailing"]
    # As often as it takes: a webhook that was just declared is not asked at once.
    async with asyncio.timeout(WAIT_SECONDS):
        while not await scene.prometheus.query(rule["query"]):
            await scene.admin.create("v1/secrets", {"metadata": {"generateName": "unasked-"}}, "default")
            await asyncio.sleep(POLL_SECONDS)
    for replica in replicas:
        replica.process.start()
        await scene.installation.ready(replica)


async def start_shard(scene: Scene, name: str) -> Any:
    kubeconfig = await scene.installation.plane.service_account_kubeconfig("default", "checksum")
    arguments = (
        *("--ring", "checksum", "--namespace", "default", "--lease-seconds", str(LEASE_SECONDS)),
        *("--metrics", f"{LOOPBACK}:{scene.ports[name].number}"),
    )
    return await scene.installation.start_shard(
        name, module="examples.checksum", arguments=arguments, kubeconfig=kubeconfig
    )


def filled(expression: str) -> str:
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    return expression


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
async def test_every_query_of_a_panel_returns_data(panel: dict[str, Any], scene: Scene) -> None:
    for target in panel["targets"]:
        found = await scene.prometheus.eventually(filled(target["expr"]))
        named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        assert all(named <= series["metric"].keys() for series in found), "a legend names a label that is not there"


async def test_the_dashboard_can_be_looked_at(scene: Scene, tmp_path: Path) -> None:
    """A picture of it: in the folder that DASHBOARD names, if it names one."""
    (now,) = await scene.prometheus.query("vector(time())")
    end = float(now["value"][1])
    answers = {
        panel["id"]: [
            (target["legendFormat"], series)
            for target in panel["targets"]
            for series in await scene.prometheus.query_range(filled(target["expr"]), end - 90, end, 1)
        ]
        for panel in PANELS
    }
    picture = Path(os.environ.get("DASHBOARD", str(tmp_path))) / "dashboard.svg"
    picture.write_text(draw(DASHBOARD["panels"], answers))

    assert "Placement latency" in picture.read_text()
    assert picture.read_text().count("<polyline") > len(PANELS)


async def test_every_panel_asks_for_the_cluster_that_is_chosen() -> None:
    queries = [target["expr"] for panel in PANELS for target in panel["targets"]]
    assert queries
    assert [each for each in queries if 'cluster=~"$cluster"' not in each] == []


async def test_the_dashboards_rings_can_be_chosen(scene: Scene) -> None:
    (variable,) = [each for each in DASHBOARD["templating"]["list"] if each["name"] == "ring"]
    found = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["definition"])
    assert found is not None
    series = await scene.prometheus.query(filled(found[1]))
    assert {each["metric"][found[2]] for each in series} == {"checksum"}


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda text: " ".join(text.split())[:60])
async def test_every_question_of_the_documentation_is_answered(question: str, scene: Scene) -> None:
    assert await scene.prometheus.eventually(question)


async def test_every_rule_can_be_evaluated_and_none_has_anything_to_say(scene: Scene) -> None:
    """Most wait for minutes before they fire: a rule whose expression holds is pending until then, and shows here."""
    # Webhook calls have failed, a minute ago.
    expected = {"SharderWebhookFailing"}
    rules = await scene.prometheus.evaluated_rules()

    assert {rule["name"] for rule in rules} > expected
    assert not [(rule["name"], rule.get("lastError")) for rule in rules if rule["health"] != "ok"]
    assert not [rule["name"] for rule in rules if rule["state"] == "firing"]
    assert await scene.prometheus.talking_rules(expected) == set()


async def test_every_metric_that_is_scraped_is_documented(scene: Scene) -> None:
    text = (Path("docs") / "metrics.md").read_text()
    ours = ("up", "scrape_")
    documented = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
    for job, families in (("sharder", meters.sharder_families()), ("shards", meters.shardsdk_families())):
        await scene.prometheus.eventually(f'up{{job="{job}"}} == 1')
        scraped = {
            re.sub(r"_(bucket|sum|count|created)$", "", name) for name in await scene.prometheus.metric_names(job)
        }
        missing = {name for name in scraped if not name.startswith(ours) and not {name, f"{name}_total"} & documented}
        assert not missing, f"{job} shows what docs/metrics.md does not explain"
        assert {family.name for family in families} <= documented

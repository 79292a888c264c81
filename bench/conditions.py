"""What it costs to have the API server compare shard labels: creates and patches with and without, in turns.

python -m bench.conditions --config FILE     # the sharder that is measured; `make bench ARGS=conditions` runs it
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Final

from bench.load import CONFIGMAPS, Figures, creates, measure, patches
from bench.shards import Shard
from localcluster import ControlPlane
from localcluster.installation import Installation, SharderTimings
from sharder.cli import main
from sharder.rings import webhook_configuration
from shardsdk.kube.access import load_access
from shardsdk.kube.client import Client
from shardsdk.kube.selectors import Selector, exists
from shardsdk.protocol.labels import parse_ring_name
from shardsdk.protocol.objects import NAMESPACES

#: Two rings, whose namespaces are called like them, and a namespace of none.
WITH: Final = "with"
WITHOUT: Final = "without"
RAW: Final = "raw"
#: Rounds in which each of them has its turn; the first is not counted.
ROUNDS: Final = 9

Say = Callable[..., None]


async def comparing(objects: int, say: Say) -> None:
    """`objects` ConfigMaps in each turn, created and then patched."""
    print(f"{objects} ConfigMaps a turn, {ROUNDS - 1} rounds: with and without a comparison of labels", flush=True)
    timings = SharderTimings(lease_duration=15, renew_deadline=10, retry_period=2, staleness=10)
    async with AsyncExitStack() as stack:
        plane = await stack.enter_async_context(ControlPlane())
        installation = await stack.enter_async_context(Installation(plane, timings, sharder_module="bench.conditions"))
        access = await load_access(str(plane.admin_kubeconfig))
        api = await stack.enter_async_context(Client(access))
        for name in (WITH, WITHOUT, RAW):
            await api.create(NAMESPACES, {"metadata": {"name": name}})
        shards = []
        for name in (WITH, WITHOUT):
            selector = {"matchLabels": {"kubernetes.io/metadata.name": name}}
            resources = [{"group": "", "resource": "configmaps"}]
            await installation.ring(name, {"resources": resources, "namespaceSelector": selector})
            shards.append(Shard(api, name, f"shard-{name}", "default"))
            await shards[-1].start()
        await installation.start_sharder("sharder-1")
        await installation.leader()
        made, patched = await _rounds(api, objects)
        for name in (WITH, WITHOUT):
            await _check(api, name, objects)
        for what, figures in (("creates", made), ("patches", patched)):
            _tell(what, figures, say)
        for shard in shards:
            shard.crash()


async def _rounds(api: Client, objects: int) -> tuple[dict[str, list[Figures]], dict[str, list[Figures]]]:
    made: dict[str, list[Figures]] = {name: [] for name in (WITH, WITHOUT, RAW)}
    patched: dict[str, list[Figures]] = {name: [] for name in (WITH, WITHOUT, RAW)}
    for number in range(ROUNDS):
        for name in (WITH, WITHOUT, RAW) if number % 2 else (RAW, WITHOUT, WITH):
            made[name].append(await measure(creates(api, name, f"object-{number}", objects)))
        for name in (WITH, WITHOUT, RAW) if number % 2 else (RAW, WITHOUT, WITH):
            patched[name].append(await measure(patches(api, name, f"object-{number}", objects)))
    return made, patched


async def _check(api: Client, ring: str, objects: int) -> None:
    """The webhook has placed what was created, all but the first of it perhaps."""
    labelled = 0
    selector = Selector(labels=exists(parse_ring_name(ring).shard))
    async for page in api.pages(CONFIGMAPS, ring, selector=selector):
        labelled += len(page)
    assert labelled >= objects * (ROUNDS - 1)


def _tell(what: str, figures: dict[str, list[Figures]], say: Say) -> None:
    def ratio(one: str, other: str) -> float:
        pairs = zip(figures[one][1:], figures[other][1:], strict=True)
        return statistics.median(mine.rate / theirs.rate for mine, theirs in pairs)

    for name in (RAW, WITHOUT, WITH):
        rates = [each.rate for each in figures[name][1:]]
        say(f"{what}, {name}", statistics.median(rates), "/s", f"[{min(rates):.0f} to {max(rates):.0f}]")
    say(f"{what}, without / raw, median", ratio(WITHOUT, RAW), "")
    say(f"{what}, with / raw, median", ratio(WITH, RAW), "")
    say(f"{what}, with / without, median", ratio(WITH, WITHOUT), "")


if __name__ == "__main__":
    render = vars(webhook_configuration)["render_webhook"]

    def render_as_named(ring: Any, *, account: str = "", **more: Any) -> Any:
        """As always, but for one ring the API server compares nothing."""
        return render(ring, account="" if ring.spec.name == WITHOUT else account, **more)

    vars(webhook_configuration)["render_webhook"] = render_as_named
    sys.exit(main())

"""Which of kopf's daemons there are once their object has ended, by kopf itself."""

from __future__ import annotations

import asyncio
from typing import Any

import kopf
from kopf._cogs.structs.ephemera import AnyMemo
from kopf._core.actions.lifecycles import all_at_once
from kopf._core.engines.indexing import OperatorIndexers
from kopf._core.reactor.inventory import ResourceMemories
from kopf._core.reactor.processing import process_resource_event

from shardsdk.contrib.kopf_daemons import Daemons
from shardsdk.kube.clock import SystemClock
from tests.unit.shardsdk.contrib.test_kopf_gate import MAIN


async def test_none_begins_with_the_end_of_an_object_that_never_had_kopfs_finalizer() -> None:
    registry, memories, begun = kopf.OperatorRegistry(), ResourceMemories(), list[str]()

    @kopf.daemon(MAIN.plural, registry=registry)
    async def serve(name: str, **_: Any) -> None:
        begun.append(name)

    @kopf.on.event(MAIN.plural, registry=registry)
    async def tell(**event: Any) -> None:
        begun.append(event["type"])

    process = Daemons(memories, SystemClock(), None).outlived_by(process_resource_event)
    metadata = {"name": "mine", "namespace": "default", "uid": "u", "resourceVersion": "1"}
    await process(
        raw_event={"type": "DELETED", "object": {"metadata": metadata}}, resource=MAIN,
        settings=kopf.OperatorSettings(), registry=registry, memories=memories, lifecycle=all_at_once,
        memobase=AnyMemo(kopf.Memo()), indexers=OperatorIndexers(), event_queue=asyncio.Queue(),
    )  # fmt: skip
    await asyncio.sleep(0.01)
    assert begun == ["DELETED"]

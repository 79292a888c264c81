"""Two elections of one name in two namespaces keep nobody apart; who comes later says so."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from shardsdk.kube.api import Api
from shardsdk.lease.hold import Hold
from shardsdk.lease.leadership import Candidate, Election
from shardsdk.lease.namesakes import SKEW, warn_of_namesakes
from shardsdk.protocol.leases import render_micro_time
from shardsdk.protocol.objects import LEASES, GroupResource
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import Fault, MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.kube_configs import in_cluster, load, service_account

SAYS = "A process leads under the same name in another namespace"


def lease(server: MemoryServer, clock: VirtualClock, namespace: str, name: str, *, age: float = 0, **spec: Any) -> None:
    times = {"renewTime": render_micro_time(clock.now() - timedelta(seconds=age)), "leaseDurationSeconds": 15}
    body = {"metadata": {"name": name}, "spec": {"holderIdentity": "pod_1", **times, **spec}}
    server.create(LEASES, body, namespace)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [vars(each)["lease"] for each in caplog.records if each.message.startswith(SAYS)]


@in_virtual_time
async def test_whoever_leads_elsewhere_under_the_same_name_is_named(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    server = MemoryServer()
    lease(server, clock, "websites", "websites", age=14 + SKEW.total_seconds())
    lease(server, clock, "default", "websites")  # it waits for that one
    lease(server, clock, "gone", "websites", age=15 + SKEW.total_seconds() + 1)
    lease(server, clock, "released", "websites", holderIdentity="")
    lease(server, clock, "odd", "websites", renewTime=None)
    lease(server, clock, "other", "pages")
    await warn_of_namesakes(MemoryApi(server, clock), "default", "websites", clock)
    assert told(caplog) == ["websites/websites"]
    (line,) = (vars(each) for each in caplog.records if each.message.startswith(SAYS))
    assert line["holder"] == "pod_1"
    assert line["remedy"].startswith("`-n websites`")


@in_virtual_time
async def test_who_may_not_list_leases_everywhere_asks_for_none(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Refused(MemoryApi):
        async def allowed(self, verb: str, resource: GroupResource, **where: Any) -> bool:
            assert (verb, resource, where) == ("list", LEASES.group_resource, {})
            return False

    server = MemoryServer()
    lease(server, clock, "websites", "websites")
    api = Refused(server, clock)
    await warn_of_namesakes(api, "default", "websites", clock)
    assert (told(caplog), api.lists) == ([], [])


@in_virtual_time
async def test_an_api_server_that_is_away_is_not_waited_for(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    api = MemoryApi(MemoryServer(), clock)
    api.fault = Fault.REFUSED
    await warn_of_namesakes(api, "default", "websites", clock)
    assert told(caplog) == []


@in_virtual_time
async def test_a_candidate_looks_and_leads_without_waiting_for_that(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    class Slow(MemoryApi):
        async def allowed(self, verb: str, resource: GroupResource, **where: Any) -> bool:
            await clock.sleep(60)
            return True

    server, led_at = MemoryServer(), list[float]()
    lease(server, clock, "websites", "websites")

    async def lead(hold: Hold) -> None:
        led_at.append(clock.monotonic())
        await clock.sleep(90)

    access = await load(tmp_path, environ=in_cluster(service_account(tmp_path / "account")))
    election = Election("websites", "default")
    candidate = Candidate(election, access, clock=clock, rng=Random(1), threaded=False, die=lambda: None)
    api: Api = Slow(server, clock)
    await candidate.run(api, lead)
    assert led_at < [1.0]
    assert told(caplog) == ["websites/websites"]

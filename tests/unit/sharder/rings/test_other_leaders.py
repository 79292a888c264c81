"""Two sharders that lead, each by a Lease of its own: how a person learns of it, and who is not taken for one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import Gauge

from sharder.replica import Replica
from shardsdk.protocol.labels import LEADER_LABEL, LEADS_SHARDER
from shardsdk.protocol.objects import LEASES
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import SETTINGS, Stage, leading, make_stage, ring, scrape

ELSEWHERE = replace(SETTINGS, identity="sharder-b", lease_namespace="elsewhere", lease_name="green")
LABELLED = {LEADER_LABEL: LEADS_SHARDER}
OTHER = "another sharder leads"


def set_up(clock: VirtualClock) -> Stage:
    stage = make_stage(clock)
    stage.set_up(ring(), "a")
    return stage


def gauge(replica: Replica) -> list[float]:
    family = replica._metrics.other_leaders
    assert isinstance(family, Gauge)
    return scrape(replica, family)


def told(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [each.__dict__ for each in caplog.records if each.message == OTHER]


def make_lease(stage: Stage, holder: str, labels: dict[str, str]) -> None:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": "2020-01-01T00:00:00.000000Z"}
    stage.server.create(LEASES, {"metadata": {"name": "theirs", "labels": labels}, "spec": spec}, "elsewhere")


def renew(stage: Stage, at: str) -> None:
    stage.server.patch(LEASES, "theirs", "elsewhere", {"spec": {"renewTime": at}})


@in_virtual_time
async def test_one_whose_clock_is_late_is_found_by_what_it_renews(clock: VirtualClock) -> None:
    stage = set_up(clock)
    make_lease(stage, "somebody", LABELLED)
    async with leading(stage) as one:
        await stage.until(lambda: stage.condition("Ready") == "True")
        await clock.sleep(1)
        renew(stage, "2020-01-01T00:01:00.000000Z")
        await stage.until(lambda: gauge(one) == [1], seconds=70)


@in_virtual_time
async def test_a_leader_marks_its_lease_as_a_sharders(clock: VirtualClock) -> None:
    stage = set_up(clock)
    own = (SETTINGS.lease_name, SETTINGS.lease_namespace)
    async with leading(stage):
        assert stage.server.get(LEASES, *own)["metadata"]["labels"] == LABELLED
    async with leading(stage):  # it is there already, and a sharder of before has not marked it
        stage.server.patch(LEASES, *own, {"metadata": {"labels": None}})
        await stage.until(lambda: stage.server.get(LEASES, *own)["metadata"].get("labels") == LABELLED, seconds=10)


def test_each_of_two_says_so_in_the_log_the_rings_and_a_metric(caplog: pytest.LogCaptureFixture) -> None:
    @in_virtual_time
    async def both_say_it(clock: VirtualClock) -> None:
        stage = set_up(clock)
        async with leading(stage) as one:
            await stage.until(lambda: stage.condition("Ready") == "True")
            assert gauge(one) == [0]
            async with leading(stage, ELSEWHERE) as other:
                await stage.until(lambda: gauge(one) == gauge(other) == [1], seconds=70)
                await stage.until(lambda: stage.condition("Ready") == "False", seconds=10)
                for lease in ("sharding-system/sharder", "elsewhere/green"):
                    assert lease in stage.message("Ready")
                assert any("more than one sharder leads" in message for _, message in stage.events.taken)
                await clock.sleep(300)
            await stage.until(lambda: stage.condition("Ready") == "True", seconds=70)
            assert gauge(one) == [0]

    both_say_it()
    lines = [(each["levelname"], each["lease"], each["holder"], each["own"]) for each in told(caplog)]
    assert sorted(lines) == [
        ("WARNING", "elsewhere/green", "sharder-b", "sharding-system/sharder"),
        ("WARNING", "sharding-system/sharder", "sharder-a", "elsewhere/green"),
    ]


def test_one_that_renews_less_often_than_is_looked_leads_all_the_time(caplog: pytest.LogCaptureFixture) -> None:
    @in_virtual_time
    async def stays(clock: VirtualClock) -> None:
        stage = set_up(clock)
        make_lease(stage, "somebody", LABELLED)
        stage.server.patch(LEASES, "theirs", "elsewhere", {"spec": {"leaseDurationSeconds": 600}})
        async with leading(stage) as one:
            await clock.sleep(1)
            for minute in range(1, 10):
                renew(stage, f"2020-01-01T00:0{minute}:00.000000Z")
                await clock.sleep(40 if minute == 1 else 0)
                for _ in range(8):
                    await clock.sleep(10)
                    assert gauge(one) == [1]
            await clock.sleep(630)
            assert gauge(one) == [0], "that one has died"

    stays()
    assert len(told(caplog)) == 1


@pytest.mark.parametrize(
    ("holder", "labels", "alive", "renewed"),
    [
        ("", LABELLED, True, ""),
        ("sharder-b", {}, True, ""),
        ("sharder-b", {LEADER_LABEL: "operator"}, True, ""),
        ("b", LABELLED, False, ""),
        ("b", LABELLED, False, "2030-01-01T00:00:00.000000Z"),
        ("b", LABELLED, False, "9999-12-31T23:59:59.000000Z"),
    ],
    ids=["nobody", "unmarked", "another program's", "gone", "gone, its clock ahead", "gone, or somebody's joke"],
)
def test_nobody_is_taken_for_one_who_is_none(
    holder: str, labels: dict[str, str], alive: bool, renewed: str, caplog: pytest.LogCaptureFixture
) -> None:
    @in_virtual_time
    async def not_told(clock: VirtualClock) -> None:
        stage = set_up(clock)
        make_lease(stage, holder, labels)
        if renewed:
            renew(stage, renewed)
        async with leading(stage) as replica:
            await stage.until(lambda: stage.condition("Ready") == "True")
            for _ in range(100):
                await clock.sleep(1)
                if alive:
                    renew(stage, stage.clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ"))
                assert gauge(replica) == [0]
                assert stage.condition("Ready") == "True"

    not_told()
    assert not told(caplog)

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from shardsdk.errors import ConfigurationError, ConnectionFailed, Forbidden
from shardsdk.serving.certificate_spec import Lifetimes, ServingNames
from shardsdk.serving.renewal import make_stored, render_stored
from shardsdk.serving.secretstore import SelfManaged
from shardsdk.serving.x509 import parse_certificates
from shardsdk.serving.x509_messages import Answer, Question
from shardsdk.serving.x509_process import ask_here
from tests.unit.shardsdk.serving.fake_secrets import FakeSecrets
from tests.unit.shardsdk.serving.manual_clock import START, ManualClock

NAMESPACE, SECRET = "operators", "websites-webhook-certificates"
NAMES = ServingNames.of(["sharder.sharding-system.svc"])
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)


def replica(secrets: FakeSecrets, clock: ManualClock, names: ServingNames = NAMES) -> SelfManaged:
    return SelfManaged(secrets.api, namespace=NAMESPACE, name=SECRET, names=names, clock=clock)


@asynccontextmanager
async def running(*sources: SelfManaged) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(source.run()) for source in sources]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_the_first_replica_makes_the_secret_and_serves_what_it_stored() -> None:
    secrets = FakeSecrets()
    source = replica(secrets, ManualClock())
    assert not source.published.loaded.is_set()
    await source.refresh()
    assert source.published.loaded.is_set()
    assert source.published.pair is not None
    stored = secrets.data(NAMESPACE, SECRET)
    assert source.published.pair.certificate == stored["tls.crt"]
    assert source.published.ca_bundle == stored["ca.crt"]


async def test_replicas_that_start_together_end_up_with_one_certificate() -> None:
    secrets = FakeSecrets()
    replicas = [replica(secrets, ManualClock()) for _ in range(5)]
    await asyncio.gather(*(source.refresh() for source in replicas))
    assert secrets.writes == ["create"]
    assert len({source.published.ca_bundle for source in replicas}) == 1
    assert len({source.published.pair for source in replicas}) == 1


async def test_replicas_that_renew_together_end_up_with_one_certificate() -> None:
    secrets, clock = FakeSecrets(), ManualClock()
    replicas = [replica(secrets, clock) for _ in range(3)]
    await asyncio.gather(*(source.refresh() for source in replicas))
    clock.jump(70 * DAY)
    await asyncio.gather(*(source.refresh() for source in replicas))
    assert secrets.writes == ["create", "patch"]
    assert len({source.published.pair for source in replicas}) == 1


async def test_a_replacement_by_one_replica_reaches_the_others() -> None:
    secrets, clock = FakeSecrets(), ManualClock()
    first, second = replica(secrets, clock), replica(secrets, clock)
    await first.refresh()
    async with running(second):
        await clock.asleep()
        before = second.published.pair
        clock.jump(61 * DAY)
        await first.refresh()
        await clock.pass_by(MINUTE)
        assert second.published.pair == first.published.pair != before


async def test_listeners_hear_of_every_change_and_of_nothing_else() -> None:
    secrets, clock = FakeSecrets(), ManualClock()
    source = replica(secrets, clock)
    bundles: list[bytes | None] = []
    source.published.on_change(lambda: bundles.append(source.published.ca_bundle))
    async with running(source):
        await clock.asleep()
        await clock.pass_by(MINUTE)
        await clock.pass_by(61 * DAY)
        await clock.pass_by(MINUTE)
    assert len(bundles) == 2


async def test_a_rotation_runs_by_itself_and_the_bundle_comes_first() -> None:
    secrets, clock = FakeSecrets(), ManualClock()
    source = replica(secrets, clock)
    seen: list[tuple[int, bool]] = []

    def look() -> None:
        assert source.published.pair is not None
        assert source.published.ca_bundle is not None
        authorities = parse_certificates(source.published.ca_bundle)
        serving = parse_certificates(source.published.pair.certificate)[0]
        seen.append((len(authorities), serving.signed_by(authorities[0])))

    source.published.on_change(look)
    async with running(source):
        await clock.asleep()
        await clock.pass_by(245 * DAY)
        await clock.pass_by(MINUTE)
        await clock.pass_by(2 * DAY)
        await clock.pass_by(MINUTE)
    assert seen == [(1, True), (2, False), (2, True)]


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"tls.crt": b"garbage"},
        {"ca.crt": b"", "ca.key": b"", "tls.crt": b"", "tls.key": b""},
        render_stored(make_stored(NAMES, START, Lifetimes())) | {"tls.key": b"garbage"},
        render_stored(make_stored(NAMES, START, Lifetimes())) | {"ca.key": b"\xff\x00"},
    ],
)
async def test_broken_content_is_replaced_and_said(data: dict[str, bytes], caplog: pytest.LogCaptureFixture) -> None:
    secrets = FakeSecrets()
    secrets.overwrite(NAMESPACE, SECRET, data)
    source = replica(secrets, ManualClock())
    with caplog.at_level(logging.WARNING):
        await source.refresh()
    assert secrets.writes == ["patch"]
    assert source.published.pair is not None
    assert "replacing the webhook certificates" in caplog.messages


async def test_a_deleted_secret_is_made_anew() -> None:
    secrets, clock = FakeSecrets(), ManualClock()
    source = replica(secrets, clock)
    async with running(source):
        await clock.asleep()
        before = source.published.ca_bundle
        secrets.objects.clear()
        await clock.pass_by(MINUTE)
        assert source.published.ca_bundle == secrets.data(NAMESPACE, SECRET)["ca.crt"] != before


async def test_an_unreachable_api_server_is_tried_again_and_the_pair_stays(caplog: pytest.LogCaptureFixture) -> None:
    secrets, clock = FakeSecrets(), ManualClock()
    source = replica(secrets, clock)
    secrets.failures = [ConnectionFailed("no answer"), Forbidden("secrets: get is not allowed", status=403)]
    async with running(source):
        await clock.asleep()
        assert not source.published.loaded.is_set()
        assert "no answer" in str(source.published.failure)
        await clock.pass_by(timedelta(seconds=0.5))
        assert "not allowed" in str(source.published.failure)
        await clock.pass_by(timedelta(seconds=1))
        assert source.published.loaded.is_set()
        assert source.published.failure is None
        pair = source.published.pair
        secrets.failures = [ConnectionFailed("no answer")] * 3
        await clock.pass_by(MINUTE)
        assert source.published.pair is pair
        assert source.published.failure is not None


async def test_loads_and_failures_are_counted() -> None:
    secrets, clock, loads = FakeSecrets(), ManualClock(), list[bool]()
    secrets.failures = [ConnectionFailed("no answer")]
    source = SelfManaged(secrets.api, namespace=NAMESPACE, name=SECRET, names=NAMES, clock=clock, on_load=loads.append)
    async with running(source):
        await clock.asleep()
        await clock.pass_by(MINUTE)
    assert loads == [False, True]


def test_without_a_name_there_is_nothing_to_certify() -> None:
    with pytest.raises(ConfigurationError, match="at least one"):
        SelfManaged(FakeSecrets().api, namespace=NAMESPACE, name=SECRET, names=ServingNames(), clock=ManualClock())


async def test_certificates_are_judged_when_they_changed_or_something_is_due_and_else_left_alone() -> None:
    secrets, clock = FakeSecrets(), ManualClock()
    asked: list[Question] = []

    async def ask(question: Question) -> Answer:
        asked.append(question)
        return await ask_here(question)

    source = SelfManaged(secrets.api, namespace=NAMESPACE, name=SECRET, names=NAMES, clock=clock, ask=ask)
    for _ in range(3):
        await source.refresh()
    assert len(asked) == 1
    clock.jump(61 * DAY)
    await source.refresh()
    assert secrets.writes == ["create", "patch"]
    assert len(asked) == 2
    await replica(secrets, clock, ServingNames.of(["other.svc"])).refresh()
    await source.refresh()
    assert len(asked) == 3


@pytest.mark.parametrize("broken", [False, True])
async def test_what_else_is_in_the_secret_is_judged_once(broken: bool) -> None:
    secrets, clock = FakeSecrets(), ManualClock()
    asked: list[Question] = []

    async def ask(question: Question) -> Answer:
        asked.append(question)
        return await ask_here(question)

    good = render_stored(make_stored(NAMES, START, Lifetimes()))
    secrets.overwrite(NAMESPACE, SECRET, good | {"note": b"kept"} | ({"tls.key": b"garbage"} if broken else {}))
    source = SelfManaged(secrets.api, namespace=NAMESPACE, name=SECRET, names=NAMES, clock=clock, ask=ask)
    for _ in range(3):
        await source.refresh()
    assert len(asked) == 1
    assert secrets.data(NAMESPACE, SECRET)["note"] == b"kept"


async def test_one_that_cannot_be_renewed_is_told_of_before_its_end_and_at_it(caplog: pytest.LogCaptureFixture) -> None:
    class Kept(FakeSecrets):
        async def patch(self, *_: Any) -> None:
            raise Forbidden("secrets is forbidden: cannot patch", status=403)

    clock = ManualClock()
    source = replica(Kept(), clock)
    async with running(source):
        await clock.asleep()
        told: list[tuple[int, str]] = []
        for day in range(1, 92):
            caplog.clear()
            await clock.pass_by(DAY)
            told += [(day, each.msg) for each in caplog.records if each.levelno > logging.INFO]
    assert told == [
        (60, "webhook certificates not up to date"),
        *((day, "webhook certificate expires soon") for day in range(83, 90)),
        *((day, "webhook certificate is not valid now") for day in (90, 91)),
    ]


async def test_one_that_is_renewed_late_on_purpose_is_not_told_of_before(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    lifetimes = Lifetimes(renew_at=0.98)
    source = SelfManaged(
        FakeSecrets().api, namespace=NAMESPACE, name=SECRET, names=NAMES, clock=clock, lifetimes=lifetimes
    )
    async with running(source):
        await clock.asleep()
        for _ in range(100):
            await clock.pass_by(DAY)
    assert [each.message for each in caplog.records if each.levelname == "WARNING"] == []

"""Several replicas: when the leader goes another takes over, and nothing moves that need not."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest_asyncio
import yaml

from localcluster import ControlPlane
from localcluster.audit import audit_log, read_audit_log
from localcluster.installation import Installation, Sharder, SharderTimings
from shardsdk.lease.timings import LeaseTimings
from shardsdk.protocol.labels import SHARDER_HOLDER
from tests.integration.chronicle import LEASES
from tests.integration.harness import SYSTEM, Stage, set_stage
from tests.integration.processes import TIMINGS, eventually
from tests.integration.programs import until_suspended
from tests.integration.test_leases import LIMITS, chronicle, put_lease, states
from tests.integration.test_takeover import settled_on, taken_under_hold
from tests.permissions import AUDIT_POLICY

SECRETS: Final = "v1/secrets"
CONFIGMAPS: Final = "v1/configmaps"
QUICK: Final = LeaseTimings(lease_duration=4, renew_deadline=3, retry_period=0.3)
#: Who leads keeps its lease on a busy machine; nobody would start a process again that has lost it.
PATIENT: Final = replace(SharderTimings.for_lease(6), graceful_shutdown=TIMINGS.graceful_shutdown)
_WRITES: Final = frozenset({"create", "update", "patch", "delete"})


# -- processes, and what the API server says of each ------------------------------


@dataclass
class Replicas:
    """Sharder processes, each with a token of its own, so that the audit log tells whose a request was."""

    installation: Installation
    folder: Path
    tokens: dict[str, str] = field(default_factory=dict)

    async def start(self, name: str) -> Sharder:
        path = self.folder / f"{name}.kubeconfig"
        await self.installation.plane.service_account_kubeconfig(SYSTEM, "sharder", path)
        payload = yaml.safe_load(path.read_text())["users"][0]["user"]["token"].split(".")[1]
        self.tokens[name] = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["jti"]
        self.installation.sharder_kubeconfig = path
        return await self.installation.start_sharder(name)

    def writes(self, name: str, since: datetime) -> list[str]:
        """What the API server has taken from the replica since then; Events, which move nothing, left out.

        A request whose bytes were on their way when the process was stopped arrives when it goes on; it is
        conditional on a version that somebody else has replaced, so what counts is whether it was accepted.
        """
        credential = [f"JTI={self.tokens[name]}"]
        found = []
        plane = self.installation.plane
        for event in read_audit_log(audit_log(plane.folder, plane.apiserver.name)):
            theirs = event["user"].get("extra", {}).get("authentication.kubernetes.io/credential-id") == credential
            received = datetime.fromisoformat(event["requestReceivedTimestamp"])
            target = event.get("objectRef") or {}
            accepted = event.get("responseStatus", {}).get("code", 0) < 300
            writes = accepted and event["verb"] in _WRITES and target.get("resource") != "events"
            if theirs and received >= since and writes:
                found.append(f"{event['verb']} {event['requestURI']}")
        return found

    async def leads(self, replica: Sharder, *, yes: bool = True) -> None:
        """Wait until the replica says that it leads, or that it does not."""
        line = f'leader_election_master_status{{name="sharder"}} {float(yes)}'

        async def told() -> bool:
            return line in (await self.installation.metrics(replica)).splitlines()

        await eventually(told)

    async def gone_through(self, replica: Sharder, ring: str, objects: int) -> None:
        """Wait until the replica has looked at all `objects` of the ring in one pass."""

        async def told() -> bool:
            return f'resync_objects{{ringName="{ring}"}} {float(objects)}' in await self.installation.metrics(replica)

        await eventually(told)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def audited(tmp_path_factory: Any) -> AsyncIterator[tuple[ControlPlane, Path]]:
    """A control plane whose API server writes down every request."""
    folder = tmp_path_factory.mktemp("audit")
    async with ControlPlane(audit_policy=AUDIT_POLICY) as plane:
        yield plane, folder


@pytest_asyncio.fixture
async def replicas(audited: tuple[ControlPlane, Path]) -> AsyncIterator[Replicas]:
    plane, folder = audited
    async with Installation(plane, PATIENT) as installation:
        yield Replicas(installation, folder)


@pytest_asyncio.fixture
async def audited_stage(replicas: Replicas) -> AsyncIterator[Stage]:
    plane = replicas.installation.plane
    async with plane.admin() as admin:
        made = await admin.create("v1/namespaces", {"metadata": {"generateName": "test-"}})
        async with set_stage(plane, admin, made["metadata"]["name"]) as stage:
            yield stage


async def test_a_leader_that_is_killed_is_replaced_and_nothing_moves(audited_stage: Stage, replicas: Replicas) -> None:
    stage = audited_stage
    ring = await stage.ring()
    await settled_on(stage, ring, "one", "two", "three")
    first = await replicas.start("first")
    second = await replicas.start("second")
    await ring.in_place()
    versions = await ring.versions()
    async with chronicle(stage, ring) as seen:
        await first.process.kill()
        await replicas.leads(second)
        await replicas.gone_through(second, ring.name, len(versions))
        await seen.caught_up()
        assert await ring.versions() == versions
        assert all(states(seen.lease(name)) == ["ready"] for name in ("one", "two", "three"))

        await stage.shards[0].release()
        await ring.create(SECRETS, name="made-later")
        await ring.in_place()
        await seen.caught_up()
        taken_under_hold(seen, "one")


async def test_a_leader_that_slept_through_its_lease_writes_nothing_when_it_wakes_up(
    audited_stage: Stage, replicas: Replicas
) -> None:
    stage = audited_stage
    ring = await stage.ring()
    await settled_on(stage, ring, "stays", "other", "leaves", each=40)
    sleeper = await replicas.start("sleeper")
    await replicas.leads(sleeper)
    successor = await replicas.start("successor")
    await ring.in_place()
    async with chronicle(stage, ring) as seen:
        await stage.shards[2].release()
        await seen.until(lambda: bool(seen.moves()))
        sleeper.process.pause()
        await until_suspended(sleeper.process.pid)
        await seen.caught_up()
        assert any(each.shard == "leaves" for each in _latest(seen.of(SECRETS))), "it slept with work in its hands"
        await replicas.leads(successor)
        await ring.in_place()
        woken = datetime.now(UTC)
        sleeper.process.resume()
        await replicas.leads(sleeper, yes=False)
        await stage.shard(ring, "new")
        await ring.in_place()
        await seen.caught_up()
        taken_under_hold(seen, "leaves")
    assert replicas.writes("successor", woken), "the log tells who wrote"
    assert replicas.writes("sleeper", woken) == []


def _latest(versions: Any) -> list[Any]:
    return list({each.name: each for each in versions}.values())


# -- holds that a leader finds ----------------------------------------------------


async def test_a_hold_found_in_the_sharders_name_is_renewed_before_anything_moves(stage: Stage) -> None:
    ring = await stage.ring()
    await stage.shard(ring, "stays")
    held = {"holderIdentity": SHARDER_HOLDER, "leaseDurationSeconds": 60, "leaseTransitions": 3}
    await put_lease(stage, ring.name, "gone", held)
    shard, drain = ring.labels
    # As a leader leaves it that dies halfway: the owner drains, one child has moved.
    owner = await ring.create(SECRETS, name="owner", labels={shard: "gone", drain: "true"})
    await ring.create_child(owner, name="moved", labels={shard: "stays"})
    await ring.create_child(owner, name="left", labels={shard: "gone"})
    async with chronicle(stage, ring) as seen:
        await stage.sharder(webhook=False, takeover=LIMITS)
        await ring.in_place()
        await seen.until(lambda: seen.lease("gone")[-1].deleted)
        renewed = next(each for each in seen.lease("gone") if "renewTime" in each.body["spec"])
        assert renewed.ours
        assert seen.steps()
        assert all(after.at > renewed.at for _, after in seen.steps())
        (left,) = (after.at for _, after in seen.steps([CONFIGMAPS]))
        assert left < seen.of(SECRETS, "owner")[-1].at, "children first"


async def test_a_leader_that_crashes_amid_a_takeover_leaves_it_to_its_successor_who_renews_the_hold_first(
    stage: Stage,
) -> None:
    ring = await stage.ring()
    await settled_on(stage, ring, "stays", "leaves", each=25)
    settings: dict[str, Any] = {"webhook": False, "takeover": LIMITS, "timings": QUICK, "concurrent_moves": 1}
    first = await stage.sharder(**settings, identity="first")
    await ring.in_place()
    await stage.sharder(**settings, identity="second")
    async with chronicle(stage, ring) as seen:
        await stage.shards[1].release()
        await seen.until(lambda: bool(seen.moves([SECRETS])))
        await first.crash()
        changed_hands = await _led_by(stage, "second")
        await ring.in_place()
        await seen.until(lambda: seen.lease("leaves")[-1].deleted)
        taken_under_hold(seen, "leaves")
        before = {each.at for _, each in seen.steps() if each.at < changed_hands}
        after = [each.at for _, each in seen.steps() if each.at > changed_hands]
        assert before, "the first had begun"
        assert after, "and not ended"
        renewed = next(each.at for each in seen.lease("leaves") if each.ours and each.at > changed_hands)
        assert renewed < min(after)
        assert sum(each.shard == "stays" for each in _latest(seen.of(SECRETS))) == 50


async def _led_by(stage: Stage, identity: str) -> int:
    """Wait until the replica of this identity leads; returns when it began to."""
    lease: dict[str, Any] = await stage.admin.eventually(
        LEASES,
        lambda found: next(
            (
                each
                for each in found
                if each["metadata"]["name"] == f"sharder-{stage.namespace}"
                and each["spec"].get("holderIdentity") == identity
            ),
            None,
        ),
        SYSTEM,
    )
    return int(lease["metadata"]["resourceVersion"])


async def test_a_replica_that_stops_in_order_hands_over_at_once_and_nothing_moves(stage: Stage) -> None:
    ring = await stage.ring()
    await settled_on(stage, ring, "one", "two")
    # Whoever waited for this lease to run out would wait for longer than the test may take.
    slow = LeaseTimings(lease_duration=60, renew_deadline=40, retry_period=0.3)
    first = await stage.sharder(webhook=False, timings=slow, identity="first")
    await ring.in_place()
    await stage.sharder(webhook=False, timings=slow, identity="second")
    versions = await ring.versions()
    await first.stop()
    await _led_by(stage, "second")
    await ring.create(SECRETS, name="made-later")
    await ring.in_place()
    assert versions.items() <= (await ring.versions()).items()

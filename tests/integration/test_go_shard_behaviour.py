"""What a shard of the Go library does, item by item: ours does the same, so either can take the other's place.

BEHAVIOUR says where each item is shown.  What an API server's audit log can
tell is shown here: it sees what was sent, whatever sent it.

Source of the list: timebertt/kubernetes-controller-sharding v0.8, "Implement sharding in your controller".
"""

from __future__ import annotations

import importlib
import itertools
import re
import signal
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import pytest_asyncio

from localcluster import ControlPlane
from localcluster.audit import audit_log, read_audit_log
from shardsdk.lease.timings import LeaseTimings
from shardsdk.process.process import ExitCode
from shardsdk.protocol.labels import LEASE_RING_LABEL
from tests.integration.shard_stage import CONFIGMAPS, LEASES, RING, ROOT, SECRETS, Stage
from tests.integration.test_shard_runtime import shard_of

LEASE_SECONDS = 5
SHARD_RIGHTS = (ROOT / "rbac" / "shard.yaml").read_text()
RETRY_SECONDS = LEASE_SECONDS * 2 / 15

#: Item -> the tests that show it.
BEHAVIOUR = {
    "its Lease has its name, the ring's label, itself as holder, 15 seconds": (
        "test_shardlease:test_the_lease_says_what_the_contract_asks_for_and_go_shards_do",
        "test_go_shard_behaviour:test_the_defaults_are_the_go_librarys",
    ),
    "it renews its lease every retry period, conditional on resourceVersion": (
        "test_go_shard_behaviour:test_every_lease_write_is_conditional_and_renewals_keep_their_period",
    ),
    "it waits while its lease is held by another and unexpired": (
        "test_shard_runtime:test_a_shard_waits_while_another_holds_its_lease",
        "test_shardlease:test_a_lease_that_the_sharder_takes_ends_the_process_and_the_next_waits_for_it_back",
    ),
    "it stops before its lease can be taken, and then exits": (
        "test_shardlease:test_an_api_server_that_hangs_ends_the_work_before_the_lease_can_be_taken",
        "test_shard_runtime:test_a_lost_lease_ends_the_process_without_a_further_write",
        "test_busy_handover:test_a_busy_shard_that_sleeps_through_the_takeover_writes_nothing_when_it_wakes",
    ),
    "it releases its lease when its work has ended": (
        "test_shard_runtime:test_sigterm_lets_the_reconcile_end_and_then_releases_the_lease",
        "test_go_shard_behaviour:test_every_lease_write_is_conditional_and_renewals_keep_their_period",
    ),
    "it asks the API server for nothing but its own objects": (
        "test_go_shard_behaviour:test_it_asks_for_objects_with_its_own_label_only",
    ),
    "it reconciles an object only while that is its own and does not drain": (
        "test_shard_runtime:test_the_example_reconciles_its_own_secrets_and_labels_what_it_makes",
        "test_go_shard_behaviour:test_an_object_that_drains_when_it_is_first_seen_is_given_away_unreconciled",
    ),
    "a drain event passes every predicate": (
        "test_go_shard_behaviour:test_a_drain_passes_a_predicate_that_lets_nothing_pass",
    ),
    "it removes both labels in one patch that holds the resourceVersion": (
        "test_go_shard_behaviour:test_the_acknowledgement_is_one_patch_of_both_labels_under_the_version_it_saw",
    ),
    "it acknowledges a drain when it has stopped working on the object": (
        "test_shard_runtime:test_a_drain_is_acknowledged_only_after_the_reconcile_has_ended",
        "test_busy_handover:test_busy_shards_come_and_go_and_no_object_is_worked_on_by_two",
    ),
    "controlled objects carry its label, and are never drained": (
        "test_shard_runtime:test_the_example_reconciles_its_own_secrets_and_labels_what_it_makes",
        "test_go_shard_behaviour:test_the_acknowledgement_is_one_patch_of_both_labels_under_the_version_it_saw",
    ),
}

_POLICY = {
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [
        {
            "level": "Request",
            "resources": [
                {"group": "", "resources": ["secrets", "configmaps"]},
                {"group": "coordination.k8s.io", "resources": ["leases"]},
            ],
        },
        {"level": "None"},
    ],
}


@pytest.mark.parametrize("shown_by", sorted({each for tests in BEHAVIOUR.values() for each in tests}))
def test_what_is_said_to_show_it_is_there(shown_by: str) -> None:
    module, test = shown_by.split(":")
    assert callable(getattr(importlib.import_module(f"tests.integration.{module}"), test))


def test_the_defaults_are_the_go_librarys() -> None:
    timings = LeaseTimings()
    assert (timings.lease_duration, timings.renew_deadline, timings.retry_period) == (15, 10, 2)


class Audited:
    """What one shard has sent in its life, as the API server saw it: all that the log says after `begun` events."""

    def __init__(self, log: Path, begun: int) -> None:
        user = "system:serviceaccount:default:default-shard"
        self.events = [each for each in list(read_audit_log(log))[begun:] if each["user"]["username"] == user]
        self.acknowledged_version = ""

    def calls(self, resource: str, *verbs: str) -> list[dict[str, Any]]:
        return [each for each in self.events if each["objectRef"]["resource"] == resource and each["verb"] in verbs]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane() -> AsyncIterator[ControlPlane]:
    async with ControlPlane(audit_policy=_POLICY, controllers=()) as plane:
        rights = SHARD_RIGHTS.replace("name: checksum", "name: default-shard")
        await plane.apply(stdin=rights)
        yield plane


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def life(plane: ControlPlane, folder: Path) -> Audited:
    """A shard works on one object, gives it away, and stops; others' objects are there all the time."""
    kubeconfig = await plane.service_account_kubeconfig("default", "default-shard", folder / "kubeconfig")
    # Shards of other tests, which may have run before, used the same identity.
    log = audit_log(plane.folder, plane.apiserver.name)
    begun = len(list(read_audit_log(log)))
    async with plane.admin() as admin:
        stage = Stage(admin, "default", kubeconfig, folder)
        try:
            await stage.secret("mine")
            await stage.secret("other", shard="shard-2")
            await stage.secret("nobody", shard=None)
            shard = await stage.start("examples.checksum", "--lease-seconds", str(LEASE_SECONDS))
            await stage.until(CONFIGMAPS, "mine-checksum", lambda thing: shard_of(thing) == "shard-1")
            first = await stage.lease()
            for _ in range(3):  # renewals
                seen = (await stage.lease())["renewTime"]
                await stage.admin.eventually(
                    LEASES,
                    lambda leases, seen=seen: [each for each in leases if each["spec"]["renewTime"] > seen],  # type: ignore[misc]
                    "default",
                )
            assert first["holderIdentity"] == "shard-1"
            await stage.drain("mine")
            drained = await admin.get(SECRETS, "mine", "default")
            await stage.until(SECRETS, "mine", lambda thing: not thing["metadata"].get("labels"))
            shard.send(signal.SIGTERM)
            assert await shard.exit_code() == ExitCode.OK
        finally:
            await stage.end()
    audited = Audited(log, begun)
    # Between the drain and its read the shard may have been faster; the drain's version is then the one before.
    labels = drained["metadata"].get("labels") or {}
    audited.acknowledged_version = drained["metadata"]["resourceVersion"] if RING.drain in labels else ""
    return audited


async def test_it_asks_for_objects_with_its_own_label_only(life: Audited) -> None:
    reads = [*life.calls("secrets", "get", "list", "watch"), *life.calls("configmaps", "get", "list", "watch")]
    assert reads
    for read in reads:
        asked = parse_qs(urlsplit(read["requestURI"]).query)
        # Or for one that it is about to make, since another may be called so.
        named = asked.get("fieldSelector", [""])[0].startswith("metadata.name=")
        assert named or asked["labelSelector"] == [f"{RING.shard}=shard-1"]


async def test_the_acknowledgement_is_one_patch_of_both_labels_under_the_version_it_saw(life: Audited) -> None:
    (acknowledgement,) = life.calls("secrets", "create", "update", "patch", "delete")
    assert acknowledgement["verb"] == "patch"
    assert acknowledgement["objectRef"]["name"] == "mine"
    metadata = acknowledgement["requestObject"]["metadata"]
    assert metadata["labels"] == {RING.shard: None, RING.drain: None}
    assert metadata.keys() == {"labels", "resourceVersion"}
    assert life.acknowledged_version in ("", metadata["resourceVersion"])
    (made,) = life.calls("configmaps", "create", "update", "patch", "delete")
    assert made["requestObject"]["metadata"]["labels"] == {RING.shard: "shard-1"}


async def test_every_lease_write_is_conditional_and_renewals_keep_their_period(life: Audited) -> None:
    (created,) = life.calls("leases", "create")
    assert created["requestObject"]["metadata"]["labels"] == {LEASE_RING_LABEL: RING.ring}
    patches = life.calls("leases", "patch")
    assert all(each["requestObject"]["metadata"]["resourceVersion"] for each in patches)
    assert not life.calls("leases", "update", "delete")
    *renewals, release = (each["requestObject"]["spec"] for each in patches)
    assert (release["holderIdentity"], release["leaseDurationSeconds"]) == ("", 1)
    times = [each["renewTime"] for each in renewals if "renewTime" in each]
    assert len(times) >= 3
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", each) for each in times)
    moments = [datetime.fromisoformat(each) for each in times]
    # The first follows at once when the lease begins to promise its fence.
    steps = [later - earlier for earlier, later in itertools.pairwise(moments[1:])]
    assert min(steps) >= timedelta(seconds=RETRY_SECONDS / 2)


@pytest_asyncio.fixture
async def stage(plane: ControlPlane, folder: Path, tmp_path: Path) -> AsyncIterator[Stage]:
    kubeconfig = await plane.service_account_kubeconfig("default", "default-shard", tmp_path / "kubeconfig")
    async with plane.admin() as admin:
        made = Stage(admin, "default", kubeconfig, tmp_path)
        yield made
        await made.end()


async def test_an_object_that_drains_when_it_is_first_seen_is_given_away_unreconciled(stage: Stage) -> None:
    labels = {RING.shard: "shard-3", RING.drain: "true"}
    await stage.admin.create(SECRETS, {"metadata": {"name": "leaving", "labels": labels}}, "default")
    await stage.secret("staying", shard="shard-3")
    await stage.start("examples.checksum", name="shard-3")
    await stage.until(SECRETS, "leaving", lambda thing: not thing["metadata"].get("labels"))
    await stage.until(CONFIGMAPS, "staying-checksum", lambda thing: True)
    assert await stage.admin.find(CONFIGMAPS, "leaving-checksum", "default") is None


async def test_a_drain_passes_a_predicate_that_lets_nothing_pass(stage: Stage, tmp_path: Path) -> None:
    await stage.secret("deaf", shard="shard-4")
    chronicle = tmp_path / "chronicle"
    chronicle.touch()
    await stage.start("tests.integration.noting_shard", "deaf", "--chronicle", str(chronicle), name="shard-4")
    await stage.drain("deaf")
    await stage.until(SECRETS, "deaf", lambda thing: not thing["metadata"].get("labels"))
    assert chronicle.read_text() == ""

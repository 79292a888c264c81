"""`kubectl sharding cleanup` on a real control plane: what a deleted ring has left."""

from __future__ import annotations

from localcluster import AdminClient, ControlPlane
from tests.integration.harness import Stage
from tests.integration.plugin import Plugin, Said, broken_type, granted, make_account
from tests.integration.world import RINGS, Ring

RESOURCES = ("--resource", "secrets", "--resource", "cm")


async def labelled(ring: Ring) -> int:
    """Objects that carry a label of the ring."""
    found = [*await ring.objects(), *await ring.objects("v1/configmaps")]
    return sum(bool(set(each["metadata"].get("labels") or {}) & set(ring.labels)) for each in found)


async def test_it_refuses_while_the_ring_is_there(plugin: Plugin, ring: Ring) -> None:
    said = await plugin.sharding("cleanup", ring.name, "--yes")
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(f"kubectl-sharding: ring {ring.name} is there: its labels say which shard works on what")
    assert await labelled(ring) == 12


async def test_it_looks_first_and_takes_labels_off_with_yes(
    plugin: Plugin, stage: Stage, ring: Ring, admin: AdminClient
) -> None:
    for shard in stage.shards:
        await shard.crash()
    await admin.delete(RINGS, ring.name)
    await ring.patch("object-1", {"metadata": {"labels": {ring.labels[1]: "true", "team": "a"}}})

    looked = await plugin.sharding("cleanup", ring.name)
    assert (looked.code, looked.err) == (1, "")
    assert f"12 objects with labels of ring {ring.name}. Dry run, nothing was changed" in looked.out
    assert await labelled(ring) == 12

    done = await plugin.sharding("cleanup", ring.name, "--yes", "-o", "json")
    assert (done.code, done.err) == (0, "")
    cleaned = {each["resource"]: each["removed"] for each in done.data["resources"] if each["found"]}
    assert cleaned == {"secrets": 6, "configmaps": 6}
    assert await labelled(ring) == 0
    assert (await ring.get("object-1"))["metadata"]["labels"] == {"team": "a"}

    # While their leases last, the shards that crashed are said to run still.
    again = await plugin.until(lambda said: "still run" not in said.out, "sharding", "cleanup", ring.name, *RESOURCES)
    assert (again.code, again.out) == (0, f"No object has labels of ring {ring.name}.\n")


async def test_what_one_may_not_change_is_said(
    plugin: Plugin, stage: Stage, ring: Ring, admin: AdminClient, installed: ControlPlane
) -> None:
    await admin.delete(RINGS, ring.name)
    cleaner = plugin.as_user(await make_account(installed, admin, ring.namespace))
    rules = [
        {"apiGroups": ["sharding.timebertt.dev"], "resources": ["clusterrings"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]},
    ]
    unseen = await cleaner.sharding("cleanup", ring.name, *RESOURCES)
    assert unseen.code == 3
    assert 'resources: ["clusterrings"], verbs: ["get"]' in unseen.err
    async with granted(admin, ring.namespace, rules):
        said = await cleaner.sharding("cleanup", ring.name, *RESOURCES, "--yes")
    assert (said.code, said.err) == (1, "")
    assert "✗ 6 refused: patch secrets" in said.out
    assert "? not looked at: configmaps: you may not list them" in said.out
    assert await labelled(ring) == 12


async def test_a_type_whose_conversion_webhook_is_away_is_said_and_the_rest_is_cleaned(
    plugin: Plugin, stage: Stage, ring: Ring, admin: AdminClient
) -> None:
    for shard in stage.shards:
        await shard.crash()
    await admin.delete(RINGS, ring.name)
    async with broken_type(admin, ring.namespace) as group:
        resources = (*RESOURCES, "--resource", f"wrecks.{group}")

        def done(said: Said) -> bool:
            # Discovery shows a new type after a moment.
            assert said.code in (2, 3), said.out + said.err
            return said.code == 3

        said = await plugin.until(done, "sharding", "cleanup", ring.name, *resources, "--yes", "-o", "json")
    assert said.err == ""
    found = {each["resource"]: each for each in said.data["resources"]}
    assert found["secrets"]["removed"] == found["configmaps"]["removed"] == 6
    assert f"list wrecks.{group}: " in found["wrecks"]["unread"]
    assert await labelled(ring) == 0


async def test_force_goes_on_and_says_so(plugin: Plugin, stage: Stage, ring: Ring) -> None:
    for sharder in stage.sharders:
        await sharder.stop()
    said = await plugin.sharding("cleanup", ring.name, *RESOURCES, "--force", "--yes")
    assert (said.code, said.err) == (0, "")
    assert "! forced: it was not asked whether the ring is gone" in said.out
    assert await labelled(ring) == 0


async def test_a_name_that_no_ring_can_have_is_one_line(plugin: Plugin) -> None:
    said = await plugin.sharding("cleanup", "x" * 64)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("kubectl-sharding: ring name 'xxx")


async def test_a_group_whose_server_is_away_is_said(plugin: Plugin, admin: AdminClient) -> None:
    """Of an aggregated API server that does not answer, discovery says that what it knows is old."""
    services = "apiregistration.k8s.io/v1/apiservices"
    spec = {"group": "away.example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 10}
    away = {"service": {"namespace": "default", "name": "away"}, "insecureSkipTLSVerify": True}
    await admin.create(services, {"metadata": {"name": "v1.away.example.com"}, "spec": {**spec, **away}})

    def sees(said: Said) -> bool:
        return "away.example.com/v1" in said.out and said.code == 3

    try:
        await plugin.until(sees, "sharding", "cleanup", "long-gone")
    finally:
        await admin.delete(services, "v1.away.example.com")
    # Others' commands would be told the same.
    await plugin.until(lambda said: "away.example.com" not in said.out, "sharding", "cleanup", "long-gone")

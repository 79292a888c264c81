"""Operators, driven: what a reconcile function makes of objects."""

from __future__ import annotations

from typing import Any

import pytest

from shardsdk import Api, Context, Done, Manager, Operator, Scope
from shardsdk.admission import Review
from shardsdk.errors import ConfigurationError
from shardsdk.kinds import ClusterRole, CustomResource, Kind, Namespace, Node, crds_of
from shardsdk.operator.finalizers import finalizer_of
from shardsdk.process.process import ExitCode
from shardsdk.protocol.labels import parse_ring_name
from shardsdk.protocol.objects import GroupResource, Resource
from shardsdk.testing import Rig, drive
from tests.unit.shardsdk.operator.websites import (
    ConfigMap,
    Deployment,
    Secret,
    Website,
    WebsiteSpec,
    WebsiteStatus,
    publish,
    site,
    websites,
)


@pytest.mark.parametrize("sharded", [False, True])
def test_children_are_made_and_status_is_written(sharded: bool) -> None:
    rig = drive(websites(sharded=sharded), [site()])

    assert rig.get(ConfigMap, "home").data == {"index.html": "<h1>hi</h1>"}
    assert [each.metadata.name for each in rig.children(Website, "home", Deployment)] == ["home"]
    status = rig.get(Website, "home").status
    assert [(each.type, each.status, each.observed_generation) for each in status.conditions] == [("Ready", "False", 1)]
    assert status.observed_generation == 1
    assert rig.writes == [
        ("patch", "configmaps", "home"),
        ("patch", "deployments", "home"),
        ("patch", "websites", "home"),
    ]
    assert [each.subresource for each in rig.sent] == ["", "", "status"]


def test_only_what_is_sharded_carries_the_label_of_a_shard() -> None:
    unsharded, sharded = drive(websites(), [site()]), drive(websites(sharded=True), [site()])

    for kind in (Website, ConfigMap, Deployment):
        assert not unsharded.labels(kind, "home")
        assert sharded.labels(kind, "home") == {sharded.labels_of_ring.shard: "shard-1"}


async def serve(api: Api) -> None:
    """Something on every replica."""


def test_unsharded_it_is_elected_by_its_name() -> None:
    manager = websites().manager(namespace="team")

    assert manager.ring is None
    assert manager.election is not None
    assert (manager.election.name, manager.election.namespace) == ("websites", "team")


def test_sharded_it_is_a_shard_of_the_ring_of_its_name() -> None:
    assert websites(sharded=True).manager().ring == "websites"
    assert websites(sharded=True).manager().election is None
    operator = Operator("websites", sharded=True, ring="web", watch_namespace="team")
    operator.reconcile(Website)(publish)
    manager = operator.manager(shard="one")
    assert (manager.ring, manager.watch_namespaces) == ("web", ("team",))


def test_a_sharded_one_may_run_for_another_ring() -> None:
    operator = websites(sharded=True)
    operator.validate(Website)(allow)
    assert operator.manager(ring="web").ring == "web"
    assert operator.manager().ring == operator.ring == "websites"

    # Webhooks leave alone what only another shard of the ring writes.
    (ours,), (other,) = (operator.webhook_configurations("team", ring=ring) for ring in ("", "web"))
    assert parse_ring_name("websites").shard in str(ours)
    assert parse_ring_name("web").shard in str(other)
    assert parse_ring_name("websites").shard not in str(other)


async def allow(review: Review[Website]) -> None:
    """Whatever it is."""


@pytest.mark.parametrize(
    ("sharded", "ring", "message"),
    [(False, "web", "has a ring but is not sharded: pass sharded=True"), (True, "w" * 64, "use 1 to 63")],
)
def test_what_cannot_run_ends_with_a_sentence(
    sharded: bool, ring: str, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    operator = websites(sharded=sharded)
    with pytest.raises(ConfigurationError, match=message):
        operator.manager(ring=ring)
    with pytest.raises(SystemExit) as ended:
        operator.run(ring=ring)
    assert ended.value.code == ExitCode.CONFIGURATION
    assert message in caplog.text


def test_where_a_function_runs_can_be_said_for_it_alone() -> None:
    operator = Operator("websites", sharded=True)
    operator.reconcile(Website)(publish)
    operator.reconcile(ConfigMap, scope=Scope.LEADER)(nothing)
    manager = operator.manager()
    assert manager.ring == "websites"
    assert manager.election is not None

    everywhere = Operator("websites")
    everywhere.reconcile(ConfigMap, scope=Scope.EVERYWHERE)(nothing)
    everywhere.on_every_replica(serve)
    assert everywhere.manager().election is None


async def nothing(ctx: Context[Any]) -> None:
    """Does nothing."""


def test_tasks_are_the_managers() -> None:
    operator = websites()
    operator.on_every_replica(serve)
    operator.task(name="report")(serve)
    tasks = operator.manager()._tasks
    assert [(each.name, each.scope) for each in tasks] == [("serve", Scope.EVERYWHERE), ("report", None)]


def test_its_custom_resources_are_known() -> None:
    operator = websites()
    operator._reconcilers[0].watches(Secret, to=lambda secret: [])
    assert operator.kinds() == [Website]


class WebsiteV1Alpha1(
    CustomResource[WebsiteSpec, WebsiteStatus], group="example.com", version="v1alpha1", kind="Website", storage=True
):
    """As it was."""


def test_a_version_that_no_function_works_with_is_defined_and_nothing_else_follows_from_it() -> None:
    operator = websites()
    permissions = operator.permissions()
    operator.defines(WebsiteV1Alpha1)
    assert operator.kinds() == [Website, WebsiteV1Alpha1]
    (crd,) = crds_of(operator.kinds())
    assert [(each["name"], each["storage"]) for each in crd["spec"]["versions"]] == [("v1", False), ("v1alpha1", True)]
    assert operator.permissions() == permissions
    with pytest.raises(ConfigurationError, match="Secret is no custom resource"):
        operator.defines(Secret)


def verbs(rules: Any) -> dict[str, set[str]]:
    return {f"{name}.{rule['apiGroups'][0]}": set(rule["verbs"]) for rule in rules for name in rule["resources"]}


def test_what_it_may_do() -> None:
    operator = websites()
    operator._reconcilers[0].watches(Secret, to=lambda secret: [])
    operator.needs(Namespace, "get")
    operator.needs(GroupResource("example.com", "themes"), "list", "get")
    operator.needs(ConfigMap.resource, "deletecollection")
    allowed = operator.permissions()

    children = {"get", "list", "watch", "create", "patch", "delete"}
    assert verbs(allowed.objects) == {
        "websites.example.com": {"get", "list", "watch", "patch"},
        "websites/status.example.com": {"patch"},
        "websites/finalizers.example.com": {"update"},
        "configmaps.": {*children, "deletecollection"},
        "deployments.apps": children,
        "secrets.": {"get", "list", "watch"},
        "events.": {"create", "patch"},
        "themes.example.com": {"get", "list"},
    }
    assert verbs(allowed.own)["leases.coordination.k8s.io"] == {"get", "create", "patch", "list"}
    assert verbs(allowed.cluster) == {"namespaces.": {"get"}}
    (ring,) = (sharded := websites(sharded=True).permissions()).cluster
    assert verbs(sharded.own) == verbs(allowed.own), "else its role would blind what stands for election still"
    assert (ring["resources"], ring["resourceNames"]) == (["clusterrings"], ["websites"])


class Tenant(CustomResource[WebsiteSpec, WebsiteStatus], group="example.com", version="v1", scope="Cluster"):
    """One in no namespace."""


def test_what_is_in_no_namespace_is_granted_where_it_can_be() -> None:
    operator = Operator("tenants", watch_namespace="team")
    operator.reconcile(Tenant, owns=[ClusterRole, ConfigMap])(nothing)
    operator._reconcilers[0].watches(Node, to=lambda node: [])
    operator.needs(GroupResource("", "nodes/status"), "patch")
    operator.needs(Resource("example.com", "v1", "quotas", "Quota", namespaced=False), "get")
    allowed = operator.permissions()

    children = {"get", "list", "watch", "create", "patch", "delete"}
    assert verbs(allowed.objects) == {"configmaps.": children}
    assert verbs(allowed.cluster) == {
        "tenants.example.com": {"get", "list", "watch", "patch"},
        "tenants/status.example.com": {"patch"},
        "tenants/finalizers.example.com": {"update"},
        "clusterroles.rbac.authorization.k8s.io": children,
        "nodes.": {"get", "list", "watch"},
        "nodes/status.": {"patch"},
        "quotas.example.com": {"get"},
        "events.": {"create", "patch"},  # about a Tenant they are in the namespace `default`
    }


def test_whose_function_owns_nothing_needs_no_finalizers() -> None:
    operator = websites()
    operator.reconcile(Tenant)(nothing)
    granted = operator.permissions()
    named = {name for rule in (*granted.objects, *granted.cluster) for name in rule["resources"]}
    assert {name for name in named if name.endswith("/finalizers")} == {"websites/finalizers"}


def test_a_second_function_for_a_kind_has_a_name_and_a_finalizer_of_its_own() -> None:
    operator = Operator("websites")
    first = operator.reconcile(Website)(nothing)
    second = operator.reconcile(Website, name="second")(nothing)
    first.finalize(nothing)
    second.finalize(nothing)

    async def story(rig: Rig) -> None:
        found = rig.get(Website, "home").metadata.finalizers or []
        assert sorted(found) == ["example.com/websites", "example.com/websites_second"]
        rig.delete(Website, "home")
        await rig.settle()

    assert drive(operator, [site()], story).find(Website, "home") is None


def finalizers_of(*declared: tuple[str, str]) -> list[str]:
    """Of functions of operators, both by name."""
    return [finalizer_of(Website, operator, name) for operator, name in declared]


def test_functions_of_two_operators_have_finalizers_of_their_own_whatever_they_are_called() -> None:
    long = "s" * 63
    given = [
        ("sync", ""),
        ("vault", "sync"),
        ("mirror", "sync"),
        ("vault", long),
        ("mirror", long),
        (long, "a"),
        (long, "b"),
    ]
    made = finalizers_of(*given)
    assert made[:3] == ["example.com/sync", "example.com/vault_sync", "example.com/mirror_sync"]
    assert len(set(made)) == len(given)
    assert max(len(each.removeprefix("example.com/")) for each in made) == 63
    assert finalizers_of(*given) == made


@pytest.mark.parametrize("finalizers", [["example.com/second"], ["example.com/second", "example.com/websites_second"]])
def test_what_has_the_finalizer_of_an_earlier_version_is_cleaned_up_once_and_freed(finalizers: list[str]) -> None:
    operator, cleaned = Operator("websites"), list[str]()
    second = operator.reconcile(Website, name="second")(nothing)

    @second.finalize
    async def gone(ctx: Context[Website]) -> None:
        cleaned.append(ctx.name)

    left = (Website.resource, {"metadata": {"name": "home", "finalizers": finalizers}, "spec": {"html": ""}})

    async def story(rig: Rig) -> None:
        rig.delete(Website, "home")
        await rig.settle()

    assert drive(operator, [left], story).find(Website, "home") is None
    assert cleaned == ["home"]


def test_a_clean_up_that_says_when_to_come_back_is_not_done_whatever_it_returns() -> None:
    operator, calls = Operator("websites"), list[int]()

    @operator.reconcile(Website)(nothing).finalize
    async def gone(ctx: Context[Website]) -> None:
        calls.append(1)
        if len(calls) < 3:
            ctx.requeue(after=30)

    async def story(rig: Rig) -> None:
        rig.delete(Website, "home")
        await rig.clock.sleep(45)
        assert rig.find(Website, "home") is not None
        await rig.clock.sleep(45)

    rig = drive(operator, [site()], story)
    assert len(calls) == 3
    assert rig.find(Website, "home") is None


def test_a_clean_up_that_says_that_it_is_done_is_so_whatever_it_has_asked_for() -> None:
    operator = Operator("websites")

    @operator.reconcile(Website)(nothing).finalize
    async def gone(ctx: Context[Website]) -> Done:
        ctx.requeue(after=600)
        return Done()

    async def story(rig: Rig) -> None:
        rig.delete(Website, "home")
        await rig.settle()

    assert drive(operator, [site()], story).find(Website, "home") is None


def test_who_cleans_nothing_up_leaves_the_finalizer_of_another_operator_that_its_function_is_called_like() -> None:
    other = Operator("foo")
    other.reconcile(Website, name="websites")(nothing)
    held = {"metadata": {"name": "home", "finalizers": finalizers_of(("websites", ""))}, "spec": {"html": ""}}

    async def story(rig: Rig) -> None:
        rig.delete(Website, "home")
        await rig.settle()

    assert drive(other, [(Website.resource, held)], story).find(Website, "home") is not None


@pytest.mark.parametrize("early", [False, True])
def test_a_clean_up_that_is_called_like_its_operator_beside_a_function_without_a_name_is_refused(early: bool) -> None:
    """Of an earlier version both have the same finalizer."""
    operator = Operator("websites")
    named = operator.reconcile(Website, name="websites")(nothing)
    if early:
        named.finalize(nothing)
        with pytest.raises(ConfigurationError, match="another name"):
            operator.reconcile(Website)(nothing)
        return
    operator.reconcile(Website)(nothing).finalize(nothing)
    operator.controllers()
    named.finalize(nothing)
    with pytest.raises(ConfigurationError, match="another name"):
        operator.controllers()


def test_a_function_that_cleans_nothing_up_is_called_whatever_one_likes() -> None:
    operator = Operator("websites")
    operator.reconcile(Website, name="sweep old/pages")(nothing)
    assert [each.name for each in operator.controllers()] == ["sweep old/pages"]


@pytest.mark.parametrize("back_to_front", [False, True])
@pytest.mark.parametrize(
    ("functions", "says"),
    [
        ([(Website, [ConfigMap]), (Tenant, [ConfigMap])], "ConfigMap is owned by "),
        ([(Website, [ConfigMap]), (ConfigMap, [Secret])], "ConfigMap is reconciled, and Website owns it"),
    ],
)
def test_what_one_ring_cannot_spread_is_refused_where_it_is_written(
    functions: list[tuple[type[Kind], list[type[Kind]]]], says: str, back_to_front: bool
) -> None:
    """Else the first word of it would be the API server's, when the ring is installed."""
    first, second = functions[::-1] if back_to_front else functions
    sharded = Operator("websites", sharded=True)
    sharded.reconcile(first[0], owns=first[1])(nothing)
    with pytest.raises(ConfigurationError, match=f"{says}.*write two operators, with a ring each"):
        sharded.reconcile(second[0], owns=second[1])(nothing)
    sharded.reconcile(second[0], owns=second[1], scope=Scope.LEADER)(nothing)
    sharded.reconcile(first[0], owns=first[1], name="another")(nothing)
    elected = Operator("websites")
    elected.reconcile(first[0], owns=first[1])(nothing)
    elected.reconcile(second[0], owns=second[1])(nothing)


async def test_a_function_can_be_called_by_itself() -> None:
    made = Operator("websites").reconcile(Website)(nothing)
    assert await made(None) is None  # type: ignore[arg-type]


def test_an_outcome_that_says_done_does_not_undo_a_requeue() -> None:
    operator = Operator("websites")

    @operator.reconcile(Website)
    async def again(ctx: Context[Website]) -> Done:
        ctx.requeue(after=60)
        return Done()

    async def story(rig: Rig) -> None:
        await rig.clock.sleep(130)

    assert len(drive(operator, [site()], story).outcomes) == 3


def test_a_manager_can_be_given_its_controllers() -> None:
    manager = Manager("shards")
    for spec in websites().controllers():
        manager.add(spec)
    assert drive(manager, [site()]).get(ConfigMap, "home").data

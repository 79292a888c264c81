"""What is missing on a cluster is found before anything runs, and said with what to do about it."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Any

import pytest

from shardsdk import Context, Manager, Operator, controller_for
from shardsdk.admission import Review
from shardsdk.admission.settings import Serving
from shardsdk.commands.preflight import Needs, assigns_ranges, find_namesake, find_problems
from shardsdk.commands.program import Program
from shardsdk.errors import BadRequest, ConnectionFailed, Forbidden, NotFound, ServerError
from shardsdk.kinds import ConfigMap, Node, Secret
from shardsdk.kube.api import ACCESS_REVIEWS, Api, Operation, RawRequest
from shardsdk.kube.clock import SystemClock
from shardsdk.protocol.labels import INSTANCE_ANNOTATION, LEASE_RING_LABEL, SHARDER_HOLDER
from shardsdk.protocol.leases import render_instance, render_micro_time
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES, NAMESPACES, PartialObject, Resource
from shardsdk.rbac import ShardRole, grants, rights_of, shard_role
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time

WEBSITES = Resource("example.com", "v1", "websites", "Website")
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
RINGS = {"sharding.timebertt.dev/v1alpha1": ["clusterrings"]}
SERVED = {"v1": ["configmaps", "secrets"], "apps/v1": ["deployments"], "example.com/v1": ["websites"]}
OWN = frozenset({WEBSITES.group_resource})


class Cluster:
    """An API server that says what it serves, what somebody may do, and which rings there are."""

    def __init__(
        self, served: dict[str, list[str]], *, refuses: Collection[tuple[str, str]] = (), rings: tuple[str, ...] = ()
    ) -> None:
        self.served = served
        self.refuses = refuses
        self.rings = rings
        self.asked: list[dict[str, Any]] = []
        self.error: Exception | None = None

    async def send(self, operation: Operation[Any]) -> Any:
        if operation.resource == NAMESPACES:
            if operation.name == "secret":
                raise Forbidden("not permitted", status=403)
            if operation.name != "team":
                raise NotFound(f"no {operation.name}", status=404)
            return None
        if operation.resource == CLUSTERRINGS:
            if operation.name not in self.rings:
                raise NotFound(f"no {operation.name}", status=404)
            return None
        assert operation.resource == ACCESS_REVIEWS
        if self.error is not None:
            raise self.error
        assert isinstance(operation.body, dict)
        asked = operation.body["spec"]["resourceAttributes"]
        self.asked.append(asked)
        name = asked["resource"] + (f"/{asked['subresource']}" if asked["subresource"] else "")

        class Status:
            allowed = (asked["verb"], name) not in self.refuses

        class Review:
            status = Status

        return Review

    @staticmethod
    def listed(name: str) -> dict[str, str]:
        """`websites`, or `websites Website`, with its kind."""
        plural, _, kind = name.partition(" ")
        return {"name": plural, "kind": kind}

    async def exchange(self, request: RawRequest) -> bytes:
        if request.method == "POST":
            return json.dumps({"status": {"userInfo": {"username": "system:serviceaccount:team:websites"}}}).encode()
        path = request.path.removeprefix("/apis/").removeprefix("/api/")
        if path in self.served:
            return json.dumps({"resources": [self.listed(name) for name in self.served[path]]}).encode()
        versions = [{"version": each.partition("/")[2]} for each in self.served if each.startswith(f"{path}/")]
        if not versions:
            raise NotFound(path, status=404)
        return json.dumps({"versions": versions}).encode()


async def problems(cluster: Cluster, **needs: Any) -> list[str]:
    return await find_problems(Api(cluster), Needs("websites.py", **needs))  # type: ignore[arg-type]


async def test_a_cluster_that_has_everything_has_no_problems() -> None:
    cluster = Cluster({**SERVED, **RINGS}, rings=("websites",))
    rule = {"apiGroups": ["example.com"], "resources": ["websites"], "verbs": ["list", "watch"]}
    found = await problems(cluster, resources=[WEBSITES, CONFIGMAPS], own=OWN, grants=[(None, rule)], ring="websites")
    assert found == []
    assert {each["verb"] for each in cluster.asked} == {"list", "watch"}


@pytest.mark.parametrize(
    ("served", "resource", "says"),
    [
        (
            {"v1": []},
            WEBSITES,
            "the API server does not know websites.example.com; install its CustomResourceDefinition: `shardsdk run"
            " websites.py --install-crds`, or `shardsdk crd websites.py | kubectl apply --server-side -f -`",
        ),
        (
            {"example.com/v1alpha1": ["websites"], "example.com/v2": ["websites"]},
            WEBSITES,
            "websites.example.com is not served in version v1; there is v1alpha1 and v2: write one of these where"
            " Website is declared, or bring the definition up to date: `shardsdk run websites.py --install-crds`, or"
            " `shardsdk crd websites.py | kubectl apply --server-side -f -`",
        ),
        (
            {"example.com/v1": ["sites Website"]},
            WEBSITES,
            "the API server does not know websites.example.com; it has the kind Website as sites in example.com/v1:"
            " write plural 'sites' where Website is declared, or delete that definition, which deletes its objects, and"
            " install yours",
        ),
        (
            SERVED,
            Resource("apps", "v1", "deployment", "Deployment"),
            "the API server does not know deployment.apps; it has deployments: is the plural of Deployment right?",
        ),
        (
            SERVED,
            Resource("apps", "v1beta1", "deployments", "Deployment"),
            "deployments.apps is not served in version v1beta1; there is v1: write one of these where Deployment is"
            " declared",
        ),
        (
            SERVED,
            Resource("cert-manager.io", "v1", "certificates", "Certificate"),
            "the API server does not know certificates.cert-manager.io; install what brings it (a"
            " CustomResourceDefinition, as a rule), or correct group and plural of Certificate",
        ),
        (
            SERVED,
            Resource("", "v2", "secrets", "Secret"),
            "secrets is not served in version v2; there is v1: write one of these where Secret is declared",
        ),
    ],
    ids=["no definition", "another version", "another plural", "plural", "old version", "another project's", "core"],
)
async def test_what_is_not_served_is_said_with_what_to_do(
    served: dict[str, list[str]], resource: Resource, says: str
) -> None:
    assert await problems(Cluster(served), resources=[resource], own=OWN) == [says]


async def test_a_resource_that_is_used_twice_is_said_once() -> None:
    assert len(await problems(Cluster({"v1": []}), resources=[WEBSITES, WEBSITES], own=OWN)) == 1


@pytest.mark.parametrize(
    ("served", "says"),
    [
        (
            SERVED,
            "the API server does not know ClusterRings, so nobody would give this shard objects; install the sharder",
        ),
        (
            {**SERVED, **RINGS},
            "there is no ClusterRing 'websites', so nobody would give this shard objects; `shardsdk manifests"
            " websites.py --ring-only | kubectl apply --server-side -f -` makes it",
        ),
    ],
    ids=["no sharder", "no ring"],
)
async def test_a_shard_without_a_ring_is_told(served: dict[str, list[str]], says: str) -> None:
    (problem,) = await problems(Cluster(served), resources=[], ring="websites")
    assert problem.startswith(says)


async def test_rights_that_are_missing_are_rules_ready_to_paste() -> None:
    refuses = {
        ("watch", "websites"), ("patch", "websites/status"), ("create", "configmaps"), ("create", "secrets"),
        ("get", "leases"),
    }  # fmt: skip
    cluster = Cluster(SERVED, refuses=refuses)
    grants = [
        (None, {"apiGroups": ["example.com"], "resources": ["websites"], "verbs": ["list", "watch"]}),
        (None, {"apiGroups": ["example.com"], "resources": ["websites/status"], "verbs": ["patch"]}),
        (None, {"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": ["list", "create"]}),
        ("team", {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create"]}),
    ]
    (problem,) = await problems(cluster, resources=[], grants=grants)
    assert problem.splitlines() == [
        "system:serviceaccount:team:websites lacks rights that websites.py needs; grant it",
        "by a ClusterRole:",
        '- {apiGroups: ["example.com"], resources: [websites], verbs: [watch]}',
        '- {apiGroups: ["example.com"], resources: [websites/status], verbs: [patch]}',
        '- {apiGroups: [""], resources: [configmaps, secrets], verbs: [create]}',
        "by a Role in namespace team:",
        '- {apiGroups: ["coordination.k8s.io"], resources: [leases], verbs: [get]}',
        "(all that it needs: `shardsdk manifests websites.py --image IMAGE`)",
    ]
    assert {(each["resource"], each["namespace"]) for each in cluster.asked} == {
        ("websites", ""), ("configmaps", ""), ("secrets", ""), ("leases", "team"),
    }  # fmt: skip


async def test_what_a_clusterrole_grants_is_not_asked_for_in_a_role_again() -> None:
    cluster = Cluster(SERVED, refuses={("create", "events"), ("get", "leases")})
    events = {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]}
    leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"]}
    (problem,) = await problems(cluster, resources=[], grants=[(None, events), ("team", leases), ("team", events)])
    assert problem.splitlines()[1:-1] == [
        "by a ClusterRole:",
        '- {apiGroups: [""], resources: [events], verbs: [create]}',
        "by a Role in namespace team:",
        '- {apiGroups: ["coordination.k8s.io"], resources: [leases], verbs: [get]}',
    ]
    (problem,) = await problems(cluster, resources=[], grants=[("sites", events), ("team", events)])
    assert problem.count("events") == 2  # two Roles: neither grants the other's


async def test_a_right_to_one_object_is_asked_for_by_its_name() -> None:
    cluster = Cluster({**SERVED, **RINGS}, refuses={("get", "clusterrings")}, rings=("websites",))
    rule = {
        "apiGroups": ["sharding.timebertt.dev"], "resources": ["clusterrings"], "verbs": ["get"],
        "resourceNames": ["websites"],
    }  # fmt: skip
    (problem,) = await problems(cluster, resources=[], grants=[(None, rule)], ring="websites")
    assert (
        '- {apiGroups: ["sharding.timebertt.dev"], resources: [clusterrings], resourceNames: [websites], verbs: [get]}'
        in problem
    )
    assert [each["name"] for each in cluster.asked] == ["websites"]


async def test_whoever_may_not_ask_about_rights_may_begin() -> None:
    cluster = Cluster(SERVED)
    cluster.error = Forbidden("no", status=403)
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}
    assert await problems(cluster, resources=[], grants=[(None, rule)]) == []


async def test_no_answer_is_no_right() -> None:
    cluster = Cluster(SERVED)
    cluster.error = ConnectionFailed("reset")
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}
    with pytest.raises(ConnectionFailed):
        await problems(cluster, resources=[], grants=[(None, rule)])


async def test_an_identity_without_a_name_is_this_one() -> None:
    cluster = Cluster(SERVED, refuses={("list", "configmaps")})

    async def refuse(request: RawRequest) -> bytes:
        raise BadRequest("not served", status=400)

    cluster.exchange = refuse  # type: ignore[method-assign]
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}
    (problem,) = await problems(cluster, resources=[], grants=[(None, rule)])
    assert problem.startswith("this identity lacks rights")


async def test_a_namespace_that_is_not_there_is_told_before_its_lease_is_waited_for() -> None:
    assert await problems(Cluster(SERVED), resources=[WEBSITES], namespace="taem") == [
        "there is no namespace 'taem', where its Lease belongs; create it by `kubectl create namespace taem`, or name"
        " another by -n"
    ]
    assert await problems(Cluster(SERVED), resources=[WEBSITES], namespace="team") == []
    assert await problems(Cluster(SERVED), resources=[WEBSITES], namespace="secret") == []


def elected() -> Operator:
    operator = Operator("sites", watch_namespace="pages")

    @operator.reconcile(Secret)
    async def function(ctx: Context[Secret]) -> None: ...

    function.watches(Node, to=lambda node: [])
    return operator


def by_hand() -> Manager:
    async def function(context: Context[PartialObject]) -> None: ...

    spec = controller_for(Secret.resource).watches(Node.resource, lambda node: []).reconcile(function)
    return Manager("sites", watch_namespace="pages").add(spec)


@pytest.mark.parametrize("make", [elected, by_hand])
def test_what_is_in_no_namespace_is_asked_about_in_none(make: Callable[[], Operator | Manager]) -> None:
    """A RoleBinding would seem to grant it: the question names any namespace that it is asked with."""
    found = make()
    manager = found if isinstance(found, Manager) else found.manager()
    grants = Program("sites.py", "found", found).needs(manager, "team").grants
    places = {(name, space) for space, rule in grants for name in rule["resources"] if name in ("nodes", "secrets")}
    assert places == {("nodes", None), ("secrets", "pages")}


def sharded() -> Operator:
    operator = Operator("websites", sharded=True)

    @operator.reconcile(Secret, owns=[ConfigMap])
    async def function(ctx: Context[Secret]) -> None: ...

    return operator


def refused_by(role: list[dict[str, Any]], needs: Needs) -> set[tuple[str, str]]:
    """What `needs` asks for and no rule of a shard's role grants."""
    rules = [rule for each in role for rule in each.get("rules", ())]
    rights = {right for _, rule in [*needs.grants, *needs.perhaps] for right in rights_of(None, rule)}
    return {(right.verb, right.part) for right in rights if not any(grants(rule, right) for rule in rules)}


@pytest.mark.parametrize("by_ranges", [False, True])
async def test_an_operator_begins_with_the_role_of_its_shards_and_says_what_it_may_lack(
    by_ranges: bool, caplog: pytest.LogCaptureFixture
) -> None:
    found = sharded()
    needs = Program("websites.py", "found", found).needs(found.manager(), "team", by_ranges=by_ranges)
    main, child = Secret.resource.group_resource, ConfigMap.resource.group_resource
    role = shard_role(ShardRole("websites", "websites", "team", [main], [child], (), (), None, by_ranges))
    refused = refused_by(role, needs)
    assert ("delete", "configmaps") in refused
    cluster = Cluster({**SERVED, **RINGS}, refuses=refused, rings=("websites",))
    assert await problems(cluster, resources=[], grants=needs.grants, perhaps=needs.perhaps, ring="websites") == []
    (line,) = caplog.records
    assert line.levelname == "WARNING"
    assert "resources: [configmaps], verbs: [get, create, patch, delete]" in line.__dict__["missing"]
    assert line.__dict__["identity"] == "system:serviceaccount:team:websites"

    certain = ("patch", "secrets") if not by_ranges else ("watch", "ringassignments")
    cluster.refuses = refused | {certain}
    (problem,) = await problems(cluster, resources=[], grants=needs.grants, perhaps=needs.perhaps, ring="websites")
    assert certain[1] in problem
    assert "resources: [configmaps], verbs: [get, create, patch, delete]" in problem


async def test_who_serves_webhooks_is_certain_to_publish_them() -> None:
    operator = Operator("websites")

    @operator.validate(Secret)
    async def check(review: Review[Secret]) -> None: ...

    needs = Program("websites.py", "found", operator).needs(operator.manager(), "team", Serving())
    assert "validatingwebhookconfigurations" in {name for _, rule in needs.grants for name in rule["resources"]}


async def test_how_a_ring_assigns_is_read_where_it_may_be() -> None:
    server = MemoryServer()
    api = MemoryApi(server, SystemClock())
    for name, spec in (("labels", {}), ("ranges", {"assignment": "Ranges", "hashBy": "Namespace"})):
        server.create(CLUSTERRINGS, {"metadata": {"name": name}, "spec": spec})
    assert [await assigns_ranges(api, name) for name in ("labels", "ranges", "none")] == [False, True, False]
    api.error = ServerError("the API server is busy", status=500)
    with pytest.raises(ServerError):
        await assigns_ranges(api, "ranges")


@in_virtual_time
@pytest.mark.parametrize(
    ("ring", "holder", "instance", "said"),
    [
        ("websites", "one", "uid", "one (instance uid)"),
        ("websites", "one", "", None),
        ("tenants", "one", "uid", None),
        ("tenants", SHARDER_HOLDER, None, SHARDER_HOLDER),
    ],
    ids=[
        "the same ring's", "left to this process", "another ring's, which never becomes this one's",
        "waited for, until the sharder is done",
    ],
)  # fmt: skip
async def test_a_name_is_in_use_where_a_shard_waits_for_it(
    clock: VirtualClock, ring: str, holder: str, instance: str | None, said: str | None
) -> None:
    api, now = MemoryApi(MemoryServer(), clock), render_micro_time(clock.now())
    says = {} if instance is None else {INSTANCE_ANNOTATION: render_instance(instance, now)}
    lease = {
        "metadata": {"name": "one", "labels": {LEASE_RING_LABEL: ring}, "annotations": says},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": now},
    }
    api.server.create(LEASES, lease, "team")
    assert await find_namesake(api, "one", "team", "websites", clock.now()) == said

"""The ClusterRing's CRD and `parse_ring` accept the same rings, on a real API server.

Two gates for one input: the CRD answers the user at once, the parser guards
clusters whose CRD is an older one.  Every case goes through both.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from localcluster import AdminClient, AdminError, ControlPlane
from sharder.core.ringspec import MAX_CONTROLLED, MAX_RESOURCES, InvalidRing, parse_ring
from sharder.core.selectors import MAX_TERMS, MAX_VALUES
from shardsdk.protocol.labels import API_GROUP, API_VERSION, RING_KIND, RING_PLURAL
from shardsdk.protocol.namespaces import NAME_LABEL

CRDS = Path("crds")
RINGS = f"/apis/{API_GROUP}/{API_VERSION}/{RING_PLURAL}"
VECTORS = json.loads(Path("tests/vectors/labels.json").read_text())["labels"]

SECRETS = {"group": "", "resource": "secrets"}
CONFIGMAPS = {"group": "", "resource": "configmaps"}
DEPLOYMENTS = {"group": "apps", "resource": "deployments"}
REPLICASETS = {"group": "apps", "resource": "replicasets"}


@dataclass(frozen=True, slots=True)
class Case:
    """A ring's spec, and whether it is one."""

    title: str
    spec: Any
    good: bool
    name: str = "crd-contract"

    def ring(self) -> dict[str, Any]:
        body = {"apiVersion": f"{API_GROUP}/{API_VERSION}", "kind": RING_KIND, "metadata": {"name": self.name}}
        return body if self.spec is None else {**body, "spec": self.spec}


def listing(*resources: Any) -> dict[str, Any]:
    return {"resources": list(resources)}


def controlling(main: dict[str, Any], *controlled: Any) -> dict[str, Any]:
    return {**main, "controlledResources": list(controlled)}


def selecting(**selector: Any) -> dict[str, Any]:
    return {**listing(SECRETS), "namespaceSelector": selector}


def ranging(by: str, *resources: Any) -> dict[str, Any]:
    return {**listing(*resources), "assignment": "Ranges", "hashBy": by}


def terms(*expressions: dict[str, Any]) -> dict[str, Any]:
    return selecting(matchExpressions=list(expressions))


def term(key: str, operator: str, **values: Any) -> dict[str, Any]:
    return {"key": key, "operator": operator, **values}


def numbered(count: int, group: str = "example.com") -> list[dict[str, str]]:
    return [{"group": group, "resource": f"things{number}"} for number in range(count)]


GOOD = [
    Case("no spec", None, True),
    Case("empty spec", {}, True),
    Case("no resources", listing(), True),
    Case("a core resource", listing(SECRETS), True),
    Case("a core resource without group", listing({"resource": "secrets"}), True),
    Case("a core resource with group null", listing({"group": None, "resource": "secrets"}), True),
    Case("several groups", listing(SECRETS, DEPLOYMENTS, {"group": "a.b.c", "resource": "x"}), True),
    Case("a controlled resource", listing(controlling(SECRETS, CONFIGMAPS)), True),
    Case("no controlled resources", listing(controlling(SECRETS)), True),
    Case("controlled resources null", listing({**SECRETS, "controlledResources": None}), True),
    Case(
        "two mains with controlled resources of their own",
        listing(controlling(SECRETS, CONFIGMAPS), controlling(DEPLOYMENTS, REPLICASETS)),
        True,
    ),
    Case(
        "one plural in two groups",
        listing(
            controlling({"group": "apps", "resource": "things"}, {"group": "batch", "resource": "things"}),
            {"group": "", "resource": "things"},
        ),
        True,
    ),
    Case("as many mains as there may be", listing(*numbered(MAX_RESOURCES)), True),
    Case("as many controlled as there may be", listing(controlling(SECRETS, *numbered(MAX_CONTROLLED))), True),
    Case(
        "as many of both as there may be",
        listing(*(controlling(main, *numbered(MAX_CONTROLLED, main["resource"])) for main in numbered(MAX_RESOURCES))),
        True,
    ),
    Case("long group and resource", listing({"group": "g" * 63 + ".h" * 95, "resource": "r" * 63}), True),
    Case("the empty selector", selecting(), True),
    Case("selector null", {**listing(SECRETS), "namespaceSelector": None}, True),
    Case("matchLabels", selecting(matchLabels={"team": "a", "example.com/env": ""}), True),
    Case("a long label", selecting(matchLabels={"p" * 253 + "/" + "k" * 63: "v" * 63}), True),
    Case("a long key", terms(term("p" * 253 + "/" + "k" * 63, "Exists")), True),
    Case(
        "every operator",
        terms(
            term("a", "In", values=["x", "y"]),
            term("example.com/b", "NotIn", values=[""]),
            term("c", "Exists"),
            term("d", "DoesNotExist", values=[]),
        ),
        True,
    ),
    Case(
        "as many terms and values as there may be",
        selecting(
            matchLabels={f"l{number}": "" for number in range(MAX_TERMS)},
            matchExpressions=[term("a", "In", values=[f"v{number}" for number in range(MAX_VALUES)])] * MAX_TERMS,
        ),
        True,
    ),
    Case("no watch for unassigned controlled objects", {"watchUnassignedControlled": False}, True),
    Case("by labels, said", {**listing(SECRETS), "assignment": "Labels"}, True),
    Case("by labels, null", {**listing(SECRETS), "assignment": None, "hashBy": None}, True),
    Case("by ranges of namespaces", ranging("Namespace", controlling(SECRETS, CONFIGMAPS)), True),
    Case("by ranges of uids", ranging("UID", SECRETS), True),
    Case("by ranges of uids, nothing controlled", ranging("UID", controlling(SECRETS)), True),
    Case("by ranges, no resources", {"assignment": "Ranges", "hashBy": "UID"}, True),
    Case(
        "by ranges, namespaces by their names",
        {
            **ranging("Namespace", SECRETS),
            "namespaceSelector": {
                "matchLabels": {NAME_LABEL: "a"},
                "matchExpressions": [
                    term(NAME_LABEL, "In", values=["a", "b"]),
                    term(NAME_LABEL, "NotIn", values=["c"]),
                ],
            },
        },
        True,
    ),
    Case("by ranges, every namespace", {**ranging("UID", SECRETS), "namespaceSelector": {}}, True),
    *(Case(f"name {row['ring']}", {}, True, row["ring"]) for row in VECTORS if row["valid"]),
]

BAD = [
    Case("spec is a list", [], False),
    Case("resources is a map", {"resources": {}}, False),
    Case("a resource is a string", listing("secrets"), False),
    Case("no resource", listing({"group": "apps"}), False),
    Case("empty resource", listing({"group": "", "resource": ""}), False),
    Case("resource is a number", listing({"group": "", "resource": 1}), False),
    Case("a kind for a resource", listing({"group": "", "resource": "Secret"}), False),
    Case("a subresource", listing({"group": "", "resource": "pods/status"}), False),
    Case("every resource", listing({"group": "", "resource": "*"}), False),
    Case("a resource too long", listing({"group": "", "resource": "r" * 64}), False),
    Case("a version in the group", listing({"group": "apps/v1", "resource": "deployments"}), False),
    Case("every group", listing({"group": "*", "resource": "deployments"}), False),
    Case("a group in capitals", listing({"group": "Apps", "resource": "deployments"}), False),
    Case("a group too long", listing({"group": "g" * 254, "resource": "things"}), False),
    Case("a main twice", listing(SECRETS, SECRETS), False),
    Case("a main twice, once without group", listing(SECRETS, {"resource": "secrets"}), False),
    Case("a controlled twice", listing(controlling(SECRETS, CONFIGMAPS, CONFIGMAPS)), False),
    Case("main and controlled at once", listing(controlling(SECRETS, SECRETS)), False),
    Case(
        "main and controlled in two entries",
        listing(controlling(DEPLOYMENTS, REPLICASETS), REPLICASETS),
        False,
    ),
    Case(
        "controlled by two mains",
        listing(controlling(SECRETS, CONFIGMAPS), controlling(DEPLOYMENTS, CONFIGMAPS)),
        False,
    ),
    Case("a bad controlled resource", listing(controlling(SECRETS, {"group": "", "resource": "*"})), False),
    Case("controlled resources is a map", listing({**SECRETS, "controlledResources": {}}), False),
    Case("one main too many", listing(*numbered(MAX_RESOURCES + 1)), False),
    Case("one controlled too many", listing(controlling(SECRETS, *numbered(MAX_CONTROLLED + 1))), False),
    Case("selector is a string", {**listing(SECRETS), "namespaceSelector": "team=a"}, False),
    Case("a selector's unknown field", selecting(matchNames=["a"]), False),
    Case("matchLabels is a list", selecting(matchLabels=["a"]), False),
    Case("matchLabels with a number", selecting(matchLabels={"a": 1}), False),
    Case("matchLabels with a key that is none", selecting(matchLabels={"bad key!": "x"}), False),
    Case("matchLabels with two prefixes", selecting(matchLabels={"a/b/c": "x"}), False),
    Case("matchLabels with a prefix in capitals", selecting(matchLabels={"Example.com/env": "x"}), False),
    Case("matchLabels with a key too long", selecting(matchLabels={"k" * 64: "x"}), False),
    Case("matchLabels with a prefix too long", selecting(matchLabels={"p" * 254 + "/k": "x"}), False),
    Case("matchLabels with a value that is none", selecting(matchLabels={"a": "not this"}), False),
    Case("no key", terms({"operator": "Exists"}), False),
    Case("a key that is none", terms(term("bad key!", "Exists")), False),
    Case("a key whose prefix is too long", terms(term("p" * 254 + "/k", "Exists")), False),
    Case("a value that is none", terms(term("a", "In", values=["not this"])), False),
    Case("empty key", terms(term("", "Exists")), False),
    Case("no operator", terms({"key": "a"}), False),
    Case("an unknown operator", terms(term("a", "Equals", values=["b"])), False),
    Case("In without values", terms(term("a", "In")), False),
    Case("NotIn with no values", terms(term("a", "NotIn", values=[])), False),
    Case("Exists with values", terms(term("a", "Exists", values=["b"])), False),
    Case("values is a string", terms(term("a", "In", values="b")), False),
    Case("one term too many", terms(*[term("a", "Exists")] * (MAX_TERMS + 1)), False),
    Case("one label too many", selecting(matchLabels={f"l{number}": "" for number in range(MAX_TERMS + 1)}), False),
    Case(
        "one value too many",
        terms(term("a", "In", values=["v"] * (MAX_VALUES + 1))),
        False,
    ),
    Case("a word for a boolean", {"watchUnassignedControlled": "no"}, False),
    Case("an unknown assignment", {**listing(SECRETS), "assignment": "Hash"}, False),
    Case("assignment is a number", {**listing(SECRETS), "assignment": 1}, False),
    Case("by ranges of nothing said", {**listing(SECRETS), "assignment": "Ranges"}, False),
    Case("by ranges of names", ranging("Name", SECRETS), False),
    Case("a hash in lower case", ranging("uid", SECRETS), False),
    Case("a hash by labels", {**listing(SECRETS), "hashBy": "Namespace"}, False),
    Case("a hash by labels, said", {**listing(SECRETS), "assignment": "Labels", "hashBy": "UID"}, False),
    Case("by ranges of uids, and controlled ones", ranging("UID", controlling(SECRETS, CONFIGMAPS)), False),
    Case("a name too long", {}, False, "x" * 64),
    *(Case(f"name {row['ring']}", {}, False, row["ring"]) for row in VECTORS if not row["valid"]),
    Case("a name cut behind a dot", {}, False, "a" * 41 + ".b"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def crd(control_plane: ControlPlane) -> None:
    await control_plane.apply(CRDS)


async def dry_run(admin: AdminClient, ring: dict[str, Any]) -> dict[str, Any]:
    """What would be stored; strict about unknown fields, as kubectl is."""
    stored: dict[str, Any] = await admin.request(
        "POST", RINGS, body=ring, query={"dryRun": "All", "fieldValidation": "Strict"}
    )
    return stored


@pytest.mark.usefixtures("crd")
@pytest.mark.parametrize("case", GOOD, ids=lambda case: case.title)
async def test_good_ring_is_accepted_by_both(admin: AdminClient, case: Case) -> None:
    stored = parse_ring(await dry_run(admin, case.ring()))

    assert replace(stored, uid="", generation=0) == parse_ring(case.ring())


@pytest.mark.usefixtures("crd")
@pytest.mark.parametrize("case", BAD, ids=lambda case: case.title)
async def test_bad_ring_is_refused_by_both(admin: AdminClient, case: Case) -> None:
    with pytest.raises(InvalidRing):
        parse_ring(case.ring())

    with pytest.raises(AdminError) as refused:
        await dry_run(admin, case.ring())
    assert refused.value.status in (400, 422)


@pytest.mark.usefixtures("crd")
@pytest.mark.parametrize(
    ("spec", "name", "words"),
    [
        (listing(controlling(SECRETS, SECRETS)), "r", "both as main and as controlled resource"),
        (
            listing(controlling(SECRETS, CONFIGMAPS), controlling(DEPLOYMENTS, CONFIGMAPS)),
            "r",
            "controlled by two main resources",
        ),
        ({}, "x" * 64, "use at most 63 characters"),
        ({}, "a" * 41 + "-b", "end in a letter or digit"),
        (terms(term("a", "In")), "r", "take at least one value"),
        (selecting(matchLabels={"bad key!": "x"}), "r", "cannot be the name of a label"),
        ({"assignment": "Ranges"}, "r", "is required there; write Namespace, or UID"),
        (ranging("UID", controlling(SECRETS, CONFIGMAPS)), "r", "write hashBy Namespace, or leave controlledResources"),
    ],
)
async def test_refusal_says_what_to_change(admin: AdminClient, spec: Any, name: str, words: str) -> None:
    with pytest.raises(AdminError, match=words):
        await dry_run(admin, Case("", spec, False, name).ring())


CHANGES = [
    ("to ranges", None, ranging("UID"), "spec.assignment cannot be changed"),
    ("to ranges, said before", {"assignment": "Labels"}, ranging("UID"), "spec.assignment cannot be changed"),
    ("to labels", ranging("Namespace"), {"assignment": "Labels"}, "spec.assignment cannot be changed"),
    ("to no spec", ranging("Namespace"), None, "spec.assignment cannot be changed"),
    ("to another hash", ranging("Namespace"), ranging("UID"), "spec.hashBy cannot be changed"),
    ("to other resources", ranging("Namespace"), ranging("Namespace", SECRETS), None),
    ("to labels, said", None, {"assignment": "Labels"}, None),
]


@pytest.mark.usefixtures("crd")
@pytest.mark.parametrize("case", CHANGES, ids=lambda case: case[0])
async def test_how_a_ring_assigns_stays(admin: AdminClient, case: tuple[str, Any, Any, str | None]) -> None:
    name, (_, before, after, words) = "crd-contract-changed", case
    try:
        created = await admin.request("POST", RINGS, body=Case("", before, True, name).ring())
        changed = {**Case("", after, True, name).ring(), "metadata": created["metadata"]}
        if words is None:
            await admin.request("PUT", f"{RINGS}/{name}", body=changed)
            return
        with pytest.raises(AdminError, match=words):
            await admin.request("PUT", f"{RINGS}/{name}", body=changed)
    finally:
        await admin.request("DELETE", f"{RINGS}/{name}")


@pytest.mark.usefixtures("crd")
async def test_status_is_a_subresource_and_the_columns_show_it(admin: AdminClient, control_plane: ControlPlane) -> None:
    name = "crd-contract-columns"
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "ReconciliationSucceeded",
        "message": "in force",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    status = {"observedGeneration": 1, "shards": 3, "availableShards": 2, "unassigned": 7, "conditions": [condition]}
    ring = Case("", listing(SECRETS), True, name).ring()
    try:
        created = await admin.request("POST", RINGS, body={**ring, "status": status})
        assert "status" not in created

        await admin.request(
            "PATCH",
            f"{RINGS}/{name}/status",
            body={"status": status},
            content_type="application/merge-patch+json",
        )
        shown = (await control_plane.kubectl("get", "ring", name, "--no-headers")).split()
        assert shown[:4] == [name, "True", "2", "3"]
        wide = await control_plane.kubectl("get", "ring", name, "-o", "wide")
        assert [*wide.split()[:5]] == ["NAME", "READY", "AVAILABLE", "SHARDS", "AGE"]
        assert wide.rstrip().endswith("in force")
    finally:
        await admin.request("DELETE", f"{RINGS}/{name}")


@pytest.mark.parametrize("path", sorted(CRDS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_field_is_described(path: Path) -> None:
    [version] = yaml.safe_load(path.read_text())["spec"]["versions"]
    undescribed = [
        path
        for path, schema in fields("", version["schema"]["openAPIV3Schema"])
        if "description" not in schema and not path.startswith(".metadata")
    ]
    assert not undescribed


def fields(path: str, schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, child in schema.get("properties", {}).items():
        yield f"{path}.{name}", child
        yield from fields(f"{path}.{name}", child)
        yield from fields(f"{path}.{name}[]", child.get("items", {}))

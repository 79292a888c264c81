"""`kubectl sharding check`: what fails, or has a name that cannot be used, keeps nothing else from being checked."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from sharder.core.webhookconfig import go_webhook_name, render_webhook
from sharder.kubectl.check.command import run_check
from sharder.kubectl.leader import Sharder
from sharder.kubectl.outcomes import ExitCode
from shardsdk.errors import ShardingError
from shardsdk.kube.definitions import CRDS
from shardsdk.protocol.labels import LEADER_LABEL, LEADS_SHARDER, parse_ring_name
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES, Resource
from shardsdk.testing.memory import MemoryServer
from tests.unit.sharder.kubectl.rings import (
    FAILURES,
    SECRETS,
    SPEC,
    UNUSABLE,
    RestrictedApi,
    Wall,
    lease,
    raw_ring,
    resolved_ring,
    said,
    session_of,
)

SHARDER = Sharder(("sharding-system", "sharder"), ("sharding-system", "sharder"))
WEBHOOKS = Resource(
    "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration",
    namespaced=False,
)  # fmt: skip
CLIENT = {
    "service": {"namespace": "sharding-system", "name": "sharder", "path": "/webhooks/sharder/clusterring/checksum"}
}
Found = dict[tuple[str | None, str], list[tuple[str, str]]]


class Allowing(RestrictedApi):
    """The sharder may do everything."""

    async def create(self, resource: Any, *args: Any, **kwargs: Any) -> Any:
        self._fail("create", resource.plural)
        return {"status": {"allowed": True}}


def api_of(*rings: str) -> Allowing:
    """`checksum` with its webhook, `another` with Secrets alone, and what else is in `rings`; each has a shard."""
    server = MemoryServer()
    server.arrange(CLUSTERRINGS, raw_ring(), None)
    for name in ("another", *rings):
        server.arrange(CLUSTERRINGS, raw_ring(name, spec={"resources": [{"resource": "secrets"}]}), None)
    for each in (lease("one"), lease("other", ring="another"), lease("sharder", namespace="sharding-system", ring="")):
        body: dict[str, Any] = msgspec.to_builtins(each)
        if each.metadata.name == "sharder":
            body["metadata"]["labels"] = {}
        server.create(LEASES, body, each.metadata.namespace)
    server.create(WEBHOOKS, render_webhook(resolved_ring(SPEC), client_config=CLIENT, ca_bundle=b""), None)
    return Allowing(server, Wall(), set())


async def check(api: Allowing, ring: str | None = None) -> tuple[ExitCode, Found]:
    """The exit code, and level and message of what was found, by ring and topic."""
    session = session_of(api, output="json")
    code, found = await run_check(session, ring, SHARDER, probe=False), Found()
    for each in json.loads(said(session))["findings"]:
        found.setdefault((each["ring"], each["topic"]), []).append((each["level"], each["message"]))
    return code, found


def in_order(found: Found, ring: str) -> bool:
    """Whether everything of a ring was looked at: spec, shards and objects."""
    return all([level for level, _ in found[ring, topic]] == ["ok"] for topic in ("spec", "shards", "objects"))


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize(("verb", "topic"), [("list", "objects"), ("discover", "spec")])
async def test_a_resource_that_fails_is_not_known_and_other_rings_are_checked(
    verb: str, topic: str, failure: ShardingError
) -> None:
    api = api_of()
    before = (await check(api))[1]
    api.failing = {(verb, "configmaps"): failure}
    _, found = await check(api)
    assert in_order(found, "another")
    assert found["checksum", topic] == [("unknown", f"configmaps: {failure}")]
    assert found["checksum", "shards"] == before["checksum", "shards"]
    assert not any("does not serve" in message for each in found.values() for _, message in each)
    assert not any("is not what the ring asks for" in message for each in found.values() for _, message in each)
    assert (await check(api, "another"))[0] is (await check(api_of(), "another"))[0]


async def test_what_fails_is_unknown_with_the_answer_and_no_right_is_asked_for() -> None:
    topics = {
        ("get", "leases"): (None, "sharder"),
        ("create", "subjectaccessreviews"): (None, "permissions"),
        ("list", "mutatingwebhookconfigurations"): (None, "rings"),
        ("get", "mutatingwebhookconfigurations"): ("checksum", "webhook"),
        ("get", "services"): ("checksum", "webhook"),
        ("list", "leases"): ("checksum", "shards"),
        ("list", "namespaces"): ("checksum", "namespaces"),
    }
    for question, where in topics.items():
        api = api_of()
        api.failing = {question: FAILURES[1]}
        code, found = await check(api)
        assert code in (ExitCode.UNKNOWN, ExitCode.WRONG)
        unknown = [message for level, message in found[where] if level == "unknown"]
        assert any(str(FAILURES[1]) in message for message in unknown), (question, found[where])
        assert not any("may not" in message for message in unknown), question


async def test_rings_that_fail_are_not_known() -> None:
    api = api_of()
    api.failing = {("list", "clusterrings"): FAILURES[1]}
    code, found = await check(api)
    assert code is ExitCode.UNKNOWN
    assert found[None, "rings"] == [("unknown", f"clusterrings: {FAILURES[1]}")]


@pytest.mark.parametrize("name", UNUSABLE)
async def test_a_ring_whose_name_makes_no_label_is_its_own_problem(name: str) -> None:
    code, found = await check(api_of(name))
    assert code is ExitCode.WRONG
    assert in_order(found, "another")
    [(level, message)] = found[name, "spec"]
    assert (level, message.startswith("metadata.name: ring name")) == ("problem", True)


async def test_while_a_resource_is_not_served_nobody_says_that_the_webhook_is_wrong() -> None:
    """The sharder keeps what it knew of it."""
    api = api_of()
    api.served = [SECRETS, CLUSTERRINGS]
    _, found = await check(api)
    assert any("does not serve configmaps" in message for _, message in found["checksum", "spec"])
    told = [(level, message) for level, message in found["checksum", "webhook"] if "what the ring asks for" in message]
    assert [level for level, _ in told] == ["unknown"]


async def test_another_sharders_webhook_configuration_for_a_ring_by_ranges_is_named() -> None:
    """Such a ring has none of ours to look at."""
    api = api_of()
    spec = {"resources": [{"resource": "secrets"}], "assignment": "Ranges", "hashBy": "Namespace"}
    api.server.arrange(CLUSTERRINGS, raw_ring("ranged", spec=spec), None)
    assert ("ranged", "webhook") not in (await check(api, "ranged"))[1]
    name = go_webhook_name(parse_ring_name("ranged"))
    api.server.create(WEBHOOKS, {"metadata": {"name": name}, "webhooks": []}, None)
    code, found = await check(api, "ranged")
    [(level, message)] = found["ranged", "webhook"]
    assert (code, level) == (ExitCode.WRONG, "problem")
    assert name in message
    api.failing = {("get", "mutatingwebhookconfigurations"): FAILURES[1]}
    [(level, message)] = (await check(api, "ranged"))[1]["ranged", "webhook"]
    assert (level, str(FAILURES[1]) in message) == ("unknown", True)


NUMBER = "alpha.sharding.timebertt.dev/definition-version"


def defined(api: Allowing, name: str, number: str | None) -> None:
    annotations = {} if number is None else {NUMBER: number}
    body = {"metadata": {"name": f"{name}.sharding.timebertt.dev", "annotations": annotations}}
    api.server.create(CRDS, body)


@pytest.mark.parametrize(
    ("numbers", "level", "words"),
    [
        ({"clusterrings": "99", "ringassignments": "99"}, "ok", "2 definitions as new as this program's, or newer"),
        ({"clusterrings": "99", "ringassignments": "1"}, "warning", "ringassignments.sharding.timebertt.dev is number"),
        ({"clusterrings": None, "ringassignments": "99"}, "warning", "clusterrings.sharding.timebertt.dev has no"),
        ({"clusterrings": "99"}, "warning", "ringassignments.sharding.timebertt.dev is not installed"),
    ],
)
async def test_definitions_that_are_older_than_this_program_are_named(
    numbers: dict[str, str | None], level: str, words: str
) -> None:
    api = api_of()
    for name, number in numbers.items():
        defined(api, name, number)
    _, found = await check(api, "another")
    [(level_found, message)] = found[None, "definitions"]
    assert (level_found, words in message) == (level, True), message


async def test_the_command_that_brings_definitions_up_to_date_is_named() -> None:
    session = session_of(api_of(), output="json")
    await run_check(session, "another", SHARDER, probe=False)
    remedies = [each["remedy"] for each in json.loads(said(session))["findings"] if each["topic"] == "definitions"]
    assert remedies
    assert all("sharder crds --apply" in each for each in remedies)


async def test_definitions_that_may_not_be_read_are_passed_over_and_ones_that_fail_are_not_known() -> None:
    question = ("get", "customresourcedefinitions")
    api = api_of()
    api.denied = {question}
    assert [level for level, _ in (await check(api))[1][None, "definitions"]] == ["skipped"]
    api = api_of()
    api.failing = {question: FAILURES[1]}
    [(level, message)] = (await check(api))[1][None, "definitions"]
    assert (level, str(FAILURES[1]) in message) == ("unknown", True)


async def test_that_the_sharder_may_not_write_statuses_is_a_problem_where_a_ring_shows_that() -> None:
    class Refusing(Allowing):
        async def create(self, resource: Any, body: Any, *args: Any, **kwargs: Any) -> Any:
            attributes = body["spec"]["resourceAttributes"]
            allowed = (attributes["resource"], attributes["subresource"]) != ("clusterrings", "status")
            return {"status": {"allowed": allowed}}

    api = Refusing(api_of().server, Wall(), set())
    [(level, message)] = (await check(api))[1][None, "permissions"]
    assert (level, message.rpartition("; ")[2]) == ("warning", "the sharder that leads may be another one")
    api.server.arrange(CLUSTERRINGS, raw_ring("new", observedGeneration=0), None)
    code, found = await check(api)
    [(level, message)] = found[None, "permissions"]
    assert (code, level, message.rpartition(" of ")[2]) == (ExitCode.WRONG, "problem", "new")


@pytest.mark.parametrize(
    ("labels", "renewed", "found"),
    [({LEADER_LABEL: LEADS_SHARDER}, 2.0, True), ({LEADER_LABEL: LEADS_SHARDER}, 60.0, False), ({}, 2.0, False)],
    ids=["leads", "gone", "unmarked"],
)
async def test_a_second_sharder_that_leads_is_a_problem_that_names_both(
    labels: dict[str, str], renewed: float, found: bool
) -> None:
    api = api_of()
    body: dict[str, Any] = msgspec.to_builtins(lease("green", namespace="elsewhere", ring="", renewed=renewed))
    body["metadata"]["labels"] = labels
    api.server.create(LEASES, body, "elsewhere")
    of_sharder = (await check(api))[1][None, "sharder"]
    problems = [message for level, message in of_sharder if level == "problem"]
    named = (
        "more than one leads, by the leases elsewhere/green, sharding-system/sharder: each undoes what the other does"
    )
    assert problems == ([named] if found else [])


async def test_whether_another_leads_is_left_open_where_leases_cannot_be_listed() -> None:
    api = api_of()
    api.failing = {("list", "leases"): FAILURES[0]}
    assert ("unknown", f"the leases of all sharders: {FAILURES[0]}") in (await check(api))[1][None, "sharder"]
    api.failing, api.denied = {}, {("list", "leases")}
    assert "you may not list leases" in str((await check(api))[1][None, "sharder"])

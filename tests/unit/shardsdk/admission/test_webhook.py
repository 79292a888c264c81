from __future__ import annotations

import asyncio
import base64
import dataclasses
import functools
import logging
import sys
from concurrent.futures import Future
from typing import Any

import msgspec
import pytest

from shardsdk.admission.review import Operation, Outcome, parse_review, render_verdict
from shardsdk.admission.webhook import Denied, FailurePolicy, Review, Sort, Webhook
from shardsdk.kinds import CustomResource, EndpointSlice, Ingress, Kind, LimitRange, Model, Pod, PolicyRule, Role
from shardsdk.kube.decoding import codec_of
from shardsdk.protocol.objects import ObjectMeta, Resource
from shardsdk.testing.patching import apply_json_patch
from tests.unit.shardsdk.admission.kinds import Website, review, webhook, website


class PickySpec(Model):
    html: str


class Odd(Kind):
    resource = Resource("example.com", "v1", "odds", "Odd")
    inside: Any = msgspec.field(default_factory=object)


async def ask(asked: Webhook, body: bytes) -> dict[str, Any]:
    request = parse_review(body)
    answer: dict[str, Any] = msgspec.json.decode(render_verdict(request.uid, await asked.answer(request)))
    assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert answer["response"].pop("uid") == "u-1"
    return answer["response"]  # type: ignore[no-any-return]


async def test_a_function_gets_what_is_to_be_stored_what_is_stored_and_who_asks() -> None:
    seen: list[Review[Website]] = []
    answer = await ask(webhook(seen.append), review("UPDATE", website("new"), website("old"), dry_run=True))
    assert answer == {"allowed": True}
    [got] = seen
    assert (got.object.spec.html, got.old and got.old.spec.html, got.operation) == ("new", "old", Operation.UPDATE)
    assert (got.user.username, got.user.groups, got.user.extra) == ("anna", ("developers",), {"scopes": ("all",)})
    assert (got.dry_run, got.namespace, got.name) == (True, "default", "home")


async def test_of_a_deletion_the_object_is_what_is_stored() -> None:
    seen: list[Review[Website]] = []
    await ask(webhook(seen.append), review("DELETE", None, website("old")))
    assert (seen[0].object.spec.html, seen[0].old and seen[0].old.spec.html) == ("old", "old")


async def test_of_a_creation_nothing_is_stored() -> None:
    seen: list[Review[Website]] = []
    await ask(webhook(seen.append), review("CREATE", website()))
    assert seen[0].old is None


@pytest.mark.parametrize(
    ("denied", "status"),
    [
        (Denied("no page"), {"message": "no page", "code": 403, "reason": "Forbidden"}),
        (Denied(""), {"message": "no reason was given", "code": 403, "reason": "Forbidden"}),
        (
            Denied("is empty", field="spec.html"),
            {
                "message": "spec.html: is empty",
                "code": 422,
                "reason": "Invalid",
                "details": {
                    "name": "home",
                    "group": "example.com",
                    "kind": "Website",
                    "causes": [{"reason": "FieldValueInvalid", "field": "spec.html", "message": "is empty"}],
                },
            },
        ),
    ],
)
@pytest.mark.parametrize("on_failure", ["Fail", "Ignore"])
async def test_a_refusal_is_one_whatever_the_failure_policy(
    denied: Denied, status: dict[str, Any], on_failure: FailurePolicy
) -> None:
    async def refuse(review: Review[Website]) -> None:
        raise denied

    answer = await ask(webhook(refuse, on_failure=on_failure), review(new=website()))
    assert answer == {"allowed": False, "status": {"status": "Failure", **status}}


async def test_a_refusal_in_a_group_of_tasks_is_one_whatever_else_has_failed_there() -> None:
    async def refuse() -> None:
        raise Denied("no page")

    async def fail() -> None:
        raise LookupError

    async def look(review: Review[Website]) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            group.create_task(refuse())

    answer = await ask(webhook(look, on_failure="Ignore"), review(new=website()))
    assert (answer["allowed"], answer["status"]["message"]) == (False, "no page")


@pytest.mark.parametrize(("returned", "warnings"), [("slow", ["slow"]), (["a", "b"], ["a", "b"]), ((), None)])
async def test_what_it_returns_are_warnings(returned: Any, warnings: list[str] | None) -> None:
    answer = await ask(webhook(lambda review: returned), review(new=website()))
    assert (answer["allowed"], answer.get("warnings")) == (True, warnings)


class Panic(BaseException):
    """As extension modules raise it."""


async def panic(review: Review[Website]) -> None:
    raise Panic("at src/lib.rs:7")


def time_out(review: Review[Website]) -> None:
    raise TimeoutError("no answer of the database")


def cancel_inside(review: Review[Website]) -> None:
    """`concurrent.futures` has a `CancelledError` of its own."""
    future = Future[None]()
    future.cancel()
    future.result()


async def cancel_awaited(review: Review[Website]) -> None:
    looking = asyncio.ensure_future(asyncio.sleep(9))
    looking.cancel()
    await looking


FAILING = {
    "raises": (lambda review: 1 / 0, "ZeroDivisionError: division by zero"),
    "times out by itself": (time_out, "TimeoutError: no answer of the database"),
    "exits": (lambda review: sys.exit("no licence"), "SystemExit: no licence"),
    "gives up what it waits for": (cancel_inside, "RuntimeError: the function raised CancelledError"),
    "gives up what it awaits": (cancel_awaited, "RuntimeError: something that the function awaited was cancelled"),
    "panics": (panic, "Panic: at src/lib.rs:7"),
    "returns": (lambda review: 7, "TypeError: it returned 7; return nothing or warnings (str), and raise Denied"),
}


@pytest.mark.parametrize(("function", "problem"), FAILING.values(), ids=FAILING)
async def test_a_failure_refuses_or_warns_and_is_logged_with_its_stack(
    function: Any, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await ask(webhook(function), review(new=website()))
    assert (answer["allowed"], answer["status"]["code"], answer["status"]["reason"]) == (False, 500, "InternalError")
    assert answer["status"]["message"].startswith(f"the webhook failed: {problem}")
    [line] = caplog.records
    assert (line.msg, line.levelno, line.exc_info is not None) == ("Webhook failed", logging.ERROR, True)
    facts = {name: getattr(line, name) for name in ("webhook", "namespace", "object", "operation", "user")}
    assert list(facts.values()) == ["check.websites.example.com", "default", "home", "CREATE", "anna"]

    answer = await ask(webhook(function, on_failure="Ignore"), review(new=website()))
    assert answer["allowed"]
    [warning] = answer["warnings"]
    assert warning.startswith(f"check.websites.example.com failed and was ignored: {problem}"[:256])


async def test_who_asks_may_be_cancelled_while_the_function_runs() -> None:
    async def hang(review: Review[Website]) -> None:
        await asyncio.Event().wait()

    asking = asyncio.create_task(webhook(hang).answer(parse_review(review(new=website()))))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_who_asks_may_be_interrupted_while_the_function_runs() -> None:
    async def end(review: Review[Website]) -> None:
        raise KeyboardInterrupt

    asking = webhook(end).answer(parse_review(review(new=website())))
    with pytest.raises(KeyboardInterrupt):
        asking.send(None)


async def test_a_function_that_takes_too_long_has_failed() -> None:
    async def hang(review: Review[Website]) -> None:
        await asyncio.Event().wait()

    answer = await ask(webhook(hang, timeout_seconds=1), review(new=website()))
    assert answer["status"]["message"] == "the webhook failed: it took longer than 0.5 s"


@pytest.mark.parametrize("new", [website(7), None, {"spec": {}}])
async def test_an_object_that_is_none_of_its_class_is_refused_or_let_pass(new: Any) -> None:
    asked: list[Any] = []
    answer = await ask(webhook(asked.append), review(new=new))
    assert (answer["allowed"], answer["status"]["code"]) == (False, 422)
    assert "the object does not fit Website: " in answer["status"]["message"]
    answer = await ask(webhook(asked.append, on_failure="Ignore"), review(new=new))
    assert answer["allowed"]
    assert "was not asked" in answer["warnings"][0]
    assert not asked


#: As API servers send objects with empty lists.
WITH_NULLS: list[tuple[type[Kind], dict[str, Any]]] = [
    (Role, {"rules": None}),
    (LimitRange, {"spec": {"limits": None}}),
    (EndpointSlice, {"addressType": "IPv4", "endpoints": None, "ports": None}),
    (Ingress, {"spec": {"rules": [{"http": {"paths": None}}]}, "status": {"loadBalancer": {}}}),
    (Pod, {"metadata": {"name": "home", "creationTimestamp": None}, "spec": {"containers": None}}),
]


@pytest.mark.parametrize(("kind", "fields"), WITH_NULLS, ids=lambda given: getattr(given, "__name__", ""))
async def test_an_object_is_read_as_caches_read_it(kind: type[Kind], fields: dict[str, Any]) -> None:
    thing = {"metadata": {"name": "home"}, **fields}
    seen: list[Review[Any]] = []
    asked = dataclasses.replace(webhook(seen.append), kind=kind)
    assert (await ask(asked, review("UPDATE", thing, thing)))["allowed"]
    read = codec_of(kind).read(msgspec.json.encode(thing))
    assert (seen[0].object, seen[0].old) == (read, read)


async def test_a_list_that_came_as_null_can_be_filled() -> None:
    def fill(review: Review[Role]) -> None:
        review.object.rules.append(PolicyRule(verbs=["get"]))

    thing = {"metadata": {"name": "home", "creationTimestamp": None}, "rules": None}
    asked = dataclasses.replace(webhook(fill, Sort.MUTATE), kind=Role)
    patch = msgspec.json.decode(base64.b64decode((await ask(asked, review(new=thing)))["patch"]))
    assert apply_json_patch(thing, patch) == {**thing, "rules": [{"verbs": ["get"]}]}


async def test_what_does_not_fit_can_be_mended_and_deleted() -> None:
    seen: list[Review[Website]] = []
    answer = await ask(webhook(seen.append), review("UPDATE", website("mended"), website(7)))
    assert (answer["allowed"], seen[0].old) == (True, None)
    assert (await ask(webhook(seen.append), review("DELETE", None, website(7))))["allowed"]


def set_replicas(review: Review[Website]) -> None:
    review.object.spec.replicas = 3


async def replaced(review: Review[Website]) -> Website:
    return Website("home", msgspec.structs.replace(review.object.spec, replicas=3))


async def test_a_change_is_answered_as_a_patch_of_what_came() -> None:
    answer = await ask(webhook(set_replicas, Sort.MUTATE), review(new=website()))
    assert (answer["allowed"], answer["patchType"]) == (True, "JSONPatch")
    patch = msgspec.json.decode(base64.b64decode(answer["patch"]))
    assert patch == [{"op": "add", "path": "/spec/replicas", "value": 3}]
    assert apply_json_patch(website(), patch) == website(replicas=3)


async def test_of_an_update_it_is_a_patch_of_what_came_not_of_what_is_stored() -> None:
    new, old = website("new"), website("old", replicas=3)
    answer = await ask(webhook(set_replicas, Sort.MUTATE), review("UPDATE", new, old))
    patch = msgspec.json.decode(base64.b64decode(answer["patch"]))
    assert apply_json_patch(new, patch) == website("new", replicas=3)


async def test_an_object_that_is_returned_takes_the_place_of_what_came() -> None:
    answer = await ask(webhook(replaced, Sort.MUTATE), review(new=website()))
    patched = apply_json_patch(website(), msgspec.json.decode(base64.b64decode(answer["patch"])))
    assert patched["spec"] == website(replicas=3)["spec"]
    assert patched["metadata"]["managedFields"]


async def test_an_object_that_is_returned_keeps_the_metadata_of_which_it_says_nothing() -> None:
    async def labelled(review: Review[Website]) -> Website:
        meta = ObjectMeta(name="home", labels={"by": "us"})
        return Website(meta, msgspec.structs.replace(review.object.spec, replicas=3))

    came = website()
    came["metadata"] |= {
        "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["e/f"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "q"}],
    }  # fmt: skip
    for function, labels in ((replaced, {"a": "b"}), (labelled, {"by": "us"})):
        answer = await ask(webhook(function, Sort.MUTATE), review("UPDATE", came, came))
        patched = apply_json_patch(came, msgspec.json.decode(base64.b64decode(answer["patch"])))
        assert patched["metadata"] == came["metadata"] | {"labels": labels}


async def test_without_a_change_there_is_no_patch() -> None:
    answer = await ask(webhook(lambda review: review.object, Sort.MUTATE), review(new=website()))
    assert answer == {"allowed": True}


async def test_what_is_no_object_of_the_kind_is_a_failure() -> None:
    answer = await ask(webhook(lambda review: "slow", Sort.MUTATE), review(new=website()))
    assert answer["status"]["message"] == (
        "the webhook failed: TypeError: it returned a str; return the Website, or nothing"
    )


async def test_a_class_that_raises_of_itself_is_a_failure_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    def refuse() -> int:
        raise KeyError("no default")

    class Picky(CustomResource[PickySpec], group="example.com", version="v1"):
        """Raises where something is missing."""

        extra: int = msgspec.field(default_factory=refuse)

    asked = dataclasses.replace(webhook(lambda review: None), kind=Picky)
    answer = await ask(asked, review("CREATE", website()))
    assert answer["status"]["message"] == "the webhook failed: KeyError: 'no default'"
    [line] = caplog.records
    assert (line.msg, line.exc_info is not None, vars(line)["object"]) == ("Webhook failed", True, "home")
    assert (await ask(dataclasses.replace(asked, on_failure="Ignore"), review("CREATE", website())))["allowed"]
    fits = {**website(), "extra": 1}
    assert await ask(asked, review("UPDATE", fits, website())) == {"allowed": True}, "it can be mended"
    verdict = await asked.answer(parse_review(review("DELETE", None, website())))
    assert (verdict.allowed, verdict.outcome) == (True, Outcome.FAILED), "it may go"


async def test_what_cannot_be_sent_is_a_failure_of_a_webhook_that_changes_it() -> None:
    asked = dataclasses.replace(webhook(lambda review: None, Sort.MUTATE), kind=Odd)
    answer = await ask(asked, review("CREATE", website()))
    assert answer["status"]["message"].startswith("the webhook failed: NotImplementedError: cannot send")
    assert (await ask(dataclasses.replace(asked, on_failure="Ignore"), review("CREATE", website())))["allowed"]


async def test_a_plain_function_that_raises_stop_iteration_has_failed() -> None:
    def look(review: Review[Website]) -> None:
        next(iter(list[str]()))

    async with asyncio.timeout(60):
        answer = await ask(webhook(look), review("CREATE", website()))
    assert not answer["allowed"]
    assert answer["status"]["message"] == "the webhook failed: RuntimeError: the function raised StopIteration"


@pytest.mark.parametrize("in_its_own_loop", [False, True])
async def test_a_plain_decorator_may_return_what_is_to_be_awaited_or_await_it_itself(in_its_own_loop: bool) -> None:
    async def look(review: Review[Website]) -> str:
        await asyncio.sleep(0)
        return f"{review.name} is old"

    @functools.wraps(look)
    def plainly(review: Review[Website]) -> Any:
        return asyncio.run(look(review)) if in_its_own_loop else look(review)

    answer = await ask(webhook(plainly), review("CREATE", website()))
    assert answer == {"allowed": True, "warnings": ["home is old"]}

"""`shardsdk explain` of a shard's objects: which shard has them, and who holds its Lease."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiohttp import web

from shardsdk import Resource
from shardsdk.commands import explain as command
from shardsdk.commands.asking import ask
from shardsdk.commands.explain import EXPLAINED, NOT_HERE, Question, find_answer
from shardsdk.protocol.labels import INSTANCE_ANNOTATION, parse_ring_name
from shardsdk.protocol.leases import render_instance, render_micro_time
from shardsdk.protocol.objects import LEASES
from tests.unit.shardsdk.commands.asked import SECRETS, cluster, one_line, serving

ONE = {"ring": "sites", "name": "one", "namespace": "team", "instance": "uid-1"}
RESTS = {"resource": "secrets", "kind": "Secret", "controller": "secrets", "waitsFor": "NOTHING", "text": "b: rests"}
NOT_HERE_YET = RESTS | {"waitsFor": "CACHE"}


def shard_says(found: dict[str, str]) -> Callable[[web.Request], web.Response]:
    return lambda _: web.json_response({"objects": [found], "shard": ONE})


def held_lease(holder: str, instance: str | None = None, *, ago: float = 0.0) -> tuple[Resource, dict[str, Any]]:
    renewed = render_micro_time(datetime.now(UTC) - timedelta(seconds=ago))
    annotations = {} if instance is None else {INSTANCE_ANNOTATION: render_instance(instance, renewed)}
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed}
    return LEASES, {"metadata": {"name": "one", "namespace": "team", "annotations": annotations}, "spec": spec}


@pytest.mark.parametrize(
    ("lease", "says"),
    [
        (held_lease("one", "uid-1"), "held by one (instance uid-1), which is the process that was asked"),
        (held_lease("one", "uid-2"), "held by one (instance uid-2), which is another process"),
        (
            held_lease("one", "uid-1", ago=60),
            "held by one (instance uid-1), which is the process that was asked; it was to be renewed in time, and was"
            " last at 20",
        ),
        (held_lease("shardlease-controller"), "held by shardlease-controller, which gives its objects to other shards"),
        (
            held_lease("one", ""),
            "left to the next process of that name, for which its objects wait for 15 s from 20",
        ),
        (held_lease(""), "held by nobody; the shard has left"),
    ],
    ids=["here", "namesake", "late", "sharder", "left", "nobody"],
)
async def test_the_holder_of_the_shards_lease_is_named(
    lease: tuple[Resource, dict[str, Any]], says: str, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster(monkeypatch, lease)
    async with serving(shard_says(RESTS)) as address:
        answer = await find_answer(Question("secret", "b", namespace="default", address=str(address)), environ)
    assert answer.code == EXPLAINED
    first, second = answer.lines
    assert first == "secrets: b: rests"
    assert second.startswith(f"shard one: its Lease team/one is {says}")


async def test_of_two_shards_only_the_one_that_has_the_object_has_its_lease_named(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster(monkeypatch, held_lease("one", "uid-1"))
    other = {"objects": [NOT_HERE_YET], "shard": ONE | {"name": "two", "instance": "uid-2"}}
    with monkeypatch.context() as patched:
        async with serving(shard_says(RESTS)) as one, serving(lambda _: web.json_response(other)) as two:
            asked = {"one": one, "two": two}

            async def ask_all(question: Question, requests: Any, environ: Any) -> list[Any]:
                return [await ask(address, requests[0]) for address in asked.values()]

            patched.setattr(command, "_ask_all", ask_all)
            answer = await find_answer(Question("secret", "b", namespace="default"), environ)
    assert [line.partition(" is held")[0] for line in answer.lines] == [
        "secrets: b: rests", "shard one: its Lease team/one",
    ]  # fmt: skip


async def test_a_shard_whose_lease_cannot_be_asked_for_still_explains(environ: dict[str, str]) -> None:
    async with serving(shard_says(RESTS)) as address:
        answer = await find_answer(Question("secret", "b", namespace="default", address=str(address)), environ)
    assert (answer.code, one_line(answer)) == (EXPLAINED, "secrets: b: rests")


async def test_an_api_server_that_does_not_answer_is_not_waited_for_long(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wait(*_: object) -> str:
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    cluster(monkeypatch)
    monkeypatch.setattr(command, "say_lease", wait)
    monkeypatch.setattr(command, "LEASES_SECONDS", 0.01)
    async with serving(shard_says(RESTS)) as address:
        answer = await find_answer(Question("secret", "b", namespace="default", address=str(address)), environ)
    assert answer.code == EXPLAINED
    first, second = answer.lines
    assert first == "secrets: b: rests"
    assert second == "who holds the shard's Lease is not known: the API server gave no answer in 0.01 s"


@pytest.mark.parametrize(
    ("shard", "says"),
    [
        ("one", "secrets b: its label names this shard, one (label "),
        ("two", "secrets b: it is with another shard, two (label "),
    ],
)
async def test_an_object_that_its_own_shard_does_not_see_is_told_from_anothers(
    shard: str, says: str, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = {parse_ring_name("sites").shard: shard}
    secret = {"metadata": {"name": "b", "namespace": "default", "labels": labels}}
    cluster(monkeypatch, (SECRETS, secret), held_lease("one", "uid-1"))
    async with serving(shard_says(NOT_HERE_YET)) as address:
        answer = await find_answer(Question("secret", "b", namespace="default", address=str(address)), environ)
    assert answer.code == NOT_HERE
    assert one_line(answer).startswith(says)
    told = {
        "one": "shard one: its Lease team/one is held by one (instance uid-1), which is the process that was asked",
        "two": "shard two: its Lease team/two is not there: no process of that name has begun in this namespace",
    }
    assert one_line(answer).endswith(told[shard])

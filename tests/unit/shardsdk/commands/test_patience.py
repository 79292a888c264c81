"""In a pod what is missing may be on its way: it is waited for, for a while; at a prompt it is said at once."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

import pytest

from shardsdk import Context, Manager, PartialObject, Resource, controller_for
from shardsdk.commands import run
from shardsdk.commands.program import Program
from shardsdk.commands.run import LOOK_SECONDS, PATIENCE_SECONDS
from shardsdk.errors import (
    ConfigurationError,
    ConnectionFailed,
    Forbidden,
    ServerError,
    ShardingError,
    TooManyRequests,
)
from shardsdk.kube.definitions import NotInstalled


async def reconcile(context: Context[PartialObject]) -> None:
    raise AssertionError("nothing runs here")


class Clock:
    """Time that passes when somebody waits."""

    def __init__(self) -> None:
        self.time = 0.0

    def monotonic(self) -> float:
        return self.time

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.time, UTC)

    async def sleep(self, seconds: float) -> None:
        self.time += seconds


class Server:
    """Answers each look at it with the next of `answers`, then that all is well."""

    host, origin, namespace = "https://api", "kubeconfig k", "team"

    def __init__(self, *answers: str | ShardingError) -> None:
        self.answers = list(answers)
        self.looks = 0

    async def raw(self, *_: object) -> bytes:
        return b"{}"

    async def find_problems(self, *_: object) -> list[str]:
        self.looks += 1
        answer = self.answers.pop(0) if self.answers else ""
        if isinstance(answer, ShardingError):
            raise answer
        return [answer] if answer else []


async def prepare(
    server: Server, patience: float, monkeypatch: pytest.MonkeyPatch, *, install_crds: bool = False
) -> Clock:
    clock = Clock()
    monkeypatch.setattr(run, "SystemClock", lambda: clock)
    monkeypatch.setattr(run, "find_problems", server.find_problems)
    monkeypatch.delenv("POD_NAMESPACE", raising=False)
    manager = Manager(namespace="team").add(
        controller_for(Resource("", "v1", "secrets", "Secret")).reconcile(reconcile)
    )
    anything: Any = server
    options = run.Options("a.py", install_crds=install_crds)
    await run._prepare(anything, anything, Program("a.py", "manager", manager), manager, options, patience=patience)
    return clock


async def test_what_is_missing_is_waited_for_in_a_pod(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answers = "no type", ConnectionFailed("refused"), ServerError("starts"), TooManyRequests("later"), "no right"
    server = Server(*answers)
    with caplog.at_level(logging.WARNING):
        clock = await prepare(server, PATIENCE_SECONDS, monkeypatch)
    assert (server.looks, clock.time) == (6, 5 * LOOK_SECONDS)
    assert [record.__dict__["error"] for record in caplog.records] == [str(each) for each in answers]


async def test_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(*["no type"] * 1000)
    with pytest.raises(ConfigurationError, match="no type"):
        await prepare(server, PATIENCE_SECONDS, monkeypatch)
    assert server.looks == 1 + PATIENCE_SECONDS / LOOK_SECONDS


@pytest.mark.parametrize("error", ["no type", ConnectionFailed("refused"), ServerError("starts")])
async def test_at_a_prompt_it_is_said_at_once(error: str | ShardingError, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(error)
    with pytest.raises(ConfigurationError, match=str(error)):  # that is, with exit code 2
        await prepare(server, 0.0, monkeypatch)
    assert server.looks == 1


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            Forbidden("may not patch", status=403),
            r"may not install definitions: may not patch; have somebody .*crd a\.py",
        ),
        (NotInstalled("sites is not accepted (ListKindConflict)"), "^sites is not accepted"),
    ],
)
async def test_definitions_that_cannot_be_installed_are_said(
    error: ShardingError, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(run, "apply_crds", refuse)
    monkeypatch.setattr(Program, "definitions", lambda _: [])
    server = Server()
    with pytest.raises(ConfigurationError, match=says):
        await prepare(server, 0.0, monkeypatch, install_crds=True)
    assert server.looks == 0

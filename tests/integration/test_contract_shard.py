"""Two processes of one name that know the contract alone: at no time do both take the Lease for theirs."""

from __future__ import annotations

import copy
import importlib.util
import itertools
import ssl
import sys
import urllib.error
from collections.abc import Callable
from email.message import Message
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from localcluster.admin import Object

FILE = Path(__file__).with_name("contract_shard.py")


class OneLease:
    """An API server that has it, and a clock that goes on while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.found: Object | None = None
        self._versions = itertools.count(1)
        #: What else happens meanwhile.
        self.meanwhile: Callable[[], None] = lambda: None

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.meanwhile()

    def change(self, **spec: Any) -> None:
        assert self.found is not None
        self.found["spec"] |= spec
        self.found["metadata"]["resourceVersion"] = str(next(self._versions))

    def call(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        if method == "POST":
            assert self.found is None
            self.found = copy.deepcopy(body)
            self.change()
        elif method == "PATCH":
            assert self.found is not None
            if body["metadata"]["resourceVersion"] != self.found["metadata"]["resourceVersion"]:
                raise urllib.error.HTTPError(path, 409, "Conflict", Message(), None)
            self.found["metadata"] |= body["metadata"]
            self.change(**body["spec"])
        return copy.deepcopy(self.found)


@pytest.fixture
def lease() -> OneLease:
    return OneLease()


@pytest.fixture
def process(lease: OneLease, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """Makes one more process: what the file has, of a shard of always the same name."""
    monkeypatch.setattr(ssl, "create_default_context", lambda **_: None)
    monkeypatch.setattr(sys, "argv", ["", "https://host", "ca.crt", "token", "ring", "shard", "default"])

    def start() -> Any:
        spec = importlib.util.spec_from_file_location("contract_shard_alone", FILE)
        assert spec is not None
        assert spec.loader is not None
        made: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made)
        made.call = lease.call
        made.time = SimpleNamespace(monotonic=lambda: lease.now, sleep=lease.sleep)
        return made

    return start


def test_a_second_process_waits_for_as_long_as_the_first_renews_and_two_durations_more(
    lease: OneLease, process: Callable[[], Any]
) -> None:
    first, second = process(), process()
    held = first.Lease()
    began = lease.now

    def go_on() -> None:
        if lease.now < began + 60:
            held.hold([(0, 16)])

    lease.meanwhile = go_on
    other = second.Lease()
    assert lease.now >= began + 60 - 1 + 2 * second.LEASE_SECONDS
    with pytest.raises(SystemExit):
        held.hold([(0, 16)])
    other.hold([(16, 32)])
    assert lease.found is not None
    assert lease.found["spec"]["leaseTransitions"] == 0, "its name has not changed hands"


def test_a_process_that_was_paused_does_not_take_the_lease_of_the_next_one_of_its_name_for_its_own(
    lease: OneLease, process: Callable[[], Any]
) -> None:
    first = process().Lease()
    lease.change(holderIdentity="", leaseDurationSeconds=1, renewTime="2030-01-01T00:00:00.000000Z")
    second = process().Lease()
    with pytest.raises(SystemExit):
        first.hold([])
    second.hold([])
    assert lease.found is not None
    assert lease.found["spec"]["leaseTransitions"] == 1


def test_a_label_that_the_sharder_has_written_does_not_cost_a_process_its_lease(
    lease: OneLease, process: Callable[[], Any]
) -> None:
    held = process().Lease()
    lease.change()
    held.hold([(0, 16)])
    assert held.held == [(0, 16)]

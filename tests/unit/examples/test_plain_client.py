"""A loop of its own gives an object away only when nothing that it has written can be executed any more."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes import client

from examples import plain_client
from shardsdk.types import parse_ring_name

RING = parse_ring_name("checksum")
LABELS = {RING.shard: "one", RING.drain: "true"}
DRAINED = client.V1Secret(metadata=client.V1ObjectMeta(name="a", namespace="team", uid="1", labels=LABELS))


class Share:
    """Lets everything in."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self.selector = ""

    @contextmanager
    def work_on(self, *_: str) -> Iterator[bool]:
        yield True


def test_a_drain_waits_for_a_write_that_got_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    share, done = Share(), list[str]()

    def acknowledge(*_: Any) -> None:
        done.append("acknowledged")
        share.stopping.set()

    events = [{"type": "MODIFIED", "object": DRAINED}]
    monkeypatch.setattr("kubernetes.watch.Watch", lambda: SimpleNamespace(stream=lambda *_, **__: events))
    core: Any = SimpleNamespace(patch_namespaced_secret=acknowledge, list_secret_for_all_namespaces=None)
    lease: Any = SimpleNamespace(ring=RING, loss=None)
    mine: Any = share
    plain_client.work(core, lease, mine, lambda: done.append("settled"))
    assert done == ["settled", "acknowledged"]

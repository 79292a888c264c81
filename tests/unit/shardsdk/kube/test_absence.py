"""A write that is answered with 404: whether its object is gone."""

from __future__ import annotations

import pytest

from shardsdk.errors import Forbidden, NotFound, NotServed, ServerError
from shardsdk.kube.absence import judge_absence
from shardsdk.protocol.objects import Resource
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time

BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")
ERROR = NotFound('rolebindings "reader" not found', status=404, reason="NotFound")


def create(api: MemoryApi, resource: Resource = BINDINGS) -> str:
    made = api.server.create(resource, {"metadata": {"name": "reader", "namespace": "default"}})
    return str(made["metadata"]["uid"])


@in_virtual_time
async def test_of_a_binding_that_is_there_it_means_that_it_may_not_be_written(clock: VirtualClock) -> None:
    """The role is not there that it names, and that is called as it is."""
    api = MemoryApi(MemoryServer(), clock)
    meant = await judge_absence(api, BINDINGS, "reader", "default", create(api), ERROR)
    assert type(meant) is Forbidden
    assert meant.status == 404
    assert str(ERROR) in str(meant)
    assert "create that" in str(meant)


@in_virtual_time
async def test_of_one_that_is_gone_or_that_is_another_now_it_means_what_it_says(clock: VirtualClock) -> None:
    api = MemoryApi(MemoryServer(), clock)
    assert await judge_absence(api, BINDINGS, "reader", "default", "a", ERROR) is ERROR
    create(api)
    assert await judge_absence(api, BINDINGS, "reader", "default", "of the one before", ERROR) is ERROR


@in_virtual_time
async def test_nothing_else_is_read(clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    api, unserved = MemoryApi(MemoryServer(), clock), NotServed("404 page not found", status=404)

    async def refuse(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(api, "find", refuse)
    assert await judge_absence(api, CONFIGMAPS, "reader", "default", create(api, CONFIGMAPS), ERROR) is ERROR
    assert await judge_absence(api, BINDINGS, "reader", "default", create(api), unserved) is unserved


@in_virtual_time
async def test_where_it_cannot_be_read_that_is_what_is_known(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, failure = MemoryApi(MemoryServer(), clock), ServerError("not now", status=500)

    async def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr(api, "find", fail)
    assert await judge_absence(api, BINDINGS, "reader", "default", create(api), ERROR) is failure

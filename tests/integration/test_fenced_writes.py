"""A process is suspended just before its write leaves: when it wakes, the real API server has given the write up."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import pytest
import pytest_asyncio

from localcluster import AdminClient, ControlPlane
from shardsdk.contrib.kopf_relay import Relay
from shardsdk.errors import ServerError
from shardsdk.kube.access import load_access
from shardsdk.kube.api import PatchKind
from shardsdk.kube.client import Client
from shardsdk.kube.server import Access
from shardsdk.protocol.objects import Resource

CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")
KINDS = "v1/configmaps"
HOLD_SECONDS = 2.0

Write = Callable[[Client, str], Awaitable[object]]

WRITES: dict[str, Write] = {
    "create": lambda client, namespace: client.create(CONFIGMAPS, {"metadata": {"name": "late"}}, namespace),
    "merge patch": lambda client, namespace: client.patch(CONFIGMAPS, "a", namespace, {"data": {"by": "late"}}),
    "apply": lambda client, namespace: client.patch(
        CONFIGMAPS, "a", namespace, {"apiVersion": "v1", "kind": "ConfigMap", "data": {"by": "late"}},
        kind=PatchKind.APPLY, field_manager="late", force=True,
    ),
    "update": lambda client, namespace: client.update(
        CONFIGMAPS, {"metadata": {"name": "a", "namespace": namespace}, "data": {"by": "late"}}
    ),
    "delete": lambda client, namespace: client.delete(CONFIGMAPS, "a", namespace),
}  # fmt: skip


class SuspendedAfterwards:
    """A fence that is asked in time, by a process that is suspended before it can use the last answer."""

    name = "the lease of shard-1"

    def __init__(self, *answers: float) -> None:
        self.answers = list(answers)

    def remaining(self) -> float:
        answer = self.answers.pop(0)
        if not self.answers:
            time.sleep(HOLD_SECONDS)  # the whole process, as SIGSTOP would
        return answer


async def nothing_happened(admin: AdminClient, namespace: str) -> None:
    found = {each["metadata"]["name"]: each for each in await admin.list(KINDS, namespace)}
    assert "late" not in found
    assert found["a"]["data"] == {"by": "before"}


@pytest_asyncio.fixture
async def access(control_plane: ControlPlane, admin: AdminClient, namespace: str) -> Access:
    await admin.create(KINDS, {"metadata": {"name": "a"}, "data": {"by": "before"}}, namespace)
    return await load_access(str(control_plane.admin_kubeconfig))


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
async def test_our_client(access: Access, admin: AdminClient, namespace: str, write: Write) -> None:
    # Before connecting (for this long the answer is waited for), with the connection, and for the body.
    fence = SuspendedAfterwards(60.0, HOLD_SECONDS, HOLD_SECONDS)
    async with Client(access, fence=fence) as client:
        with pytest.raises(ServerError) as refused:
            await write(client, namespace)
    assert refused.value.status == 504
    assert not fence.answers
    await nothing_happened(admin, namespace)


@pytest.mark.parametrize("verb", ["patch", "delete"])
async def test_a_session_for_another_client(access: Access, admin: AdminClient, namespace: str, verb: str) -> None:
    # Before connecting (for this long the answer is waited for), with the connection, and for the body.
    fence = SuspendedAfterwards(60.0, HOLD_SECONDS, HOLD_SECONDS)
    url = f"{access.host}/api/v1/namespaces/{namespace}/configmaps/a"
    headers = {"Content-Type": PatchKind.MERGE.value}
    async with Relay(access, [fence]) as session:
        body = {"data": {"by": "late"}} if verb == "patch" else None
        refused = await session.request(verb, url, json=body, headers=headers if body else None)
        refused.close()
    assert refused.status == 504
    assert not fence.answers
    await nothing_happened(admin, namespace)

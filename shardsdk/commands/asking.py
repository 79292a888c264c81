"""Asking a running process what an object waits for: /debug/objects, at a port or a Unix socket of this machine."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import aiohttp
import msgspec

from shardsdk.cache.objects import Request
from shardsdk.commands.workload import HEALTH_PORT
from shardsdk.errors import ConfigurationError, ConnectionFailed
from shardsdk.kube.sockets import make_connector
from shardsdk.kube.subprocesses import at_a_terminal, end
from shardsdk.process.health import Address
from shardsdk.protocol.names import before_port

#: Longer than a process takes to find out that its event loop is blocked.
ANSWER_SECONDS: Final = 10.0
#: How long `kubectl port-forward` may take to listen.
FORWARD_SECONDS: Final = 15.0
_LISTENING: Final = re.compile(rb"Forwarding from 127\.0\.0\.1:(\d+) ->")


class Shard(msgspec.Struct, frozen=True):
    """Which shard a process is: its Lease is `namespace`/`name`, and says `instance` while it is this process's."""

    ring: str
    name: str
    namespace: str
    instance: str


class _Answer(msgspec.Struct, frozen=True):
    objects: list[dict[str, Any]]
    shard: Shard | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """What a process said: `found` is what its controllers say of the object, `refusal` why they say nothing."""

    address: Address
    found: Sequence[dict[str, Any]]
    refusal: str = ""
    shard: Shard | None = None


async def ask(address: Address, request: Request) -> Said | None:
    """Ask the process at `address`; `None`: nobody listens there.

    Raises: ConnectionFailed when somebody does and no answer comes, or none of ours.
    """
    path = "/".join(quote(part, safe="") for part in (request.namespace, request.name) if part)
    connector = aiohttp.UnixConnector(address.socket) if address.socket else make_connector()
    host = "localhost" if address.socket else f"{before_port(address.host or '127.0.0.1')}:{address.port}"
    wait = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(connector=connector, timeout=wait) as session,
            session.get(f"http://{host}/debug/objects/{path}", headers={"Accept": "application/json"}) as answer,
        ):
            body = await answer.read()
    except (aiohttp.ClientConnectorError, FileNotFoundError):
        return None
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise ConnectionFailed(f"{address} gives no answer: {str(error) or type(error).__name__}") from error
    return _read(address, answer.status, body)


def _read(address: Address, status: int, body: bytes) -> Said:
    if status != 200:
        text = body.decode(errors="replace").strip()
        if status == 404:
            text = "it is no process of shardsdk's, or an old one: it does not know /debug/objects"
        return Said(address, (), text)
    try:
        answer = msgspec.json.decode(body, type=_Answer)
    except msgspec.DecodeError as error:
        raise ConnectionFailed(f"{address} answers something else: {body[:80]!r}; name the health port") from error
    return Said(address, answer.objects, shard=answer.shard)


@asynccontextmanager
async def forwarded(pod: str, namespace: str | None, kubeconfig: str | None, context: str | None) -> AsyncIterator[int]:
    """A port of this machine that leads to the health port of `pod`, by `kubectl port-forward`, within this context.

    Raises: ConfigurationError when kubectl is not there, or cannot.
    """
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise ConfigurationError(
            f"kubectl is not on the PATH, by which {pod} would be asked; ask inside of it instead:"
            " kubectl exec POD -- shardsdk explain KIND/NAME --address 127.0.0.1:8081"
        )
    options = {"--namespace": namespace, "--kubeconfig": kubeconfig, "--context": context}
    given = [word for name, value in options.items() if value for word in (name, value)]
    apart = not at_a_terminal()
    process = await asyncio.create_subprocess_exec(
        kubectl, *given, "port-forward", "--address=127.0.0.1", pod, f":{HEALTH_PORT}",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, start_new_session=apart,
    )  # fmt: skip
    try:
        yield await _port_of(process, pod)
    finally:
        # `Process` itself has no way to close pipes that what kubectl has started (a plugin) holds open.
        await end(process._transport, process.wait(), with_group=apart)  # type: ignore[attr-defined]


async def _port_of(process: asyncio.subprocess.Process, pod: str) -> int:
    assert process.stdout is not None
    try:
        async with asyncio.timeout(FORWARD_SECONDS):
            while line := await process.stdout.readline():
                if found := _LISTENING.search(line):
                    return int(found[1])
            _, complaint = await process.communicate()
    except TimeoutError:
        complaint = b"it took too long"
    said = complaint.decode(errors="replace").strip()
    raise ConfigurationError(
        f"kubectl cannot forward a port to {pod}: {said}; `kubectl get pods -n NAMESPACE` has them"
    )

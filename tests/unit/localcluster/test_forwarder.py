"""The forwarder balances connections over ready replicas, as a Service does."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest

from localcluster.cli import main
from localcluster.forwarder import Backend, Forwarder, reset
from localcluster.ports import LOOPBACK, reserve_port


class _Replica:
    """Answers each line with its name and the line; says on another port whether it is ready."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.status = 200
        self._writers: set[asyncio.StreamWriter] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Backend]:
        self.server = await asyncio.start_server(self._serve, LOOPBACK, 0)
        health = await asyncio.start_server(self._answer_probe, LOOPBACK, 0)
        port, health_port = (each.sockets[0].getsockname()[1] for each in (self.server, health))
        try:
            yield Backend(LOOPBACK, port, f"http://{LOOPBACK}:{health_port}/readyz")
        finally:
            self.hang_up()
            health.close()
            await health.wait_closed()

    def hang_up(self) -> None:
        """As a killed process does."""
        self.server.close()
        for writer in self._writers:
            reset(writer.transport)
        self._writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while line := await reader.readline():
                writer.write(f"{self.name}:".encode() + line)
                await writer.drain()
            writer.write(b"bye\n")
        except ConnectionError:
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer_probe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(f"HTTP/1.1 {self.status} \r\nContent-Length: 0\r\n\r\n".encode())
        writer.close()


@pytest.fixture
async def replicas() -> AsyncIterator[dict[_Replica, Backend]]:
    async with AsyncExitStack() as stack:
        made = [_Replica("a"), _Replica("b")]
        yield {each: await stack.enter_async_context(each.running()) for each in made}


@asynccontextmanager
async def _client(forwarder: Forwarder) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(forwarder.host, forwarder.port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def _ask(forwarder: Forwarder, text: str = "x") -> str:
    """What a new connection answers; empty when it is hung up."""
    async with _client(forwarder) as (reader, writer):
        try:
            writer.write(f"{text}\n".encode())
            return (await reader.readline()).decode().strip()
        except ConnectionError:
            return ""


async def test_connections_go_to_all_ready_replicas_in_turn(replicas: dict[_Replica, Backend]) -> None:
    async with Forwarder([*replicas.values()]) as forwarder:
        answers = [await _ask(forwarder) for _ in range(4)]
        assert sorted(answers) == ["a:x", "a:x", "b:x", "b:x"]
        assert set(forwarder.taken.values()) == {2}


async def test_an_unready_replica_gets_no_new_connection_and_keeps_its_old_ones(
    replicas: dict[_Replica, Backend],
) -> None:
    a, b = replicas
    async with Forwarder([replicas[a]], poll_seconds=0.01) as forwarder, _client(forwarder) as (reader, writer):
        writer.write(b"1\n")
        assert await reader.readline() == b"a:1\n"

        forwarder.replace([replicas[a], replicas[b]])
        a.status = 503
        await _until_ready_is(forwarder, (replicas[b],))
        assert [await _ask(forwarder) for _ in range(3)] == ["b:x"] * 3
        writer.write(b"2\n")
        assert await reader.readline() == b"a:2\n"

        a.status = 200
        await forwarder.wait_ready(2)
        assert {await _ask(forwarder) for _ in range(2)} == {"a:x", "b:x"}


async def test_a_dead_replica_is_skipped_even_before_the_next_probe(replicas: dict[_Replica, Backend]) -> None:
    a, _ = replicas
    async with Forwarder([*replicas.values()], poll_seconds=3600) as forwarder:
        await forwarder.wait_ready(2)
        a.hang_up()
        assert [await _ask(forwarder) for _ in range(4)] == ["b:x"] * 4


async def test_what_is_connected_can_be_reset_and_what_comes_is_served(replicas: dict[_Replica, Backend]) -> None:
    async with Forwarder([*replicas.values()]) as forwarder, _client(forwarder) as (reader, writer):
        writer.write(b"x\n")
        assert await reader.readline()
        forwarder.drop()
        with pytest.raises(ConnectionError):
            await reader.readline()
        assert await _ask(forwarder)


async def test_without_a_ready_replica_it_hangs_up() -> None:
    port = reserve_port()
    nobody = Backend(LOOPBACK, port.number, f"http://{LOOPBACK}:{port.number}/readyz")
    async with Forwarder([nobody]) as forwarder:
        assert await _ask(forwarder) == ""
    port.release()


async def test_the_end_of_what_one_side_sends_is_passed_on(replicas: dict[_Replica, Backend]) -> None:
    async with Forwarder([*replicas.values()]) as forwarder, _client(forwarder) as (reader, writer):
        writer.write_eof()
        assert await reader.read() == b"bye\n"


async def test_a_replicas_crash_reaches_the_client(replicas: dict[_Replica, Backend]) -> None:
    async with Forwarder([*replicas.values()]) as forwarder, _client(forwarder) as (reader, writer):
        writer.write(b"x\n")
        await reader.readline()
        for replica in replicas:
            replica.hang_up()
        with pytest.raises(ConnectionResetError):
            await reader.readexactly(1)


async def test_many_bytes_pass_whole_and_in_order(replicas: dict[_Replica, Backend]) -> None:
    lines = [f"{number}" * 50 for number in range(20_000)]
    async with Forwarder([*replicas.values()]) as forwarder, _client(forwarder) as (reader, writer):

        async def send() -> None:
            for line in lines:
                writer.write(f"{line}\n".encode())
                await writer.drain()
            writer.write_eof()

        sending = asyncio.create_task(send())
        answered = (await reader.read()).decode().splitlines()
        await sending
        assert [line.partition(":")[2] for line in answered[:-1]] == lines


async def test_it_runs_as_a_process_of_its_own(replicas: dict[_Replica, Backend]) -> None:
    backends = [f"{each.host}:{each.port}={each.ready_url}" for each in replicas.values()]
    command = ["-m", "localcluster", "forward", *(part for each in backends for part in ("--backend", each))]
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        host, _, port = (await process.stdout.readline()).decode().strip().partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"x\n")
        assert await reader.readline() in (b"a:x\n", b"b:x\n")
        writer.close()
        await writer.wait_closed()
    finally:
        process.terminate()
        await process.communicate()


@pytest.mark.parametrize("wrong", ["127.0.0.1:1", "127.0.0.1=http://x/", "127.0.0.1:1=https://x/"])
def test_a_backend_that_is_none_is_refused_with_what_to_write(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["forward", "--backend", wrong]) == 1
    assert "write HOST:PORT" in capsys.readouterr().err


async def _until_ready_is(forwarder: Forwarder, expected: tuple[Backend, ...]) -> None:
    async with asyncio.timeout(40):
        while forwarder.ready != expected:
            await asyncio.sleep(0.01)

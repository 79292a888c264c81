"""A real Prometheus on this machine: Debian's package `prometheus`, which `make node-deps` installs."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from localcluster.ports import LOOPBACK, reserve_port
from localcluster.process import Supervisor

#: How often it scrapes and evaluates rules.
INTERVAL = "1s"
START_SECONDS = 60.0
#: For whatever has to show up in a scrape first.
WAIT_SECONDS = 120.0
POLL_SECONDS = 0.25


def find(program: str) -> str:
    """The program's path.  Fails where it is not installed; a test that cannot run is no success."""
    path = shutil.which(program)
    assert path is not None, f"{program} is not installed: make node-deps, or apt-get install prometheus"
    return path


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A server, and the session that it is asked by."""

    url: str
    session: aiohttp.ClientSession

    async def query(self, expression: str) -> list[dict[str, Any]]:
        """The series that an instant query gives.  Raises: AssertionError with Prometheus' own words."""
        result: list[dict[str, Any]] = (await self._get("query", {"query": expression}))["result"]
        return result

    async def query_range(self, expression: str, start: float, end: float, step: float) -> list[dict[str, Any]]:
        """The series that a range query gives."""
        asked = {"query": expression, "start": str(start), "end": str(end), "step": str(step)}
        result: list[dict[str, Any]] = (await self._get("query_range", asked))["result"]
        return result

    async def eventually(self, expression: str) -> list[dict[str, Any]]:
        """The same, once it gives any."""
        async with asyncio.timeout(WAIT_SECONDS):
            while not (found := await self.query(expression)):
                await asyncio.sleep(POLL_SECONDS)
        return found

    async def rules(self) -> list[dict[str, Any]]:
        """Every rule with its health and state."""
        return [rule for group in (await self._get("rules", {}))["groups"] for rule in group["rules"]]

    async def evaluated_rules(self) -> list[dict[str, Any]]:
        """The same, once each has been evaluated."""
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                rules = await self.rules()
                if all(rule["health"] != "unknown" for rule in rules):
                    return rules
                await asyncio.sleep(POLL_SECONDS)

    async def talking_rules(self, expected: set[str]) -> set[str]:
        """Alerts besides `expected` whose expression goes on to hold, whether or not they fire yet."""
        talking: set[str] = set()
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while talking := {r["name"] for r in await self.rules() if r["state"] != "inactive"} - expected:
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            pass
        return talking

    async def metric_names(self, job: str) -> set[str]:
        """What was scraped of a job."""
        names = await self._get("label/__name__/values", {"match[]": f'{{job="{job}"}}'})
        return set(names)

    async def _get(self, path: str, asked: Mapping[str, str]) -> Any:
        async with self.session.get(f"{self.url}/api/v1/{path}", params=dict(asked)) as answer:
            body = await answer.json()
        assert body["status"] == "success", f"{asked}: {body}"
        return body["data"]


@asynccontextmanager
async def run_prometheus(
    scrape_configs: Sequence[Mapping[str, Any]], rule_files: Sequence[Path]
) -> AsyncIterator[Prometheus]:
    """Run a server until the block ends."""
    program = find("prometheus")
    supervisor = Supervisor()
    port = reserve_port()
    try:
        config = supervisor.folder / "prometheus.yaml"
        settings = {
            "global": {"scrape_interval": INTERVAL, "scrape_timeout": INTERVAL, "evaluation_interval": INTERVAL},
            "rule_files": [str(path.resolve()) for path in rule_files],
            "scrape_configs": list(scrape_configs),
        }
        config.write_text(yaml.safe_dump(settings))
        command = [
            program,
            f"--config.file={config}",
            f"--storage.tsdb.path={supervisor.folder / 'data'}",
            f"--web.listen-address={LOOPBACK}:{port.number}",
        ]
        supervisor.start("prometheus", command, {"HOME": str(supervisor.folder)})
        async with aiohttp.ClientSession() as session:
            server = Prometheus(f"http://{LOOPBACK}:{port.number}", session)
            await _ready(server, supervisor)
            yield server
    finally:
        supervisor.close(keep_logs=False)
        port.release()


async def _ready(server: Prometheus, supervisor: Supervisor) -> None:
    async with asyncio.timeout(START_SECONDS):
        while supervisor.exit_code("prometheus") is None:
            try:
                async with server.session.get(f"{server.url}/-/ready") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(POLL_SECONDS)
    raise supervisor.failure("prometheus", "ended while it was starting")

"""The sharder as a process, seen from outside: what it says, how it ends, what it is given."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml

from localcluster.installation import ROOT, Sharder, SharderTimings
from localcluster.ports import LOOPBACK
from shardsdk.serving.certificate_spec import ServingNames
from shardsdk.serving.x509 import Issued, issue, make_authority

HEADER: Final = {"apiVersion": "config.sharding.timebertt.dev/v1alpha1", "kind": "SharderConfig"}
#: Short, so that a stop takes about a second: 0.3 of it is spent serving on.
TIMINGS: Final = SharderTimings(graceful_shutdown=4.0)
#: Of sharders that keep their lease on a busy machine, and of whom none waits for the end of another's.
STEADY: Final = replace(TIMINGS, lease_duration=15.0, renew_deadline=10.0, staleness=15.0)


async def eventually(condition: Callable[[], Coroutine[Any, Any, bool]], timeout_seconds: float = 90.0) -> None:
    async with asyncio.timeout(timeout_seconds):
        while not await condition():
            await asyncio.sleep(0.05)


async def readiness(replica: Sharder) -> tuple[int, str]:
    """Status (0: no answer) and text of /readyz."""
    try:
        async with aiohttp.ClientSession() as session, session.get(f"{replica.health_url}/readyz?verbose") as answer:
            return answer.status, await answer.text()
    except aiohttp.ClientError:
        return 0, ""


async def says(replica: Sharder, text: str) -> str:
    """Wait until a living replica is not ready and /readyz says `text`; returns all that it says."""
    said = ""

    async def told() -> bool:
        nonlocal said
        if not replica.process.running:
            raise replica.process.failure("has ended")
        status, said = await readiness(replica)
        return status != 200 and text in said

    try:
        await eventually(told)
    except TimeoutError:
        raise TimeoutError(f"{replica.process.name} never said {text!r}, but {said!r}") from None
    return said


async def alive(replica: Sharder) -> None:
    """A process that waits for something must not be restarted for it."""
    async with aiohttp.ClientSession() as session, session.get(f"{replica.health_url}/healthz") as answer:
        assert answer.status == 200


@dataclass(frozen=True)
class Ended:
    code: int
    errors: list[str]


async def run_sharder(folder: Path, config: dict[str, Any], kubeconfig: Path, **env: str) -> Ended:
    """The command until it ends by itself."""
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(HEADER | config))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sharder", "--config", str(path), "--kubeconfig", str(kubeconfig),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={"HOME": str(folder), "PYTHONPATH": str(ROOT), **env},
    )  # fmt: skip
    try:
        async with asyncio.timeout(90):
            _, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return Ended(process.returncode, [line for line in errors.decode().splitlines() if line.startswith("sharder: ")])


def write_pair(folder: Path, certificate: str = "tls.crt", key: str = "tls.key") -> Issued:
    """A serving certificate for the loopback interface as cert-manager would mount it; returns the CA."""
    now = datetime.now(UTC)
    authority = make_authority(now, timedelta(days=1))
    served = issue(authority, ServingNames.of([LOOPBACK]), now, timedelta(days=1))
    (folder / key).write_bytes(served.key)
    (folder / certificate).write_bytes(served.certificate.pem)
    return authority

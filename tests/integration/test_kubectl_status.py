"""`kubectl sharding status`, completion and rights, on a real control plane with a real sharder."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from localcluster import AdminClient, ControlPlane
from tests.integration.harness import Stage
from tests.integration.plugin import SECONDS, Plugin, Said, broken_type, granted, make_account
from tests.integration.world import Ring


async def status_of(plugin: Plugin, ring: Ring, code: int) -> dict[str, Any]:
    """Ask until it ends with `code`; returns what it said of the ring."""

    def ended(said: Said) -> bool:
        assert not said.err.startswith("Traceback"), said.err
        return said.code == code

    said = await plugin.until(ended, "sharding", "status", ring.name, "-o", "json")
    found: dict[str, Any] = said.data["rings"][0]
    return found


async def test_a_settled_ring_ends_with_zero_and_has_every_object_counted(plugin: Plugin, ring: Ring) -> None:
    found = await status_of(plugin, ring, 0)
    shards = {shard["name"]: shard for shard in found["shards"]}
    assert shards.keys() == {"one", "two", "three"}
    assert all(shard["objects"] == {"secrets": 2, "configmaps": 2} for shard in shards.values())
    assert {shard["state"] for shard in shards.values()} == {"ready"}
    assert (found["settled"], found["unassigned"], found["stranded"], found["misplaced"]) == (True, 0, 0, 0)


async def test_text_shows_shards_and_numbers(plugin: Plugin, ring: Ring) -> None:
    def settled(said: Said) -> bool:
        assert said.err == ""
        return said.code == 0

    said = await plugin.until(settled, "sharding", "status", ring.name, "--color", "always")
    assert "3 of 3 shards available" in said.out
    assert "\x1b[32mready\x1b[0m" in said.out
    assert "\x1b" not in (await plugin.sharding("status", ring.name)).out


async def test_objects_of_a_shard_that_is_gone_are_stranded(plugin: Plugin, stage: Stage, ring: Ring) -> None:
    for sharder in stage.sharders:
        await sharder.stop()
    await ring.create(labels={ring.labels[0]: "ghost"}, name="haunted")
    found = await status_of(plugin, ring, 1)
    assert found["stranded"] == 1
    [secrets] = [each for each in found["resources"] if each["resource"] == "secrets"]
    assert secrets["examples"] == {"stranded": [f"{ring.namespace}/haunted"]}


async def test_with_few_rights_it_shows_what_it_may_and_names_the_missing_rules(
    plugin: Plugin, ring: Ring, admin: AdminClient, installed: ControlPlane
) -> None:
    viewer = plugin.as_user(await make_account(installed, admin, ring.namespace))
    nothing = await viewer.sharding("status", ring.name)
    assert (nothing.code, nothing.err) == (3, "")
    assert 'resources: ["clusterrings"], verbs: ["get"]' in nothing.out

    rules = [
        {"apiGroups": ["sharding.timebertt.dev"], "resources": ["clusterrings"], "verbs": ["get"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]},
    ]
    async with granted(admin, ring.namespace, rules):

        def shown(said: Said) -> bool:
            assert said.code == 3
            return "CONFIGMAPS" in said.out

        said = await viewer.until(shown, "sharding", "status", ring.name)
        assert said.code == 3
        assert "not read: secrets: you may not read it; grant this identity" in said.out
        assert "3 of 3 shards available" in said.out


async def test_a_type_whose_conversion_webhook_is_away_is_a_gap_and_the_rest_is_shown(
    plugin: Plugin, stage: Stage, ring: Ring, admin: AdminClient
) -> None:
    async with broken_type(admin, ring.namespace) as group:
        # The sharder has no part in what the plugin makes of the list.
        for sharder in stage.sharders:
            await sharder.stop()
        await ring.update({"resources": [{"resource": "secrets"}, {"group": group, "resource": "wrecks"}]})

        def gap(said: Said) -> bool:
            assert said.code in (1, 3), said.err
            return bool(said.data["rings"][0]["unread"])

        said = await plugin.until(gap, "sharding", "status", ring.name, "-o", "json")
    [found] = said.data["rings"]
    assert [each["what"] for each in found["unread"]] == [f"wrecks.{group}"]
    assert {shard["name"]: shard["objects"]["secrets"] for shard in found["shards"]} == {"one": 2, "two": 2, "three": 2}
    assert {each["resource"] for each in found["resources"] if not each["counted"]} == {"wrecks"}


async def test_a_ring_that_is_not_there_is_one_line(plugin: Plugin, installed: ControlPlane) -> None:
    said = await plugin.sharding("status", "no-such-ring")
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("kubectl-sharding: there is no ClusterRing 'no-such-ring' at https://")


@dataclass(slots=True)
class Screen:
    """A terminal on which the plugin runs."""

    process: asyncio.subprocess.Process
    leader: int
    shown: bytes = b""

    async def until(self, condition: Callable[[str], bool]) -> str:
        """The last frame, once it is whole and `condition` holds for it."""
        async with asyncio.timeout(SECONDS):
            while not condition(self.frame):
                self.shown += await asyncio.to_thread(os.read, self.leader, 65536)
        return self.frame

    @property
    def frame(self) -> str:
        """What the last whole frame says."""
        frames = self.shown.split(b"\x1b[J")
        return frames[-2].decode() if len(frames) > 1 else ""


@asynccontextmanager
async def terminal(plugin: Plugin, *arguments: str) -> AsyncIterator[Screen]:
    """Run `kubectl sharding ARGUMENTS` on a terminal of its own."""
    leader, follower = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *plugin.kubectl, "sharding", *arguments,
        env=plugin.environment | {"TERM": "xterm"}, stdin=follower, stdout=follower, stderr=follower,
        start_new_session=True, preexec_fn=lambda: take_terminal(follower),
    )  # fmt: skip
    os.close(follower)
    try:
        yield Screen(process, leader)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(leader)


async def test_watching_on_a_terminal_redraws_in_colour_and_ends_with_ctrl_c(plugin: Plugin, ring: Ring) -> None:
    async with terminal(plugin, "status", ring.name, "-w", "--interval", "0.1") as screen:
        await screen.until(lambda _: screen.shown.count(b"\x1b[H") >= 3)
        os.write(screen.leader, b"\x03")
        async with asyncio.timeout(SECONDS):
            code = await screen.process.wait()
    assert code == 130
    assert screen.shown.count(b"\x1b[2J") == 1
    assert b"\x1b[32mready\x1b[0m" in screen.shown
    assert b" s, Ctrl-C ends" in screen.shown
    assert b"Traceback" not in screen.shown


async def test_what_changes_is_drawn(plugin: Plugin, stage: Stage, ring: Ring) -> None:
    for sharder in stage.sharders:
        await sharder.stop()
    async with terminal(plugin, "status", ring.name, "-w", "--color", "never") as screen:
        await screen.until(lambda frame: "3 of 3 shards available" in frame)
        await ring.create(labels={ring.labels[0]: "ghost"}, name="haunted")
        frame = await screen.until(lambda frame: "haunted" in frame)
    assert "ghost" in frame


def take_terminal(descriptor: int) -> None:
    """Make the terminal the one whose Ctrl-C the process gets."""
    import fcntl
    import termios

    fcntl.ioctl(descriptor, termios.TIOCSCTTY, 0)
    # Whoever runs these tests in the background of a shell has it ignored, and so would what they start.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


async def test_the_shell_is_offered_commands_rings_and_namespaces(plugin: Plugin, ring: Ring) -> None:
    assert "status" in await plugin.offered("")
    assert ring.name in await plugin.offered("status", "")
    assert await plugin.offered("status", "-n", ring.namespace[:-1]) == [ring.namespace]
    assert await plugin.offered("status", "-o", "j") == ["json"]

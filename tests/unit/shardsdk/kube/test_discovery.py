"""What discovery tells of a resource besides its names."""

from __future__ import annotations

import asyncio

import msgspec

from shardsdk.kube.discovery import Discovery
from shardsdk.protocol.objects import Resource
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.kube_server import says, talking


async def test_discovery_tells_what_can_be_done_to_objects_as_far_as_the_api_server_says() -> None:
    group = says({"preferredVersion": {"version": "v1"}})
    one, other = {"name": "ones", "verbs": ["list", "watch"]}, {"name": "others", "verbs": None}
    async with talking(group, says({"resources": [one, other]}), group, says({"resources": [one, other]})) as (
        client,
        _,
    ):
        ones, others = await client.discover("example.com", "ones"), await client.discover("example.com", "others")
    assert ones is not None
    assert others is not None
    assert (ones.verbs, others.verbs) == (frozenset({"list", "watch"}), frozenset())
    assert ones == Resource("example.com", "v1", "ones", "", namespaced=False), "verbs make no other resource of it"


@in_virtual_time
async def test_what_was_found_is_asked_for_again_soon_and_what_was_not_even_sooner(clock: VirtualClock) -> None:
    """A type that is deleted and made anew may be another; whoever asks for many asks once."""
    served, asked = {"ones"}, 0

    async def fetch(path: str) -> bytes:
        nonlocal asked
        if path == "/apis/example.com":
            asked += 1
            return msgspec.json.encode({"preferredVersion": {"version": "v1"}})
        return msgspec.json.encode({"resources": [{"name": name, "verbs": ["list"]} for name in served]})

    discovery = Discovery(fetch, clock)
    for _ in range(3):
        assert await discovery.find("example.com", "ones") is not None
    assert asked == 1
    served.clear()
    await asyncio.sleep(2)
    for _ in range(3):
        assert await discovery.find("example.com", "ones") is None
    assert asked == 2
    served.add("ones")
    await asyncio.sleep(1)
    assert await discovery.find("example.com", "ones") is not None

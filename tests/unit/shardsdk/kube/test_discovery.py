"""What discovery tells of a resource besides its names."""

from __future__ import annotations

from shardsdk.protocol.objects import Resource
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

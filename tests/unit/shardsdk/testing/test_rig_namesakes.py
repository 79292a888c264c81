"""A rig shows no Events and leases of the shard's own; a user's kinds that are called so are not those."""

from __future__ import annotations

from typing import Any

from shardsdk import Context, EventType, PartialObject, controller_for
from shardsdk.protocol.objects import Resource
from shardsdk.testing.rig import drive

LEASES = Resource("dhcp.example.com", "v1", "leases", "Lease")
EVENTS = Resource("concerts.example.com", "v1", "events", "Event")

OBJECT: dict[str, Any] = {"metadata": {"name": "a"}}


async def make_namesake(context: Context[PartialObject]) -> None:
    await context.api.create(EVENTS, OBJECT, context.request.namespace)
    await context.api.patch(LEASES, "a", context.request.namespace, {"spec": {"given": True}})
    context.event(EventType.NORMAL, "Made", "made a")


def test_what_only_is_called_lease_or_event_is_shown() -> None:
    rig = drive(controller_for(LEASES).owns(EVENTS).reconcile(make_namesake), [(LEASES, OBJECT)], raises=False)
    assert rig.writes[:2] == [("create", "events", "a"), ("patch", "leases", "a")]
    assert [each.resource for each in rig.sent[:2]] == [EVENTS, LEASES]
    assert rig.events[0] == ("a", "Made", "made a")

"""What people do to rings, leases, labels and certificates; and a webhook that hangs."""

from __future__ import annotations

import asyncio
import base64
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Final

from localcluster.forwarder import Backend
from localcluster.ports import LOOPBACK
from sharder.core.webhookconfig import CERTIFICATES_SECRET
from shardsdk.protocol.labels import SYSTEM_NAMESPACE, parse_ring_name
from shardsdk.serving.certificate_spec import ServingNames
from shardsdk.serving.x509 import issue, make_authority
from tests.chaos.history import ASSIGNMENTS, CHILDREN, OWNERS
from tests.chaos.process_faults import VICTIM, leases, sharder_restarted
from tests.chaos.rig import SECRETS, Rig
from tests.chaos.ring import NAMESPACE, RING, selecting

RINGS: Final = "sharding.timebertt.dev/v1alpha1/clusterrings"
ASSIGNED: Final = f"sharding.timebertt.dev/v1alpha1/{ASSIGNMENTS}"
LEASES: Final = "coordination.k8s.io/v1/leases"
_TAMPERED: Final = 20
_EDITS: Final = 10


async def labels_tampered(rig: Rig, rng: Random) -> None:
    """Objects and children lose their label, objects are told to drain."""
    labels = parse_ring_name(RING)
    owners = sorted(name for resource, name in rig.store.current if resource == OWNERS)
    children = sorted(name for resource, name in rig.store.current if resource == CHILDREN)
    for _ in range(_TAMPERED):
        resource, name, tampered = rng.choice(
            [
                (SECRETS, rng.choice(owners), {labels.shard: None}),
                (SECRETS, rng.choice(owners), {labels.drain: "true"}),
                ("v1/configmaps", rng.choice(children), {labels.shard: None}),
            ]
        )
        await rig.admin.patch(resource, name, {"metadata": {"labels": tampered}}, NAMESPACE)
        await asyncio.sleep(rng.uniform(0, 1))
    await leases(rig, 1.0)


async def leases_deleted(rig: Rig, rng: Random) -> None:
    """Each once."""
    for name in sorted(rig.living):
        await rig.admin.delete(LEASES, name, NAMESPACE)
        await leases(rig, 1.0)


async def lease_emptied(rig: Rig, rng: Random) -> None:
    """As if it had been released."""
    await rig.admin.patch(LEASES, VICTIM, {"spec": {"holderIdentity": ""}}, NAMESPACE)
    await leases(rig, 2.0)


async def certificates_expired(rig: Rig, rng: Random) -> None:
    """In the Secret where the replicas find them when they start."""
    then = datetime.now(UTC) - timedelta(days=30)
    authority = make_authority(then, timedelta(days=1))
    served = issue(authority, ServingNames.of([LOOPBACK]), then, timedelta(days=1))
    secret = await rig.admin.get(SECRETS, CERTIFICATES_SECRET, SYSTEM_NAMESPACE)
    expired = {
        "ca.crt": authority.certificate.pem,
        "ca.key": authority.key,
        "tls.crt": served.certificate.pem,
        "tls.key": served.key,
    }
    unknown = expired.keys() - secret["data"].keys()
    if unknown:
        raise AssertionError(f"the Secret does not have {sorted(unknown)} but {sorted(secret['data'])}")
    data = {key: base64.b64encode(value).decode() for key, value in expired.items()}
    await rig.admin.patch(SECRETS, CERTIFICATES_SECRET, {"data": data}, SYSTEM_NAMESPACE)
    await sharder_restarted(rig, rng)


async def webhook_in_a_black_hole(rig: Rig, rng: Random) -> None:
    """Somebody listens who never says a word."""
    silent: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda reader, writer: silent.append(writer), LOOPBACK, 0)
    port = server.sockets[0].getsockname()[1]
    right = [each.backend for each in rig.installation.sharders.values()]
    rig.installation.forwarder.replace([Backend(LOOPBACK, port, each.ready_url) for each in right])
    await rig.installation.forwarder.wait_ready(len(right))
    rig.installation.forwarder.drop()
    try:
        await rig.create(5)
        await leases(rig, 2.0)
    finally:
        rig.installation.forwarder.replace(right)
        rig.installation.forwarder.drop()
        server.close()
        for writer in silent:
            writer.close()
    if not silent:
        raise AssertionError("no request met the black hole")


async def ring_edited(rig: Rig, rng: Random) -> None:
    """Its namespace is not selected any more, until nothing has a shard."""
    await rig.admin.patch(RINGS, RING, {"spec": {"namespaceSelector": selecting("nowhere")}})
    await rig.store.until(lambda: rig.owned(*rig.living) == 0, 180.0)
    await rig.admin.patch(RINGS, RING, {"spec": {"namespaceSelector": rig.ring.spec["namespaceSelector"]}})


async def ranged_ring_edited(rig: Rig, rng: Random) -> None:
    """Its namespaces are not selected any more, until every shard has read so and been started anew."""
    async with rig.all_ended():
        await rig.admin.patch(RINGS, RING, {"spec": {"namespaceSelector": selecting("nowhere")}})
    await rig.admin.patch(RINGS, RING, {"spec": {"namespaceSelector": rig.ring.spec["namespaceSelector"]}})
    for name in sorted(rig.living):
        await rig.working(name)


async def assignment_edited(rig: Rig, rng: Random) -> None:
    """Ranges are taken from their shards or given to others by hand, and all of it is deleted."""
    for _ in range(_EDITS):
        ranges = (await rig.admin.get(ASSIGNED, RING))["spec"]["ranges"]
        edited = rng.choice(ranges)
        match rng.choice(["nobody", "another", "gone"]):
            case "nobody":
                edited.pop("shard", None)
            case "another":
                edited["shard"] = rng.choice(sorted(rig.living))
            case _:
                ranges = []
        if ranges:
            await rig.admin.patch(ASSIGNED, RING, {"spec": {"ranges": ranges}})
        else:
            await rig.admin.delete(ASSIGNED, RING)
            await rig.store.caught_up()
            await rig.store.until(lambda: (ASSIGNMENTS, RING) in rig.store.current, rig.setup.patience_seconds)
        await asyncio.sleep(rng.uniform(0, 4))
    await leases(rig, 1.0)


async def ring_deleted(rig: Rig, rng: Random) -> None:
    """Its labels stay."""
    await rig.admin.delete(RINGS, RING)
    await leases(rig, 1.0)
    await rig.installation.ring(RING, rig.ring.spec)

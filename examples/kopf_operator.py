"""A kopf operator as a shard: the handlers are as they were, only who runs them is new.

    pip install 'controller-sharding[kopf]'
    python -m examples.kopf_operator --name shard-1 --namespace default

It keeps, for every Secret of the ring `checksum`, a ConfigMap that holds the
checksum of its data.  Besides rbac/shard.yaml kopf wants to list and watch
namespaces and CustomResourceDefinitions, unless `scanning` is off, as here.  A ring by ranges is refused.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import logging
from typing import Any

import kopf

from shardsdk import LeaseTimings, Resource
from shardsdk.contrib.kopf import KopfShard
from shardsdk.errors import AlreadyExists

SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--ring", default="checksum", help="the ClusterRing (default: %(default)s)")
parser.add_argument("--name", help="this shard's name (default: the host's)")
parser.add_argument("--namespace", required=True, help="where the Secrets are")
parser.add_argument("--lease-seconds", type=int, default=15, help="how long others wait when this shard is silent")
options = parser.parse_args()

timings = LeaseTimings.of(options.lease_seconds)
# Every write of the handler goes through `shard.api`, so the lease may promise that writes are fenced.
shard = KopfShard(
    options.ring, main=[SECRETS], controlled=[CONFIGMAPS], shard=options.name, timings=timings, fenced=True
)


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    """As in any kopf operator."""
    settings.scanning.disabled = True
    settings.posting.enabled = False


@kopf.on.resume("secrets")
@kopf.on.create("secrets")
@kopf.on.update("secrets", field="data")
async def handle(body: kopf.Body, name: str, namespace: str | None, **_: Any) -> None:
    """Make the ConfigMap of one Secret what it should be; `resume` is also for what another shard gave away."""
    digest = hashlib.sha256()
    for key, value in sorted((body.get("data") or {}).items()):
        digest.update(key.encode() + b"\0" + base64.b64decode(value) + b"\0")
    child: dict[str, Any] = {"metadata": {"name": f"{name}-checksum"}, "data": {"sha256": digest.hexdigest()}}
    kopf.adopt(child)
    shard.label(child)
    try:
        await shard.api.create(CONFIGMAPS, child, namespace)
    except AlreadyExists:
        await shard.api.patch(CONFIGMAPS, f"{name}-checksum", namespace, {"data": child["data"]})


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    shard.run(namespaces=[options.namespace])

"""What an installer needs: the CRDs, the chart, and what a sharder leaves behind.

Hands out the CustomResourceDefinitions that this version was built with, and its
Helm chart, brings a cluster's definitions up to date, and removes what the sharder itself has made in a
cluster: webhook configurations, its lease, its Secret; never while a sharder
leads, which would make it again.  Objects, their labels and shards' leases stay:
shards go on with what they own.
"""

from __future__ import annotations

import logging
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sharder.core.webhookconfig import CERTIFICATES_SECRET, WEBHOOK_CONFIGURATIONS
from shardsdk.errors import ConfigurationError, NotFound, ShardingError
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock
from shardsdk.kube.definitions import CRDS
from shardsdk.kube.selectors import Selector, exists
from shardsdk.protocol.labels import API_GROUP, LEASE_RING_LABEL, RING_PLURAL
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.objects import LEASES, Resource
from shardsdk.protocol.ranges import RING_ASSIGNMENTS
from shardsdk.serving.secretstore import SECRETS

log = logging.getLogger(__name__)

#: The definitions of this project; nothing else is ever deleted.
CRD_NAMES: Final = (f"{RING_PLURAL}.{API_GROUP}", f"{RING_ASSIGNMENTS.plural}.{API_GROUP}")
FIELD_MANAGER: Final = "sharder-install"
#: A lease that nobody renews runs out; one that is renewed for this long has a living sharder behind it.
LEADER_SECONDS: Final = 120.0


class StillLeading(ShardingError):
    """A sharder holds its lease; what it has made would come back."""


def crds_folder() -> Path:
    """Where the definitions are: in the package, or next to it in a checkout."""
    packaged = Path(__file__).with_name("crds")
    return packaged if packaged.is_dir() else Path(__file__).parent.parent / "crds"


def crd_files() -> list[Path]:
    """One file per definition."""
    return sorted(crds_folder().glob("*.yaml"))


def chart_folder() -> Path:
    """Where the Helm chart is: in the package, or next to it in a checkout."""
    packaged = Path(__file__).with_name("chart")
    return packaged if packaged.is_dir() else Path(__file__).parent.parent / "charts" / "sharder"


def write_chart(folder: Path) -> None:
    """Write the chart of this version there.

    Raises: ConfigurationError when something is in there already, or this installation has no chart (an image).
    """
    if not chart_folder().is_dir():
        raise ConfigurationError("this installation has no chart: ask where controller-sharding is installed by pip")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationError(f"{folder} is there already, and not empty: name another folder")
    shutil.copytree(chart_folder(), folder, dirs_exist_ok=True)


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Where the sharder that is gone kept its lease and its Secret; `crds`: whether rings shall go as well."""

    namespace: str
    lease: str
    crds: bool = False


async def remove_leftovers(api: Api, leftovers: Leftovers, clock: Clock) -> None:
    """Remove what the sharder has made; done twice it does nothing.

    Raises: StillLeading.
    """
    await _wait_for_no_leader(api, leftovers, clock)
    async for page in api.pages(WEBHOOK_CONFIGURATIONS, selector=Selector(labels=exists(LEASE_RING_LABEL))):
        for configuration in page:
            await _delete(api, WEBHOOK_CONFIGURATIONS, configuration.metadata.name)
    await _delete(api, SECRETS, CERTIFICATES_SECRET, leftovers.namespace)
    await _delete(api, LEASES, leftovers.lease, leftovers.namespace)
    for name in CRD_NAMES if leftovers.crds else ():
        await _delete(api, CRDS, name)


async def _wait_for_no_leader(api: Api, leftovers: Leftovers, clock: Clock) -> None:
    """Return once the lease is released, absent or, by our own clock, run out.

    A sharder whose permissions went first cannot release it, so it may have to run out.
    """
    began = seen_at = clock.monotonic()
    seen = ""
    while True:
        try:
            lease = await api.get(LEASES, leftovers.lease, leftovers.namespace, model=Lease)
        except NotFound:
            return
        now = clock.monotonic()
        if lease.metadata.resource_version != seen:
            seen, seen_at = lease.metadata.resource_version, now
            if now - began > LEADER_SECONDS:
                raise StillLeading(
                    f"{lease.holder} renews the lease {leftovers.namespace}/{leftovers.lease}: a sharder is running;"
                    " stop it (scale its Deployment to 0), then try again"
                )
        left = seen_at + (lease.spec.lease_duration_seconds or 0) - now
        if not lease.holder or left <= 0:
            return
        await clock.sleep(min(left, 1.0))


async def _delete(api: Api, resource: Resource, name: str, namespace: str | None = None) -> None:
    try:
        await api.delete(resource, name, namespace)
        log.info("removed", extra={"resource": str(resource.group_resource), "object": name})
    except NotFound:
        pass

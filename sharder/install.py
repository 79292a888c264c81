"""What an installer needs: the CRDs, the chart, and what a sharder leaves behind.

Hands out the CustomResourceDefinitions that this version was built with, and its
Helm chart, brings a cluster's definitions up to date, and removes what the sharder itself has made in a
cluster: webhook configurations, its Secret, its lease; never while a sharder
leads, which would make it again.  Objects, their labels and shards' leases stay:
shards go on with what they own.
"""

from __future__ import annotations

import logging
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sharder.core.webhookconfig import CERTIFICATES_SECRET, WEBHOOK_CONFIGURATIONS
from sharder.manifests import status_of
from shardsdk.errors import ConfigurationError, Forbidden, NotFound, ShardingError
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock
from shardsdk.kube.definitions import CRDS
from shardsdk.kube.selectors import Selector, equals, exists
from shardsdk.output import writing
from shardsdk.protocol.labels import API_GROUP, LEASE_RING_LABEL, RING_PLURAL
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES, Resource
from shardsdk.protocol.ranges import RING_ASSIGNMENTS
from shardsdk.serving.secretstore import SECRETS

log = logging.getLogger(__name__)

#: The definitions of this project; nothing else is ever deleted.
CRD_NAMES: Final = (f"{RING_PLURAL}.{API_GROUP}", f"{RING_ASSIGNMENTS.plural}.{API_GROUP}")
FIELD_MANAGER: Final = "sharder-install"
#: A lease that nobody renews runs out; one that is renewed for this long has a living sharder behind it.
LEADER_SECONDS: Final = 120.0
#: For so long at most it is waited to see whether a Lease of that name in another namespace is renewed: anybody may
#: call one so.
OTHERS_SECONDS: Final = 60.0


class StillLeading(ShardingError):
    """A sharder holds its lease; what it has made would come back."""


def crds_folder() -> Path:
    """Where the definitions are: in the package, or next to it in a checkout."""
    packaged = Path(__file__).with_name("crds")
    return packaged if packaged.is_dir() else Path(__file__).parent.parent / "crds"


def crd_files() -> list[Path]:
    """One file per definition."""
    return sorted(crds_folder().glob("*.yaml"))


def own_definitions() -> list[dict[str, Any]]:
    """The definitions of this version, as the API server takes them."""
    import yaml

    return [yaml.safe_load(path.read_text(encoding="utf-8")) for path in crd_files()]


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
    with writing(str(folder), "name another folder"):
        shutil.copytree(chart_folder(), folder, dirs_exist_ok=True)


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Where the sharder that is gone kept its lease and its Secret; `crds`: whether rings shall go as well."""

    namespace: str
    lease: str
    crds: bool = False


async def remove_leftovers(api: Api, leftovers: Leftovers, clock: Clock) -> None:
    """Remove what the sharder has made; done twice it does nothing.

    Raises: StillLeading, and ConfigurationError for rings of which nobody can tell whether a sharder leads.
    """
    spaces = await _wait_for_no_leader(api, leftovers, clock)
    if leftovers.crds and not spaces:
        await _require_no_ring_of_a_sharder(api, leftovers.lease)
    async for page in api.pages(WEBHOOK_CONFIGURATIONS, selector=Selector(labels=exists(LEASE_RING_LABEL))):
        for configuration in page:
            await _delete(api, WEBHOOK_CONFIGURATIONS, configuration.metadata.name)
    await _delete(api, SECRETS, CERTIFICATES_SECRET, leftovers.namespace)
    for name in CRD_NAMES if leftovers.crds else ():
        await _delete(api, CRDS, name)
    # Last: a second run after one that was cut off finds by it that no sharder leads.
    if leftovers.namespace in spaces:
        await _delete(api, LEASES, leftovers.lease, leftovers.namespace)


async def _wait_for_no_leader(api: Api, leftovers: Leftovers, clock: Clock) -> set[str]:
    """Return once the sharder's Lease is released or, by our own clock, run out; gives the namespaces that have one.

    A sharder whose permissions went first cannot release its own, so it may have to run out.
    """
    began = clock.monotonic()
    seen: dict[str, tuple[str, float]] = {}
    while True:
        leases = await _find_leases(api, leftovers)
        now, waits = clock.monotonic(), list[float]()
        for lease in leases:
            namespace, version = lease.metadata.namespace, lease.metadata.resource_version
            own, lasts = namespace == leftovers.namespace, float(lease.spec.lease_duration_seconds or 0)
            patience = LEADER_SECONDS if own else min(2 * lasts, OTHERS_SECONDS)
            if seen.get(namespace, ("", 0.0))[0] != version:
                seen[namespace] = version, now
            since = seen[namespace][1]
            left = since + (lasts if own else min(lasts, patience)) - now
            if not lease.holder or left <= 0:
                continue
            if since - began > patience:
                raise StillLeading(_tell_leader(lease, leftovers, own=own))
            waits.append(left)
        if not waits:
            return {lease.metadata.namespace for lease in leases}
        await clock.sleep(min(*waits, 1.0))


async def _find_leases(api: Api, leftovers: Leftovers) -> list[Lease]:
    """The sharder's Lease; with `crds`, or while there is none where it is said to be, all so called but shards'.

    What is removed belongs to the whole cluster, so a mistake in the namespace is not to take it from a sharder
    that leads in another; and rings, which do not come back, not from one that has moved there.  Raises: Forbidden.
    """
    selector = Selector(fields=equals("metadata.name", leftovers.lease))
    try:
        found = [each async for page in api.pages(LEASES, selector=selector, model=Lease) for each in page]
    except Forbidden:
        if leftovers.crds:
            raise
        # What a chart from before lists were asked for grants its Job is this one Lease.
        try:
            found = [await api.get(LEASES, leftovers.lease, leftovers.namespace, model=Lease)]
        except NotFound:
            found = []
    found = [each for each in found if each.metadata.label(LEASE_RING_LABEL) is None]
    own = [each for each in found if each.metadata.namespace == leftovers.namespace]
    return found if leftovers.crds else own or found


def _tell_leader(lease: Lease, leftovers: Leftovers, *, own: bool) -> str:
    space, renews = leftovers.namespace, f"{lease.holder} renews the lease {lease.metadata.namespace}/{leftovers.lease}"
    stop = "stop it (scale its Deployment to 0), then try again"
    if own:
        return f"{renews}: a sharder is running; {stop}"
    another = (
        "name by -n and --lease the Lease of the sharder that was here or, where that is gone, by --lease what no Lease"
        " is called"
    )
    if leftovers.crds:
        # Another name would not do: without a Lease of it, rings that a sharder has looked at are in the way.
        another = (
            f"run `sharder uninstall -n {space} --lease {leftovers.lease}`, without --crds, and after that"
            f" `kubectl delete crd {' '.join(CRD_NAMES)}`"
        )
    return f"{renews}, which is not in {space}: if that is a sharder, {stop}; if it is none, {another}"


async def _require_no_ring_of_a_sharder(api: Api, lease: str) -> None:
    """Raises: ConfigurationError when there is a ring that a sharder has looked at: it has a status."""
    try:
        async for page in api.pages(CLUSTERRINGS, model=dict):
            for ring in page:
                if status_of(ring):
                    raise ConfigurationError(
                        f"there is no Lease {lease} in any namespace, so nobody can tell whether a sharder leads, and"
                        f" --crds would delete ClusterRing {ring['metadata']['name']} and every other. An uninstall"
                        " before this one may have removed it: then delete the rings (kubectl delete clusterrings"
                        " --all), and try again; else name the Lease of the sharder that was here by --lease"
                    )
    except NotFound:
        pass  # no definition, no rings


async def _delete(api: Api, resource: Resource, name: str, namespace: str | None = None) -> None:
    try:
        await api.delete(resource, name, namespace)
        log.info("removed", extra={"resource": str(resource.group_resource), "object": name})
    except NotFound:
        pass

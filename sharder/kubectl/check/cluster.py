"""Judges what all rings share: the sharder itself, and what belongs to rings that are not there."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from sharder.kubectl.check.findings import Finding, failed, failure_of, good, problem, skipped, unknown, warning
from sharder.kubectl.leader import LEADERS_LEASE, Leading, Sharder
from sharder.kubectl.outcomes import Unread
from sharder.kubectl.text import plural
from shardsdk.protocol.labels import LEASE_RING_LABEL

#: What a gap is called where it could not be asked what the sharder's ServiceAccount may.
PERMISSIONS: Final = "what the sharder may"
#: What every sharder needs, whatever its rings: (group, resource) -> verbs.  Source: rbac/sharder.yaml.
SHARDER_RULES: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("coordination.k8s.io", "leases"): ("get", "list", "watch", "create", "patch", "delete"),
    ("sharding.timebertt.dev", "clusterrings"): ("list", "watch"),
    ("sharding.timebertt.dev", "clusterrings/status"): ("patch",),
    ("sharding.timebertt.dev", "ringassignments"): ("get", "list", "watch", "create", "patch"),
    ("sharding.timebertt.dev", "ringassignments/status"): ("patch",),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"): ("list", "watch", "create", "patch", "delete"),
    ("", "namespaces"): ("list", "watch"),
    ("", "events"): ("create", "patch"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"): ("create",),
    ("authentication.k8s.io", "selfsubjectreviews"): ("create",),
}


def check_sharder(
    leading: Leading | None, denied: Collection[str] | None, sharder: Sharder, gaps: Collection[Unread] = ()
) -> Iterator[Finding]:
    """Does one lead, and may it do what it needs?  `denied` None: that could not be asked; `gaps` say why."""
    name = "/".join(sharder.account)
    if leading is None and (gap := failure_of(gaps, LEADERS_LEASE)) is not None:
        yield failed("sharder", gap)
    elif leading is None:
        yield unknown(
            "sharder",
            f"its lease {'/'.join(sharder.lease)} may not be read",
            "grant yourself get on leases in its namespace",
        )
    elif leading.alive and leading.late:
        yield warning(
            "sharder", f"{leading.words}, longer than its lease lasts",
            "look into its log, whether it may patch leases, and at this machine's clock",
        )  # fmt: skip
    elif leading.alive:
        yield good("sharder", leading.words)
    else:
        yield problem(
            "sharder", leading.words,
            "start the sharder, or look into its log; --lease names the lease of one elsewhere",
        )  # fmt: skip
    if denied is None and (gap := failure_of(gaps, PERMISSIONS)) is not None:
        yield failed("permissions", gap)
    elif denied is None:
        yield skipped("permissions", f"you may not ask what {name} may")
    elif not denied:
        yield good("permissions", f"{name} may do what every sharder needs")
    elif leading is not None and leading.alive:
        yield warning(
            "permissions", f"{name} may not {', '.join(sorted(denied))}; the sharder that leads may be another one",
            "apply rbac/sharder.yaml, or name its ServiceAccount with --service-account",
        )  # fmt: skip
    else:
        yield problem("permissions", f"{name} may not {', '.join(sorted(denied))}", "apply rbac/sharder.yaml")


def check_strangers(
    rings: Collection[str], leases: Mapping[str, Mapping[str, bool]] | None, webhooks: Collection[str] | None
) -> Iterator[Finding]:
    """What carries the name of a ring that is not there.

    `leases`: ring name -> shards (NAMESPACE/NAME) whose lease carries it, and whether that runs; `webhooks`: ring names
    of webhook configurations; None: not read.  Leases that nobody holds any more are no problem, they are just left.
    """
    for ring, shards in sorted((leases or {}).items()):
        running = sorted(shard for shard, runs in shards.items() if runs)
        if ring not in rings and not running:
            yield skipped(
                "shards", f"{plural(len(shards), 'lease')} of ring {ring}, which is not there, and no shard holds them:"
                f" `kubectl delete leases -A -l {LEASE_RING_LABEL}={ring}`",
            )  # fmt: skip
        elif ring not in rings:
            yield problem(
                "shards", f"{', '.join(running[:5])} belong to ring {ring}, which is not there",
                f"create the ring, or correct the ring's name in the shards' settings; labels that it has left go with"
                f" `kubectl sharding cleanup {ring}`",
            )  # fmt: skip
    for ring in sorted(set(webhooks or ()) - set(rings)):
        yield problem(
            "webhook", f"the configuration clusterring-{ring} is of a ring that is not there",
            f"kubectl delete mutatingwebhookconfiguration clusterring-{ring}",
        )  # fmt: skip

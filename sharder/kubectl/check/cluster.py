"""Judges what all rings share: the sharder itself, and what belongs to rings that are not there."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from sharder.core.problems import LIST_LEADERS, some
from sharder.kubectl.check.findings import Finding, failed, failure_of, good, problem, skipped, unknown, warning
from sharder.kubectl.leader import LEADERS_LEASE, LEADERS_LEASES, Leading, Sharder
from sharder.kubectl.outcomes import Unread
from sharder.kubectl.text import plural
from sharder.rbac import account_option
from shardsdk.protocol.labels import LEASE_RING_LABEL
from shardsdk.protocol.objects import GroupResource

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


def named(verb: str, resource: GroupResource) -> str:
    """What a sharder may or may not do, as people are told of it.

    >>> named("patch", GroupResource("apps", "deployments"))
    'patch deployments.apps'
    """
    return f"{verb} {resource}"


#: Without this nothing of a ring is placed that its status does not say already.
_WRITE_STATUS: Final = named("patch", GroupResource("sharding.timebertt.dev", "clusterrings/status"))


def check_sharder(
    leading: Leading | None,
    denied: Collection[str] | None,
    sharder: Sharder,
    gaps: Collection[Unread] = (),
    *,
    unseen: Collection[str] = (),
) -> Iterator[Finding]:
    """Does one lead, and may it do what it needs?

    `denied` None: that could not be asked; `gaps` say why.  `unseen`: rings whose present spec no status speaks of.
    """
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
    yield _judge_permissions(leading, denied, sharder, gaps, unseen)


def check_leaders(leaders: Sequence[str] | None, gaps: Collection[Unread] = ()) -> Iterator[Finding]:
    """Does more than one lead?  `leaders` are the leases by which sharders do; None: not read, and `gaps` say why."""
    if leaders is None and (gap := failure_of(gaps, LEADERS_LEASES)) is not None:
        yield failed("sharder", gap)
    elif leaders is None:
        yield skipped("sharder", "whether another one leads is not known: you may not list leases in all namespaces")
    elif len(leaders) > 1:
        yield problem(
            "sharder", f"more than one leads, by the leases {some(leaders)}: each undoes what the other does",
            f"remove one; `{LIST_LEADERS}` shows who leads",
        )  # fmt: skip


def _judge_permissions(
    leading: Leading | None,
    denied: Collection[str] | None,
    sharder: Sharder,
    gaps: Collection[Unread],
    unseen: Collection[str],
) -> Finding:
    topic, name = "permissions", "/".join(sharder.account)
    if denied is None and (gap := failure_of(gaps, PERMISSIONS)) is not None:
        return failed(topic, gap)
    if denied is None:
        return skipped(topic, f"you may not ask what {name} may")
    if not denied:
        return good(topic, f"{name} may do what every sharder needs")
    lacks, remedy = f"{name} may not {', '.join(sorted(denied))}", "apply rbac/sharder.yaml"
    if account_option(sharder.account):
        remedy += f", with {name} as the subject of its bindings"
    if leading is None or not leading.alive:
        return problem(topic, lacks, remedy)
    if _WRITE_STATUS in denied:
        lacks += (
            ", so that a ring that is new gets neither labels nor a webhook, and one that lists more goes on as before"
        )
    other = "name its ServiceAccount with --service-account"
    if _WRITE_STATUS in denied and unseen:
        return problem(
            topic,
            f"{lacks}; no status speaks of the present spec of {some(unseen)}",
            f"{remedy}; if another one leads, {other}",
        )
    return warning(topic, f"{lacks}; the sharder that leads may be another one", f"{remedy}, or {other}")


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

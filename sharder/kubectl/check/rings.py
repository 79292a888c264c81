"""Judges a ring, its shards and its objects.

What was read becomes findings, each with its remedy.  What is merely in motion
is no alarm: objects that change hands are a problem only once that has lasted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Final

from sharder.core.problems import some
from sharder.core.rights import MissingRule, remedy_to_grant
from sharder.core.ringspec import AssignBy, ResolvedRing
from sharder.core.shards import State, describe_stranger
from sharder.kubectl.check.cluster import PERMISSIONS
from sharder.kubectl.check.findings import Finding, Level, failed, failure_of, good, problem, skipped, unknown, warning
from sharder.kubectl.check.ranges import check_ranges
from sharder.kubectl.cluster import Ring
from sharder.kubectl.counting import Trouble
from sharder.kubectl.leader import Leading
from sharder.kubectl.outcomes import Unread
from sharder.kubectl.ranges import SeenRanges
from sharder.kubectl.selecting import by_name_alone, describe_selector
from sharder.kubectl.status.overview import Condition, Overview, unleased_shards
from sharder.kubectl.text import plural, span
from sharder.rbac import RING_VERBS, account_option
from shardsdk.protocol.objects import GroupResource

#: Objects may be on their way for so long before that is a problem.
PATIENCE_SECONDS: Final = 60.0
_NAMED: Final = 5

#: Verb and resource -> whether the sharder may; None: that could not be asked.
Permissions = Mapping[tuple[str, GroupResource], bool]


@dataclass(frozen=True, slots=True)
class RingEvidence:
    """What was read of one ring.

    `resolved` None: the spec cannot be used.  `namespaces`: those that the ring
    covers (None: not read).  `permissions` None: the API server does not tell us.  `ranges`, `filters`: of a ring
    by ranges, its RingAssignment and whether the API server filters.  `undiscovered`: resources of which nobody can
    tell whether they are served.  `gaps`: all that could not be read.
    """

    ring: Ring
    overview: Overview
    resolved: ResolvedRing | None
    missing: tuple[GroupResource, ...]
    namespaces: Sequence[str] | None
    permissions: Permissions | None
    leading: Leading | None
    account: tuple[str, str]
    ranges: SeenRanges | None = None
    filters: bool | None = None
    undiscovered: tuple[Unread, ...] = ()
    gaps: tuple[Unread, ...] = ()


def check_ring(evidence: RingEvidence) -> Iterator[Finding]:
    """Everything but the webhook."""
    told = tuple(_check_parts(evidence))
    yield from told
    if evidence.resolved is not None:
        yield from check_ready(evidence.overview, told)


def _check_parts(evidence: RingEvidence) -> Iterator[Finding]:
    yield from check_spec(evidence)
    if evidence.resolved is None:
        return
    yield from check_namespaces(evidence, evidence.resolved)
    if evidence.resolved.spec.assign_by is AssignBy.RANGES:
        yield good("permissions", "the sharder needs none on the ring's resources")
        yield from check_ranges(evidence.ring.name, evidence.ranges, evidence.filters, evidence.gaps)
    else:
        yield from check_permissions(evidence)
    yield from check_shards(evidence.overview)
    yield from check_fit(evidence.overview)
    yield from check_objects(evidence.overview, evidence.leading)
    yield from check_drains(evidence.overview)


def check_spec(evidence: RingEvidence) -> Iterator[Finding]:
    """Can the ring be used, and has the sharder seen it?"""
    ring = evidence.ring
    if ring.invalid is not None:
        for each in ring.invalid.problems:
            yield problem("spec", f"{each.path}: {each.message}", each.remedy)
        return
    yield from (failed("spec", gap) for gap in evidence.undiscovered)
    if evidence.missing:
        names = ", ".join(map(str, evidence.missing))
        yield problem(
            "spec", f"the API server does not serve {names}, or not for list, watch and patch",
            "install their CustomResourceDefinitions, or correct group and plural in spec.resources",
        )  # fmt: skip
    elif evidence.undiscovered:
        pass
    elif evidence.resolved is not None and not evidence.resolved.mains:
        yield problem("spec", "the ring lists no resources", "list what its shards reconcile in spec.resources")
    else:
        yield good("spec", "every resource is served")
    if not ring.status:
        yield problem("sharder", "no sharder has seen the ring", "start one, or look into its log")
    elif not ring.up_to_date:
        yield problem("sharder", "no sharder has seen the present spec yet", "look into the log of the leading one")


def check_namespaces(evidence: RingEvidence, resolved: ResolvedRing) -> Iterator[Finding]:
    """Does the selector select anything?"""
    selector = describe_selector(resolved.namespace_selector)
    if evidence.namespaces is None and (gap := failure_of(evidence.gaps, "namespaces")) is not None:
        yield failed("namespaces", gap)
    elif evidence.namespaces is None:
        yield skipped("namespaces", f"which namespaces {selector or 'everything'} selects could not be read")
    elif evidence.namespaces:
        yield good("namespaces", f"{plural(len(evidence.namespaces), 'namespace')} selected")
    elif all(not main.resource.namespaced for main in resolved.mains):
        yield good("namespaces", "none selected, and none needed: its resources are cluster-scoped")
    else:
        yield problem(
            "namespaces", f"no namespace is selected by {selector}",
            "make a namespace that it names, or correct spec.namespaceSelector"
            if by_name_alone(resolved.namespace_selector)
            else "label the namespaces that the ring shall cover, or correct spec.namespaceSelector",
        )  # fmt: skip


def check_permissions(evidence: RingEvidence) -> Iterator[Finding]:
    """May the sharder place the ring's objects?  By the API server's word, else by the sharder's own."""
    topic, name = "permissions", "/".join(evidence.account)
    condition = evidence.overview.condition("PermissionsGranted")
    said = condition.status if condition is not None and evidence.overview.up_to_date else None
    show = f"kubectl sharding rbac {evidence.ring.name}{account_option(evidence.account)}"
    remedy = f"{show} | kubectl apply -f -"
    if evidence.permissions is None:
        yield _permissions_by_condition(condition, said, remedy, failure_of(evidence.gaps, PERMISSIONS))
        return
    lacking = [MissingRule(*each) for each, may in evidence.permissions.items() if not may]
    denied = [str(each) for each in lacking]
    if lacking and all(each.is_to_grant for each in lacking):
        remedy = remedy_to_grant(show)  # the manifest does not grant that
    if not denied:
        yield good(topic, f"{name} may {', '.join(RING_VERBS)} every resource of the ring")
    elif said:
        yield warning(
            topic,
            f"{name} may not {some(denied, _NAMED)}, but the sharder says that it may: the right was taken away within"
            " the last minute, or it has another identity",
            f"{remedy}; or name the ServiceAccount that it runs under with --service-account",
        )  # fmt: skip
    else:
        yield problem(topic, f"{name} may not {some(denied, _NAMED)}", remedy)


def _permissions_by_condition(
    condition: Condition | None, said: bool | None, remedy: str, gap: Unread | None
) -> Finding:
    """By the sharder's own word; `gap`: over which the API server failed (None: a right is missing)."""
    if said:
        return good("permissions", "granted, as the sharder says")
    if said is False and condition is not None:
        return problem("permissions", condition.message.partition(";")[0], remedy)
    if gap is not None:
        return failed("permissions", gap)
    return unknown(
        "permissions", "you may not ask what the sharder may, and it has not said so itself",
        "grant yourself create on subjectaccessreviews (authorization.k8s.io)",
    )  # fmt: skip


def check_shards(overview: Overview) -> Iterator[Finding]:
    """Are there shards, with names of their own, and do they renew their leases?"""
    topic = "shards"
    present = overview.present
    if overview.shard_statuses is None or overview.membership is None or present is None:
        if (gap := failure_of(overview.unread, "leases")) is not None:
            yield failed(topic, gap)
            return
        yield unknown(topic, "the shards' leases could not be read", "grant yourself list on leases in all namespaces")
        return
    membership, before = overview.membership, 0
    for name in sorted(membership.ambiguous):
        where = ", ".join(each.namespace for each in overview.shard_statuses if each.name == name and each.available)
        before += 1
        yield problem(
            topic, f"the name {name} is held in several namespaces ({where}); what it has is not moved",
            "give every shard of the ring a name of its own, and restart those",
        )  # fmt: skip
    for name in sorted(membership.unusable):
        before += 1
        yield problem(
            topic, f"the name {name} cannot be a label value, so the shard gets nothing",
            "use at most 63 lower-case letters, digits, '-' and '.'",
        )  # fmt: skip
    for each in present:
        if each.strange:
            before += 1
            message, _, remedy = describe_stranger(each.namespace, each.name, each.holder).partition("; ")
            yield problem(topic, message, remedy)
    if not membership.available:
        yield problem(
            topic, f"none of {plural(len(present), 'shard')} is available; objects wait",
            "start a shard of this ring, or look into the log of one that does not hold its lease",
        )  # fmt: skip
        return
    for each in present:
        if each.silent or each.state in (State.EXPIRED, State.UNCERTAIN):
            before += 1
            yield warning(
                topic, f"{each.name} last renewed its lease {each.renewed}",
                "look into its log; once the lease has run out, its objects move",
            )  # fmt: skip
    if not before:
        yield good(topic, f"{len(membership.available)} of {plural(len(present), 'shard')} available")


def check_objects(overview: Overview, leading: Leading | None) -> Iterator[Finding]:
    """Is every object where it belongs, or on its way?"""
    topic, settled = "objects", overview.condition("Settled")
    if overview.membership is not None and not overview.membership.available:
        return
    if overview.settled:
        yield good(topic, f"all {sum(each.total for each in overview.resources)} are where they belong")
        return
    troubles = [(trouble, overview.seen(trouble)) for trouble in Trouble if overview.seen(trouble)]
    if not troubles or overview.unread:
        # What is amiss in the rest says nothing of what could not be counted.
        gaps = "; ".join(str(gap) for gap in overview.unread) or "not everything could be counted"
        yield unknown(topic, gaps)
    if not troubles:
        return
    counts = ", ".join(f"{count} {trouble.value}" for trouble, count in troubles)
    unsettled_for = settled.seconds if settled is not None and settled.status is False else None
    ghosts = unleased_shards(overview) if overview.membership is not None else ()
    more = f"; on shards without lease: {some(ghosts, _NAMED)}" if ghosts else ""
    waits = overview.waits if overview.up_to_date else None
    why = f"; condition Settled ({waits.reason}): {waits.message}" if waits is not None else ""
    remedy = f"kubectl sharding explain {_an_example(overview)}"
    if leading is not None and not leading.alive:
        yield problem(topic, f"{counts}{more}, and no sharder leads", "start the sharder, or look into its log")
    elif unsettled_for is not None and unsettled_for > PATIENCE_SECONDS:
        yield problem(topic, f"{counts}{more}, for {span(unsettled_for)}{why}", remedy)
    elif why:
        yield warning(topic, f"{counts}{more}{why}", remedy)
    else:
        yield warning(topic, f"{counts}{more}: on their way, or about to be", f"if it lasts: {remedy}")


def check_fit(overview: Overview) -> Iterator[Finding]:
    """Does a shard get nothing because of its Lease, or what one had stay since its Lease is another's by now?"""
    for kind in (overview.condition("ShardsFit"), overview.condition("ShardNamesUnique")):
        if kind is None or not overview.up_to_date or kind.status is not False:
            continue
        # Those are seen in the leases themselves.
        if kind.reason not in ("Ambiguous", "NotALabelValue", "RangesOverlap", "RangesUnreadable"):
            message, _, remedy = kind.message.partition("; ")
            yield problem("shards", message, remedy)


def check_drains(overview: Overview) -> Iterator[Finding]:
    """Does a shard keep what it was asked to let go of?"""
    condition = overview.condition("DrainsAcknowledged")
    if condition is None or not overview.up_to_date:
        return
    if condition.status is False:
        message, _, remedy = condition.message.partition("; ")
        yield problem("drains", message, remedy)
    elif condition.status:
        yield good("drains", "shards let go of objects in time")


def check_ready(overview: Overview, told: Collection[Finding]) -> Iterator[Finding]:
    """Whatever else the sharder complains about, but for what has been `told` as a problem."""
    ready = overview.condition("Ready")
    if ready is None or ready.status is not False or not overview.up_to_date:
        return
    problems = {each.topic for each in told if each.level is Level.PROBLEM}
    reasons = [
        (each.message, topic)
        for name, topic in (("ResourcesServed", "spec"), ("PermissionsGranted", "permissions"))
        if (each := overview.condition(name)) is not None and each.status is False
    ]
    known = [message for message, topic in reasons if topic in problems]
    if known and ready.message in (*known, " | ".join(known)):
        return
    message, remedy = ready.message or ready.reason, ""
    if message in [each for each, _ in reasons] or " | " not in message:
        message, _, remedy = message.partition("; ")
    yield problem("ready", message, remedy or "look into the log of the leading sharder")


def _an_example(overview: Overview) -> str:
    """An object in trouble, as arguments of `explain`."""
    for each in overview.resources:
        for names in each.examples.values():
            for named in names:
                namespace, _, name = named.rpartition("/")
                # A Role may be called as whoever makes it likes, with `;` and `$(`.
                return f"{each.resource} {quote(name)}" + (f" -n {namespace}" if namespace else "")
    return "RESOURCE NAME"

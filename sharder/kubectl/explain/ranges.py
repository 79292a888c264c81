"""Why an object of a ring by ranges is where it is: its point, who is named for the range of that, and who holds it."""

from __future__ import annotations

from collections.abc import Iterator

from sharder.kubectl.explain.explanation import Explanation, Known, describe_shard, unable
from sharder.kubectl.ranges import Place, SeenRanges
from sharder.kubectl.selecting import describe_selector
from shardsdk.protocol.labels import LEASE_RING_LABEL
from shardsdk.protocol.ranges import HashBy, render_bound


def explain_range(known: Known, seen: SeenRanges) -> Explanation:
    """Why, and what next."""
    point = seen.by.point(known.meta)
    place = seen.at(point)
    ignored = known.covered is False or known.subject.key_of(known.meta) is None
    readable = seen.named is not None and seen.held is not None and known.covered is not None
    in_place = True if ignored else place.holder is not None and place.holder == place.named if readable else None
    current = None if ignored else place.holder
    return Explanation(
        ring=known.ring.spec.name,
        role=known.subject.role,
        key=f"{render_bound(point)} ({_hashed(known, seen)})",
        current=current,
        draining=current is not None and place.named != current,
        shard_status=describe_shard(known, current),
        desired=None if ignored else place.named,
        outcome=None,
        because=tuple(_because(known, seen, place)),
        then=_then(known, seen, place, ignored=ignored),
        missing=tuple(_missing(known, place)) if in_place is False else (),
        in_place=in_place,
    )


def _hashed(known: Known, seen: SeenRanges) -> str:
    return f"namespace {known.meta.namespace!r}" if seen.by is HashBy.NAMESPACE else f"uid {known.meta.uid}"


def _because(known: Known, seen: SeenRanges, place: Place) -> Iterator[str]:
    if known.covered is False:
        selector = describe_selector(known.ring.namespace_selector)
        yield f"namespace {known.meta.namespace} is outside the ring's scope ({selector})"
        return
    if known.covered is None:
        yield f"whether namespace {known.meta.namespace} belongs to the ring could not be read"
    if known.subject.key_of(known.meta) is None:
        yield f"the ring takes {known.subject.resource.plural} whose controller is a {known.subject.main.resource.kind}"
        return
    if seen.named is None:
        yield seen.problem or "the ring's RingAssignment could not be read"
        return
    names = f"names {place.named}" if place.named is not None else "names nobody at present"
    assignment = f"RingAssignment {known.ring.spec.name} {names}"
    yield f"the hash of its {_hashed(known, seen)} is in the range {place}, for which {assignment}"
    if seen.held is None:
        yield "the shards' leases could not be read"
    elif place.holder is None:
        yield "no shard's lease says that it holds this range"
    else:
        for shard in place.holders:
            yield f"the lease of {shard} says that it holds this range"


def _then(known: Known, seen: SeenRanges, place: Place, *, ignored: bool) -> str:
    if ignored:
        return "the ring leaves it alone"
    if seen.named is None or seen.held is None or known.covered is None:
        return "not known: not everything could be read"
    if place.holder is not None and place.holder == place.named:
        return "it is where it belongs"
    if place.holder is not None:
        return f"{place.holder} is to let go of it, and says so in its lease when it has; then another shard is named"
    if place.named is None:
        return "the sharder names a shard for it, as a rule within a second"
    if known.membership is not None and place.named not in known.membership.available:
        return f"the sharder names another shard {known.once_held(place.named)}"
    return f"{place.named} takes it as soon as no other shard's lease holds it"


def _missing(known: Known, place: Place) -> Iterator[str]:
    name = known.ring.spec.name
    if known.membership is not None and not known.membership.available:
        yield (
            f"an available shard: start one (a Lease labelled {LEASE_RING_LABEL}={name}, held by the shard that it is"
            " named after)"
        )
    if place.holder is not None and place.holder != place.named:
        if known.membership is not None and place.holder in known.membership.left:
            yield f"the next process of {place.holder}, which ended with a restart grace, or the end of its Lease"
        else:
            yield f"the answer of {place.holder}: look into its log, or stop it, and what it has moves without it"
    yield from unable(known)

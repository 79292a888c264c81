"""Judges what a ring by ranges needs besides: a RingAssignment, an API server that filters, namespaces to share out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from sharder.kubectl.check.findings import Finding, failed, failure_of, good, problem, unknown, warning
from sharder.kubectl.outcomes import Unread
from sharder.kubectl.ranges import SeenRanges
from sharder.kubectl.text import plural
from shardsdk.errors import ShardingError
from shardsdk.kube.api import Api
from shardsdk.protocol.objects import LEASES
from shardsdk.protocol.ranges import EVERYWHERE, HashBy

GATE: Final = "ShardedListAndWatch"


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    shard_info: dict[str, Any] | None = None


class _List(msgspec.Struct, frozen=True):
    metadata: _ListMeta = _ListMeta()


#: What is said of the RingAssignment's own conditions, by their types.
_TOPICS: Final = {"Even": "balance", "Together": "namespaces"}


async def read_filtering(api: Api) -> bool | None:
    """Whether the API server that answers filters by hash range; None: it would not say.

    Only the list of a built-in resource tells: it repeats the selector that it went by.
    """
    query = [("limit", "1"), ("shardSelector", EVERYWHERE.selector(HashBy.UID))]
    try:
        raw = await api.raw("GET", LEASES.path(None), query=query)
        return msgspec.json.decode(raw, type=_List).metadata.shard_info is not None
    except (ShardingError, msgspec.DecodeError):
        return None


def check_ranges(
    ring: str, seen: SeenRanges | None, filters: bool | None, gaps: Iterable[Unread] = ()
) -> Iterator[Finding]:
    """Everything that only a ring by ranges needs; `gaps`: what could not be read of it."""
    yield from _check_assignment(ring, seen, gaps)
    yield _check_filtering(filters)
    for each in seen.conditions if seen is not None else ():
        topic = _TOPICS.get(each.type)
        if topic is not None and each.status is False:
            message, _, remedy = each.message.partition("; ")
            yield warning(topic, message, remedy)
        elif topic is not None and each.status:
            yield good(topic, each.message)


def _check_assignment(ring: str, seen: SeenRanges | None, gaps: Iterable[Unread]) -> Iterator[Finding]:
    unread = seen is None or (seen.named is None and not seen.problem)
    if unread and (gap := failure_of(gaps, "ringassignment")) is not None:
        yield failed("ranges", gap)
    elif seen is None or unread:
        yield unknown(
            "ranges", f"RingAssignment {ring} could not be read",
            "grant yourself get on ringassignments (sharding.timebertt.dev)",
        )  # fmt: skip
    elif seen.named is None:
        yield problem("ranges", seen.problem, "look into the log of the leading sharder, which makes it")
    elif seen.overlapping is not None:
        message, _, remedy = seen.overlapping.partition("; ")
        yield problem("ranges", message, remedy)
    elif seen.moving:
        waiting = plural(seen.moving, "range")
        yield warning(
            "ranges", f"{waiting} not held by the shard that shall have them: on their way, or about to be",
            f"if it lasts: kubectl get ringassignment {ring} -o yaml says since when, and who has not let go",
        )  # fmt: skip
    else:
        yield good("ranges", f"{plural(len(seen.named.shards), 'shard')} named for the whole space")


def _check_filtering(filters: bool | None) -> Finding:
    if filters is None:
        return unknown("filtering", "whether the API server filters by hash range could not be asked",
                       "grant yourself list on leases in all namespaces")  # fmt: skip
    if filters:
        return good("filtering", "the API server that answered filters what each shard lists and watches")
    return warning(
        "filtering", "the API server that answered does not filter: every shard receives every event, and drops what is"
        " not its own", f"Kubernetes 1.36 or newer, with --feature-gates={GATE}=true on every API server",
    )  # fmt: skip

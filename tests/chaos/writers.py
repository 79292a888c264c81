"""What must hold of who wrote what, by the audit logs of API servers, beside what shards and etcd say.

Pure, and as certain as the other rules: of a version that several requests may have made, each has to be against the
rule, and a request whose outcome nobody knows excuses one version.  A history without audit logs has no findings.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Final

from tests.chaos.history import (
    CHILDREN,
    LEASES,
    OWNERS,
    History,
    Reconcile,
    Stored,
    Version,
    Violation,
    Writer,
)


def unknown_writers(history: History) -> Iterator[Violation]:
    """Each version was asked for, by somebody who is known."""
    if history.requests is None:
        return
    unsure = Counter((each.resource, each.name) for each in history.requests if each.open)
    deletes = Counter((each.resource, each.name) for each in history.requests if _deletes(each.verb) and each.accepted)
    for stored in history.stored:
        version = stored.version
        if stored.requests:
            if all(each.kind == "unknown" for each in stored.writers):
                yield Violation("unknown writer", f"{_told(version)} was written by {_names(stored)}")
            continue
        named, unnamed = (version.resource, version.name), (version.resource, "")
        excuses = [(deletes, named), (deletes, unnamed)] if version.deleted else []
        for counter, key in [*excuses, (unsure, named), (unsure, unnamed)]:
            if counter[key]:
                counter[key] -= 1
                break
        else:
            yield Violation("unknown writer", f"{_told(version)} was stored, and no API server was asked for it")


def unrecorded_writes(history: History) -> Iterator[Violation]:
    """What shards wrote but for labels, and their own leases, they have written down before."""
    shards = {each.key: each.shard for each in history.reconciles}
    recorded = {each.id: shards.get(each.reconcile, "") for each in history.writes}
    for stored in history.stored:
        if not _all(stored, "shard"):
            continue
        if not any(_knows_of(writer, stored, recorded) for writer in stored.writers):
            yield Violation(
                "unrecorded write", f"{_told(stored.version)} was written by {_names(stored)}, who has not noted it"
            )
    for request in history.requests or ():
        theirs = request.resource in (OWNERS, CHILDREN) and request.writer.kind != "user"
        if theirs and request.accepted and _deletes(request.verb):
            yield Violation("unrecorded write", f"{request.resource} {request.name} was deleted by {request.writer}")


def more_than_labels(history: History) -> Iterator[Violation]:
    """Of objects and children, sharders change nothing but the ring's labels; nothing at all where it has none."""
    for stored in history.stored:
        if stored.version.resource in (OWNERS, CHILDREN) and _all(stored, "sharder") and not stored.only_labels:
            yield Violation("more than labels", f"{_told(stored.version)} was changed by a sharder")


def late_unrecorded_writes(history: History) -> Iterator[Violation]:
    """What a shard has not noted, or was its acknowledgement, is not late either.

    Late is what is accepted once the object has been given to another shard, and a reconcile of that has begun.
    """
    noted = {each.id for each in history.writes}
    owners: dict[str, list[Version]] = defaultdict(list)
    for version in history.given:
        if version.resource == OWNERS:
            owners[version.uid].append(version)
    begun: dict[str, list[Reconcile]] = defaultdict(list)
    for reconcile in history.reconciles:
        begun[reconcile.uid].append(reconcile)
    for stored in history.stored:
        version = stored.version
        if (
            version.resource not in (OWNERS, CHILDREN)
            or not _all(stored, "shard")
            or any(not each.name for each in stored.writers)
        ):
            continue
        if version.resource == CHILDREN and version.write in noted and not stored.only_labels:
            continue  # rules.late_writes knows when its reconcile began
        uid = version.uid if version.resource == OWNERS else version.owner or ""
        others = [_began_before(history, each.name, version, owners[uid], begun[uid]) for each in stored.writers]
        if all(others):
            yield Violation(
                "late write",
                f"{_told(version)} was written by {_names(stored)}, not noted; {others[0]} had begun",
            )


def _began_before(
    history: History, shard: str, version: Version, owners: list[Version], begun: list[Reconcile]
) -> str | None:
    """Who had got the object after this shard, and begun with it, before the version was accepted."""
    accepted = history.clock.after(version.at)
    given: list[Version] = []
    mine, before = float("-inf"), None
    for each in owners:
        if each.at > version.at:
            break
        if each.shard == shard and before != shard:
            given, mine = [], history.clock.before(each.at)
        elif each.shard and not each.deleted and each.shard not in (shard, before):
            given.append(each)
        before = each.shard
    for each in given:
        since = max(mine, history.clock.after(each.at))
        for other in begun:
            if other.shard == each.shard and since < other.begin < accepted:
                return other.process
    return None


def _knows_of(writer: Writer, stored: Stored, recorded: dict[str, str]) -> bool:
    version, before = stored.version, stored.before
    if version.resource == LEASES:
        return writer.name in ("", version.name)
    if stored.only_labels:
        return True
    if version.resource != CHILDREN or (before is not None and before.write == version.write):
        return False
    return version.write in recorded and writer.name in ("", recorded[version.write])


def _all(stored: Stored, kind: str) -> bool:
    return bool(stored.requests) and all(each.kind == kind for each in stored.writers)


def _deletes(verb: str) -> bool:
    return verb in ("delete", "deletecollection")


def _names(stored: Stored) -> str:
    return " or ".join(sorted(map(str, stored.writers)))


def _told(version: Version) -> str:
    return f"{version.resource} {version.name} at {version.at}"


RULES: Final[tuple[Callable[[History], Iterator[Violation]], ...]] = (
    unknown_writers,
    unrecorded_writes,
    more_than_labels,
    late_unrecorded_writes,
)

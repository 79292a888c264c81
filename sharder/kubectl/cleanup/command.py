"""`kubectl sharding cleanup`: removes the labels that a deleted ring has left on objects.

Only with --yes, and not while the ring exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sharder.core.problems import some
from sharder.kubectl.catalog import read_catalog
from sharder.kubectl.cleanup.sweep import Sweep, Swept
from sharder.kubectl.documents import cleanup_document, render_document
from sharder.kubectl.outcomes import ExitCode, Unread, exit_code
from sharder.kubectl.session import Session
from sharder.kubectl.shards import read_shard_status
from sharder.kubectl.status.command import make_reader
from sharder.kubectl.text import Painter, Tone, one_line, plural
from shardsdk.errors import ConfigurationError, Forbidden, NotFound
from shardsdk.kube.api import Api
from shardsdk.kube.selectors import equals
from shardsdk.protocol.labels import LEASE_RING_LABEL, RingLabels, parse_ring_name
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.objects import CLUSTERRINGS, Resource

_NEEDED = frozenset({"list", "patch"})


@dataclass(frozen=True, slots=True)
class Wish:
    """What was asked for; `resources` empty: everything that can be listed and patched."""

    ring: str
    resources: Sequence[str] = ()
    apply: bool = False
    force: bool = False


async def clean_up(session: Session, wish: Wish) -> ExitCode:
    """Look for labels of a ring that is gone, and (`apply`) take them off.

    Raises: ConfigurationError while the ring is there, RingIsBack when it comes back.
    """
    labels = parse_ring_name(wish.ring)
    if not wish.force:
        await require_gone(session.api, wish.ring)
    resources, unread = await choose_resources(session.api, wish.resources, session.namespace)
    reader = make_reader(session)
    seen, gaps = await reader.leases(wish.ring), reader.gaps.found
    running = _running(seen.leases or (), session.clock.now())

    async def still_gone() -> bool:
        return wish.force or await is_gone(session.api, wish.ring)

    sweep = Sweep(session.api, labels, wish.apply, session.namespace, still_gone)
    painter, swept = session.painter, list[Swept]()
    if session.for_people:
        for line in _warnings(wish, running, gaps, painter):
            session.say(line)
    async for each in sweep.run(resources):
        swept.append(each)
        if session.for_people:
            session.say(*render_swept(each, painter))
    refused = any(each.refused for each in swept)
    code = exit_code(
        wrong=refused or any(each.left for each in swept),
        unknown=bool(unread) or any(each.unread for each in swept),
    )
    if session.for_people:
        session.say(*summarize(wish, swept, unread, painter, session.namespace))
        if wish.apply and not wish.force and seen.leases:
            where = "-A" if seen.whole else f"-n {session.namespace}"
            session.say(_of_leases(labels, len(seen.leases), where) + session.reaches)
    else:
        session.out.write(
            render_document(
                cleanup_document(wish.ring, wish.apply, swept, unread, running if seen.whole else None),
                session.output,
                ascii_only=session.ascii_only,
            )
        )
    return code


async def is_gone(api: Api, ring: str) -> bool:
    """Whether there is no such ring.  Raises: Forbidden."""
    try:
        await api.get(CLUSTERRINGS, ring)
    except NotFound:
        return True
    return False


async def require_gone(api: Api, ring: str) -> None:
    """Raises: ConfigurationError when the ring is there, Forbidden when one may not see whether it is."""
    try:
        if await is_gone(api, ring):
            return
    except Forbidden as error:
        text = f"whether ring {ring} is gone cannot be seen ({error}); --force goes on without knowing"
        raise Forbidden(text, status=error.status, reason=error.reason) from error
    raise ConfigurationError(
        f"ring {ring} is there: its labels say which shard works on what, and an object that loses them may be given to"
        " a second shard while the first one is still at it. Delete the ring first"
        f" (kubectl delete clusterring {ring}), or stop its shards and use --force; the sharder labels objects again"
        " within a second while the ring is there"
    )


async def choose_resources(
    api: Api, wanted: Sequence[str], namespace: str | None = None
) -> tuple[list[Resource], tuple[str, ...]]:
    """The resources to go through, and groups that did not answer; `namespace`: only what is in it.

    Raises: ConfigurationError for one that is unknown, or in no namespace.
    """
    catalog = await read_catalog(api)
    if not wanted:
        chosen = [each.resource for each in catalog.served if each.verbs >= _NEEDED]
        chosen = [each for each in chosen if namespace is None or each.namespaced]
        return sorted(chosen, key=lambda each: (each.group, each.plural)), catalog.unread
    found = []
    for text in wanted:
        called = catalog.named(text)
        if not called:
            raise ConfigurationError(f"the API server serves no resource called {text!r}; see `kubectl api-resources`")
        within = [each.resource for each in called if namespace is None or each.resource.namespaced]
        if not within:
            raise ConfigurationError(f"{text} are in no namespace, so none is in {namespace}; leave out -n")
        found.append(within[0])
    return found, ()


def _running(leases: Sequence[Lease], now: datetime) -> list[str]:
    """Shards that still hold theirs."""
    shard_statuses = [read_shard_status(lease, now) for lease in leases]
    late = [
        each for each in shard_statuses if each.renewed_seconds is None or each.renewed_seconds < each.duration_seconds
    ]
    return sorted(f"{each.namespace}/{each.name}" for each in late if each.available)


def _of_leases(labels: RingLabels, count: int, where: str) -> str:
    """Nobody deletes them once the ring is gone; `where`: kubectl's options for those that were read."""
    left = "The Lease of a shard of it is" if count == 1 else f"The Leases of {count} shards of it are"
    return (
        f"{left} there still; once its shards have stopped:"
        f" kubectl delete leases {where} -l {equals(LEASE_RING_LABEL, labels.ring)}"
    )


def _warnings(wish: Wish, running: list[str], gaps: Sequence[Unread], painter: Painter) -> list[str]:
    lines = []
    if wish.force:
        lines.append(painter.paint("! forced: it was not asked whether the ring is gone", Tone.WARN))
    if running:
        text = f"! shards of this ring still run ({some(running, 5)}); they stop working on what loses its labels"
        lines.append(painter.paint(text, Tone.WARN))
    for gap in gaps:
        sign = painter.paint("? whether shards of this ring still run was not read", Tone.WARN)
        lines.append(f"{sign}: {one_line(str(gap))}")
    return lines


def render_swept(swept: Swept, painter: Painter) -> list[str]:
    """The lines of one resource; none where nothing was found, and nothing failed."""
    name = str(swept.resource.group_resource)
    lines = []
    named = ", ".join(swept.examples) + (", …" if swept.found > len(swept.examples) else "")
    if swept.left:
        lines.append(f"  {painter.paint(name, Tone.NAME)}: {swept.left} labelled ({one_line(named)})")
    elif swept.found:
        lines.append(f"  {painter.paint(name, Tone.NAME)}: {swept.removed} of {swept.found} cleaned")
    for kind, count in swept.refused.items():
        lines.append(f"    {painter.paint(f'✗ {count} refused', Tone.BAD)}: {one_line(swept.messages[kind])}")
    if swept.failed:
        sign = painter.paint("? not read" + (" to the end" if swept.found else ""), Tone.WARN)
        lines.append(f"  {painter.paint(name, Tone.NAME)}: {sign}: {one_line(swept.unread)}")
    return lines


def summarize(
    wish: Wish, swept: Sequence[Swept], unread: Sequence[str], painter: Painter, namespace: str | None
) -> list[str]:
    """What it comes to, and what to do next; `namespace`: nothing beyond it was looked at."""
    lines, where = [], "" if namespace is None else f" in namespace {namespace}"
    closed = [str(each.resource.group_resource) for each in swept if each.unread and not each.failed] + list(unread)
    failed = [str(each.resource.group_resource) for each in swept if each.failed]
    if closed:
        sign = painter.paint("? not looked at", Tone.WARN)
        lines.append(f"{sign}: {one_line(some(closed, 8))}: you may not list them, or nobody answered")
    if failed:
        sign = painter.paint("? not looked at, or not to the end", Tone.WARN)
        lines.append(f"{sign}: {one_line(some(failed, 8))}: the API server failed over them; try again")
    left, removed = sum(each.left for each in swept), sum(each.removed for each in swept)
    refused = sum(sum(each.refused.values()) for each in swept)
    if left:
        again = "the same with --yes takes the labels off"
        lines.append(
            f"{plural(left, 'object')}{where} with labels of ring {wish.ring}. Dry run, nothing was changed: {again}."
        )
    elif refused:
        lines.append(f"{plural(removed, 'object')}{where} cleaned, {painter.paint(f'{refused} refused', Tone.BAD)}.")
    elif removed:
        lines.append(painter.paint(f"{plural(removed, 'object')}{where} cleaned.", Tone.GOOD))
    else:
        lines.append(
            f"No object{where} has labels of ring {wish.ring}" + (" where it was looked." if closed or failed else ".")
        )
    return lines

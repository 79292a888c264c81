"""`kubectl sharding explain`: one object, in every ring that lists its resource."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sharder.core.decisions import is_owner
from sharder.core.problems import some
from sharder.core.ringspec import AssignBy, ResolvedMain, ResolvedRing, RingSpec, Role, Subject, placed_resources
from sharder.kubectl.catalog import Catalog, read_catalog
from sharder.kubectl.cluster import Reader, Resolved, Ring, ages_of, name_problem
from sharder.kubectl.documents import explanations_document, render_document
from sharder.kubectl.explain.explanation import Explanation, Known, Owner, explain
from sharder.kubectl.explain.ranges import explain_range
from sharder.kubectl.explain.text import render_explanation, render_stray
from sharder.kubectl.explain.unplaced import Unplaced
from sharder.kubectl.leader import LEADERS_LEASE, Leading, read_leading
from sharder.kubectl.outcomes import ONE_RESOURCE, ExitCode, exit_code
from sharder.kubectl.session import Session
from sharder.kubectl.shards import read_membership, read_shard_status
from sharder.kubectl.status.command import find_rings, make_reader
from sharder.kubectl.status.overview import read_conditions
from sharder.kubectl.text import Tone, one_line
from shardsdk.errors import ConfigurationError, Forbidden, NotFound, ShardingError
from shardsdk.kube.api import Api
from shardsdk.kube.store import Key
from shardsdk.protocol.labels import LABEL_MAX_LENGTH, SHARD_LABEL_PREFIX, parse_ring_name
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.names import is_path_segment
from shardsdk.protocol.objects import LEASES, GroupResource, ObjectMeta, PartialObject, Resource

#: What the name part of a shard label begins with; eight digits of a hash and the ring's name follow.
_SUFFIX_START: Final = "clusterring-"
_DIGITS: Final = 8


async def show_explanation(session: Session, resource: str, name: str | None, lease: tuple[str, str]) -> ExitCode:
    """Explain an object; `name` None: `resource` is RESOURCE/NAME.

    Raises: ConfigurationError for what is not there, ShardingError when the rings or the object cannot be read.
    """
    if name is None:
        resource, slash, name = resource.partition("/")
        if not slash or not name:
            raise ConfigurationError("say which object: `explain RESOURCE NAME`, as in `explain secret my-secret`")
    if not is_path_segment(name):
        raise ConfigurationError(f"{name!r} cannot be the name of an object: `explain RESOURCE NAME`")
    reader = make_reader(session)
    rings = await find_rings(session, reader, None)
    if rings is None:
        raise ShardingError(str(reader.gaps.found[0]))
    found = pick_resource(await read_catalog(session.api), resource, rings)
    namespace = (session.namespace or session.default_namespace) if found.namespaced else None
    meta = await read_object(session.api, found, name, namespace)
    leading = await read_leader(session.api, reader, lease)
    made = [
        await _explain(session, reader, ring, found, meta, leading)
        if lists(ring, found)
        else await _explain_labels(session, reader, ring, found, meta, leading)
        for ring in rings
    ]
    explanations = [each for each in made if each is not None]
    strays = list(stray_labels(meta, rings))
    wrong = not explanations or bool(strays) or any(each.in_place is False for each in explanations)
    code = exit_code(wrong=wrong, unknown=any(each.in_place is None for each in explanations))
    if not session.for_people:
        document = explanations_document(found, meta, explanations, strays, reader.gaps.found)
        session.out.write(render_document(document, session.output, ascii_only=session.ascii_only))
        return code
    session.say(session.painter.paint(f"{found.kind} {Key(meta.namespace, meta.name)}", Tone.STRONG))
    if not explanations:
        unused = some(ring.name for ring in rings if ring.spec is None)
        more = f" (of rings that are invalid nobody can tell: {unused})" if unused else ""
        text = f"  no ring lists {found.group_resource}{more}; nothing is sharded without a ring"
        session.say(one_line(text))
    for explanation in explanations:
        session.say("", *render_explanation(explanation, session.painter))
    for label, ring_name in strays:
        session.say("", *render_stray(label, ring_name, session.painter))
    for gap in reader.gaps.found:
        session.say(f"{session.painter.paint('? not read', Tone.WARN)}: {one_line(str(gap))}")
    return code


def pick_resource(catalog: Catalog, text: str, rings: list[Ring]) -> Resource:
    """What `text` means, a resource of a ring above all others.  Raises: ConfigurationError."""
    called = catalog.named(text)
    if not called:
        raise ConfigurationError(
            f"the API server serves no resource called {text!r}; look at `kubectl api-resources`"
            + (f" (these groups did not answer: {', '.join(catalog.unread)})" if catalog.unread else "")
        )
    ringed = [each for each in called if any(lists(ring, each.resource) for ring in rings)]
    return (ringed or called)[0].resource


def lists(ring: Ring, resource: Resource) -> bool:
    """Whether a ring names the resource, as main or as controlled."""
    return ring.spec is not None and resource.group_resource in ring.spec.named


async def read_object(api: Api, resource: Resource, name: str, namespace: str | None) -> ObjectMeta:
    """Metadata of one object, with `get` or `list`.  Raises: ConfigurationError when it is not there, Forbidden."""
    try:
        found = await find_object(api, resource, name, namespace)
    except NotFound:
        found = None
    if found is None:
        where = f" in namespace {namespace}; -n looks into another one" if namespace else ""
        raise ConfigurationError(f"there is no {resource.kind} {name!r}{where}")
    return found.metadata


async def find_object(api: Api, resource: Resource, name: str, namespace: str | None) -> PartialObject | None:
    """The same; None: it is not there.  Raises: Forbidden when neither verb is granted."""
    try:
        got: PartialObject = await api.get(resource, name, namespace)
        return got
    except NotFound:
        return None
    except Forbidden as error:
        try:
            return await api.find(resource, name, namespace)
        except Forbidden:
            raise error from None


def stray_labels(meta: ObjectMeta, rings: list[Ring]) -> Iterator[tuple[str, str]]:
    """Shard labels of rings that are not there, each with the ring's name (cut, if it was long)."""
    known = {ring.spec.labels.shard for ring in rings if ring.spec is not None}
    invalid = {ring.name for ring in rings if ring.spec is None}
    for label in sorted(meta.labels or {}):
        suffix = label.removeprefix(SHARD_LABEL_PREFIX)
        if suffix == label or label in known or not suffix.startswith(_SUFFIX_START):
            continue
        name = suffix[len(_SUFFIX_START) + _DIGITS + 1 :]
        if name not in invalid:
            yield label, name + ("…" if len(suffix) == LABEL_MAX_LENGTH else "")


async def read_leader(api: Api, reader: Reader, lease: tuple[str, str]) -> Leading | None:
    """Whether a sharder leads, by its lease (namespace, name); None: that could not be read."""
    namespace, name = lease
    where = f"{namespace}/{name}"
    try:
        found = await api.get(LEASES, name, namespace, model=Lease)
    except NotFound:
        found = None
    except ONE_RESOURCE as error:
        reader.gaps.note(f"{LEADERS_LEASE} {where}", error)
        return None
    return read_leading(found, where, reader.clock.now())


async def _explain(
    session: Session,
    reader: Reader,
    ring: Ring,
    resource: Resource,
    meta: ObjectMeta,
    leading: Leading | None,
    removed: Subject | None = None,
) -> Explanation:
    """`removed`: what the resource was to the ring, which lists it no longer."""
    assert ring.spec is not None
    found = await reader.resolved(ring.spec, ring.covers)
    resolved = found.ring
    subject = removed or resolved.find(resource.group_resource)
    if subject is None:
        return _unplaced(ring.spec, found, resource.group_resource, meta)
    now = reader.clock.now()
    seen = await reader.leases(ring.name)
    shard_statuses = tuple(read_shard_status(lease, now) for lease in seen.leases or ())
    by_ranges = ring.spec.assign_by is AssignBy.RANGES
    # It is where its owner is, in whatever namespace, if that owner has none.
    stays = subject.owners_stay and not by_ranges
    placed = dict(placed_resources(ring.status))
    known = Known(
        ring=resolved,
        subject=subject,
        meta=meta,
        # By ranges a child is where its namespace is, whatever its owner's place.
        owner=None if by_ranges or removed else await _owner(session.api, reader, resolved, subject, meta),
        membership=read_membership(seen.leases or (), shard_statuses) if seen.whole else None,
        shard_statuses=shard_statuses,
        covered=removed is None and (stays or (await reader.covers(resolved))(meta.namespace)),
        conditions=read_conditions(ring.status, ages_of(ring.status, now)),
        up_to_date=ring.up_to_date,
        leading=leading,
        joining=tuple(name for each in subject.main.controlled if placed.get(name := each.group_resource) is False),
        removed=removed is not None,
        leases=tuple(seen.leases or ()),
    )
    return explain_range(known, await reader.ranges(ring.spec, seen)) if by_ranges else explain(known)


def _unplaced(spec: RingSpec, found: Resolved, resource: GroupResource, meta: ObjectMeta) -> Explanation:
    """What to say of a resource without a part: it, or its main resource, is not served, or that was not to be read."""
    main = next(main for main in spec.resources if resource in (main.resource, *main.controlled))
    names = list(dict.fromkeys((main.resource, resource)))
    role = Role.MAIN if resource == main.resource else Role.CONTROLLED
    unplaced = Unplaced(spec.name, spec.labels if spec.assign_by is AssignBy.LABELS else None, role, meta)
    if unread := [name for name in names if name in found.unread]:
        return unplaced.unread(unread)
    return unplaced.unserved([name for name in names if name in found.missing])


async def _explain_labels(
    session: Session, reader: Reader, ring: Ring, resource: Resource, meta: ObjectMeta, leading: Leading | None
) -> Explanation | None:
    """What to say of a ring that does not list the resource, or is invalid; None: the object has none of its labels."""
    if name_problem(ring.name) or (ring.spec is not None and ring.spec.assign_by is not AssignBy.LABELS):
        return None
    labels, placed = parse_ring_name(ring.name), dict(placed_resources(ring.status))
    if meta.label(labels.shard) is None and meta.label(labels.drain) is None:
        return None
    role = Role.CONTROLLED if placed.get(resource.group_resource) else Role.MAIN
    unplaced = Unplaced(ring.name, labels, role, meta)
    if ring.invalid is not None:
        return unplaced.invalid(ring.invalid.problems)
    if resource.group_resource not in placed:
        return unplaced.forgotten("the ring's status does not have the resource among placedResources")
    if unplaced.shard is None:
        return unplaced.forgotten("the sharder goes by the shard label, and there is only the drain label")
    removed = Subject(role, resource, ResolvedMain(resource))
    return await _explain(session, reader, ring, resource, meta, leading, removed)


async def _owner(api: Api, reader: Reader, ring: ResolvedRing, subject: Subject, meta: ObjectMeta) -> Owner | None:
    reference, main = meta.controller, subject.main.resource
    if subject.role is Role.MAIN or reference is None:
        return None
    try:
        found = await find_object(api, main, reference.name, meta.namespace if main.namespaced else None)
    except ShardingError as error:
        reader.gaps.note(f"its owner, {main.kind} {reference.name}", error)
        return Owner(main.kind, reference.name, None)
    if found is None or not is_owner(reference.uid, found.metadata):
        return Owner(main.kind, reference.name, False)
    labels = ring.spec.labels
    draining = found.metadata.label(labels.drain) is not None
    return Owner(main.kind, reference.name, True, found.metadata.label(labels.shard), draining)

"""A ClusterRing: parsed, then resolved against what the API server serves.

Does: read a ring leniently and name everything that is wrong with it at once.
Refuses: to apply half of a ring; one with problems is not used at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, NamedTuple

import msgspec

from sharder.core.keys import controlled_key, resource_key
from sharder.core.problems import Problem, quoted, render_problems
from sharder.core.selectors import NAMESPACE_NAME_LABEL, LabelSelector, all_namespaces_except, parse_selector
from shardsdk.errors import ConfigurationError, InvalidRingName
from shardsdk.protocol.labels import SYSTEM_NAMESPACE, RingLabels, parse_ring_name
from shardsdk.protocol.names import is_dns_label, is_dns_subdomain
from shardsdk.protocol.namespaces import unnamed
from shardsdk.protocol.objects import GroupResource, Resource, SlimMeta
from shardsdk.protocol.ranges import HashBy

#: Main resources of one ring. The CRD has the same bound.
MAX_RESOURCES: Final = 32
#: Controlled resources of one main resource. The CRD has the same bound.
MAX_CONTROLLED: Final = 16
#: What an API server serves under two names, and keeps once.
_SAME_OBJECTS: Final = {GroupResource("events.k8s.io", "events"): GroupResource("", "events")}


class InvalidRing(ConfigurationError):
    """A ring cannot be used as it is written; `problems` says all that is wrong with it."""

    def __init__(self, name: str, problems: tuple[Problem, ...]) -> None:
        super().__init__(f"ring {name!r} is not used: {render_problems(problems)}")
        self.problems = problems


class Role(StrEnum):
    """How a ring looks at a resource."""

    MAIN = "main"
    CONTROLLED = "controlled"


class AssignBy(StrEnum):
    """How a ring's objects are given to its shards, as a ClusterRing spells it."""

    LABELS = "Labels"
    RANGES = "Ranges"


@dataclass(frozen=True, slots=True)
class MainSpec:
    """A main resource with the resources that its objects control, as the ring names them."""

    resource: GroupResource
    controlled: tuple[GroupResource, ...] = ()


@dataclass(frozen=True, slots=True)
class RingSpec:
    """A ring as its user wrote it.

    `namespace_selector` None: the sharder's default. `watch_unassigned_controlled`
    False: no watch is held on unassigned controlled objects, resyncs find them.
    `hash_by`: what of an object says where it lies; only for a ring that is assigned by ranges.
    """

    name: str
    uid: str
    generation: int
    labels: RingLabels
    resources: tuple[MainSpec, ...] = ()
    namespace_selector: LabelSelector | None = None
    watch_unassigned_controlled: bool = True
    assign_by: AssignBy = AssignBy.LABELS
    hash_by: HashBy = HashBy.NAMESPACE

    @property
    def labelled(self) -> tuple[GroupResource, ...]:
        """The resources whose objects the sharder itself lists and labels: of a ring by ranges none."""
        return self.named if self.assign_by is AssignBy.LABELS else ()

    @property
    def named(self) -> tuple[GroupResource, ...]:
        """Every resource that it names, main and controlled, as often as it does."""
        return tuple(name for main in self.resources for name in (main.resource, *main.controlled))


class ResolvedMain(msgspec.Struct, frozen=True, cache_hash=True):
    """A served main resource with its served controlled resources."""

    resource: Resource
    controlled: tuple[Resource, ...] = ()


class Subject(msgspec.Struct, frozen=True, cache_hash=True):
    """A resource in the part that it plays in a ring; `main` is itself for a main resource."""

    role: Role
    resource: Resource
    main: ResolvedMain

    def key_of(self, meta: SlimMeta) -> str | None:
        """The ring key of an object of this resource; `None`: the ring leaves it alone."""
        if self.role is Role.MAIN:
            return resource_key(self.resource, meta.namespace, meta.name)
        return controlled_key(meta.controller, meta.namespace, self.main.resource)

    @property
    def owners_stay(self) -> bool:
        """Whether its objects are controlled by such as have no namespace, and never leave the ring with one."""
        return self.role is Role.CONTROLLED and not self.main.resource.namespaced


@dataclass(frozen=True, slots=True)
class ResolvedRing:
    """A ring whose resources are served, and the namespaces it covers when it does not say."""

    spec: RingSpec
    mains: tuple[ResolvedMain, ...]
    default_namespaces: LabelSelector = field(default_factory=lambda: default_namespaces(SYSTEM_NAMESPACE))

    @property
    def namespace_selector(self) -> LabelSelector:
        """The namespaces that the ring covers."""
        return self.default_namespaces if self.spec.namespace_selector is None else self.spec.namespace_selector

    @property
    def unnamed(self) -> str | None:
        """Why shards of a ring by ranges cannot tell the namespaces it covers, and what to do; `None`: they can."""
        return None if self.spec.assign_by is AssignBy.LABELS else unnamed(self.namespace_selector.render())

    def subjects(self) -> Iterator[Subject]:
        """Every resource of the ring, each main before those it controls."""
        for main in self.mains:
            yield Subject(Role.MAIN, main.resource, main)
            for controlled in main.controlled:
                yield Subject(Role.CONTROLLED, controlled, main)

    def find(self, resource: GroupResource) -> Subject | None:
        """The part of `resource` in this ring; `None`: it has none."""
        for subject in self.subjects():
            if subject.resource.group_resource == resource:
                return subject
        return None

    def in_scope(self, namespace: str, namespace_labels: Mapping[str, str] | None = None) -> bool:
        """Whether objects of `namespace` belong to the ring; cluster-scoped ones (empty `namespace`) always do.

        `namespace_labels` None: nothing is known but the name.
        """
        if not namespace:
            return True
        return self.namespace_selector.matches({**(namespace_labels or {}), NAMESPACE_NAME_LABEL: namespace})


def default_namespaces(system_namespace: str) -> LabelSelector:
    """What a ring without a namespaceSelector covers."""
    return all_namespaces_except("kube-system", system_namespace)


#: What has to be possible with the objects of a ring's resources.
_WORKABLE: Final = {AssignBy.LABELS: {"list", "watch", "patch"}, AssignBy.RANGES: {"list", "watch"}}


def workable(resource: Resource | None, assign_by: AssignBy = AssignBy.LABELS) -> Resource | None:
    """`resource`, if its objects can be assigned in this way; reviews, for example, are no objects to list."""
    if resource is None or (resource.verbs and not _WORKABLE[assign_by] <= resource.verbs):
        return None
    return resource


def resolve(
    spec: RingSpec, served: Mapping[GroupResource, Resource | None], namespaces: LabelSelector | None = None
) -> tuple[ResolvedRing, tuple[GroupResource, ...]]:
    """The ring with those resources that are `served` and workable, and the ones that are not.

    A main resource that is not served takes its controlled ones along: without
    it they have no key. `namespaces` is the default for rings that do not say.
    """
    mains: list[ResolvedMain] = []
    missing: list[GroupResource] = []
    for main in spec.resources:
        found = {name: workable(served.get(name), spec.assign_by) for name in (main.resource, *main.controlled)}
        missing += [name for name, resource in found.items() if resource is None]
        resource = found[main.resource]
        if resource is not None:
            controlled = tuple(known for name in main.controlled if (known := found[name]) is not None)
            mains.append(ResolvedMain(resource, controlled))
    default = default_namespaces(SYSTEM_NAMESPACE) if namespaces is None else namespaces
    return ResolvedRing(spec, tuple(mains), default), tuple(missing)


def selects_by_name(said: object) -> LabelSelector | None:
    """The LabelSelector `said`, where shards of a ring by ranges can tell the namespaces of it; `None`: they cannot."""
    selector, problems = parse_selector(said, "status.namespaceSelector")
    return None if problems or unnamed(selector.render()) is not None else selector


def as_shards_know(ring: ResolvedRing, said: object) -> ResolvedRing:
    """The ring over the namespaces that its shards go by: where they cannot tell them, as its status has `said`."""
    if ring.unnamed is None:
        return ring
    known = selects_by_name(said) or default_namespaces(SYSTEM_NAMESPACE)
    return replace(ring, spec=replace(ring.spec, namespace_selector=known))


def unsuited(ring: ResolvedRing) -> str | None:
    """Why a ring's objects cannot be shared as it asks for; `None`: they can."""
    if (why := ring.unnamed) is not None:
        own = ring.spec.namespace_selector is not None
        whose = "spec.namespaceSelector" if own else "the sharder's default, webhook.config.namespaceSelector,"
        return f"{whose} {why}"
    if ring.spec.assign_by is AssignBy.LABELS or ring.spec.hash_by is HashBy.UID:
        return None
    whole = sorted({str(each.resource.group_resource) for each in ring.subjects() if not each.resource.namespaced})
    if not whole:
        return None
    return (
        f"{', '.join(whole)} have no namespace, so by hashBy Namespace one shard gets all of them; list them in a ring"
        " with hashBy UID"
    )


def parse_ring(raw: Mapping[str, Any]) -> RingSpec:
    """Read a ClusterRing as the API server sent it.

    Raises: InvalidRing with every problem found.
    """
    problems: list[Problem] = []
    metadata, spec = _map(raw.get("metadata"), "metadata", problems), _map(raw.get("spec"), "spec", problems)
    name, labels = str(metadata.get("name") or ""), None
    try:
        labels = parse_ring_name(name)
    except InvalidRingName as error:
        message, _, remedy = str(error).partition("; ")
        problems.append(Problem("metadata.name", message, remedy or "use another name"))
    resources = _parse_resources(spec.get("resources"), problems)
    problems += _find_repetitions(resources)
    selector = None
    if spec.get("namespaceSelector") is not None:
        selector, wrong = parse_selector(spec["namespaceSelector"], "spec.namespaceSelector")
        problems += wrong
    watch = spec.get("watchUnassignedControlled", True)
    if not isinstance(watch, bool):
        problems.append(Problem("spec.watchUnassignedControlled", "is not a boolean", "write true or false"))
    assign_by, hash_by = _parse_assignment(spec, [main for _, main in resources], problems)
    if problems or labels is None:
        raise InvalidRing(name, tuple(problems))
    generation = metadata.get("generation")
    return RingSpec(
        name=name,
        uid=str(metadata.get("uid") or ""),
        generation=generation if isinstance(generation, int) else 0,
        labels=labels,
        resources=tuple(main for _, main in resources),
        namespace_selector=selector,
        watch_unassigned_controlled=watch,
        assign_by=assign_by,
        hash_by=hash_by,
    )


def _parse_assignment(
    spec: Mapping[str, Any], mains: list[MainSpec], problems: list[Problem]
) -> tuple[AssignBy, HashBy]:
    """`assignment` and `hashBy`, which belong together."""
    said, hashed = spec.get("assignment"), spec.get("hashBy")
    if said is None:
        said = AssignBy.LABELS
    if said not in list(AssignBy):
        problems.append(Problem("spec.assignment", f"{quoted(said)} is no way to assign", "write Labels or Ranges"))
        return AssignBy.LABELS, HashBy.NAMESPACE
    by_ranges = said == AssignBy.RANGES
    if hashed is not None and not by_ranges:
        problems.append(Problem("spec.hashBy", "belongs to assignment Ranges", "leave it out, or write both"))
    elif by_ranges and hashed not in list(HashBy):
        found = "is required with assignment Ranges" if hashed is None else f"{quoted(hashed)} cannot be hashed"
        problems.append(Problem("spec.hashBy", found, "write Namespace, or UID for cluster-scoped resources"))
    elif hashed == HashBy.UID and any(main.controlled for main in mains):
        problems.append(
            Problem(
                "spec.hashBy",
                "is UID, by which an object and its owner lie apart, and there are controlled resources",
                "write hashBy Namespace, or leave controlledResources out",
            )
        )
    return AssignBy(said), HashBy(hashed) if hashed in list(HashBy) else HashBy.NAMESPACE


def _parse_resources(raw: object, problems: list[Problem]) -> list[tuple[str, MainSpec]]:
    mains = []
    for path, entry in _entries(raw, "spec.resources", MAX_RESOURCES, problems):
        main = _parse_group_resource(entry, path, problems)
        listed = _entries(entry.get("controlledResources"), f"{path}.controlledResources", MAX_CONTROLLED, problems)
        controlled = [_parse_group_resource(item, where, problems) for where, item in listed]
        if main is not None:
            mains.append((path, MainSpec(main, tuple(known for known in controlled if known is not None))))
    return mains


def _parse_group_resource(entry: Mapping[str, Any], path: str, problems: list[Problem]) -> GroupResource | None:
    group, resource = entry.get("group", ""), entry.get("resource")
    before = len(problems)
    if group is None:
        group = ""
    if not isinstance(group, str) or (group and not is_dns_subdomain(group)):
        problems.append(
            Problem(
                f"{path}.group", f"{quoted(group)} is no API group", "use one like 'apps', or \"\" for the core group"
            )
        )
    if not isinstance(resource, str) or not is_dns_label(resource):
        problems.append(
            Problem(
                f"{path}.resource",
                f"{quoted(resource)} is no resource",
                "use its lower-case plural like 'deployments', without version, subresource or wildcard",
            )
        )
    return GroupResource(group, str(resource)) if len(problems) == before else None


def _find_repetitions(resources: list[tuple[str, MainSpec]]) -> list[Problem]:
    """A resource has one part in a ring, and one name: else one object would have two keys."""
    seen: dict[GroupResource, tuple[str, GroupResource]] = {}
    problems = []
    named = [(path, main.resource) for path, main in resources] + [
        (f"{path}.controlledResources", controlled) for path, main in resources for controlled in main.controlled
    ]
    for path, resource in named:
        stored = _SAME_OBJECTS.get(resource, resource)
        if stored not in seen:
            seen[stored] = path, resource
            continue
        where, listed = seen[stored]
        found, remedy = f"{resource} is already listed at {where}", "use a second ring for the other part"
        if listed != resource:
            found = f"{resource} are the same objects as {listed}, listed at {where}"
            remedy = "name it as the shards do that watch it"
        problems.append(Problem(path, found, f"list a resource once, either as main or as controlled; {remedy}"))
    return problems


def _map(raw: object, path: str, problems: list[Problem]) -> Mapping[str, Any]:
    if raw is None:
        return {}
    if isinstance(raw, Mapping):
        return raw
    problems.append(Problem(path, "is not an object", "write it as a map of fields"))
    return {}


def _entries(raw: object, path: str, most: int, problems: list[Problem]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The objects of a list with the path of each; malformed ones are told and left out."""
    if raw is None:
        return
    if not isinstance(raw, list):
        problems.append(Problem(path, "is not a list", "write a list of group and resource"))
        return
    if len(raw) > most:
        problems.append(Problem(path, f"has {len(raw)} entries", f"list at most {most}"))
    for index, entry in enumerate(raw[:most]):
        where = f"{path}[{index}]"
        if isinstance(entry, Mapping):
            yield where, entry
        else:
            problems.append(Problem(where, "is not an object", "write group and resource"))


class LetGo(NamedTuple):
    """A resource in the part that it has by now, of which no shard has any more what it had by another.

    `main`: what controls its objects; None: the ring lists it no longer.
    """

    resource: GroupResource
    main: GroupResource | None = None


def placed_resources(status: Mapping[str, Any]) -> Iterator[tuple[GroupResource, bool]]:
    """The resources that may carry a ring's labels, by its status; each with whether it was controlled."""
    listed = status.get("placedResources")
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, Mapping) and isinstance(each.get("resource"), str):
            yield GroupResource(str(each.get("group") or ""), each["resource"]), bool(each.get("controlled"))

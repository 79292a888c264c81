"""An API server in memory: objects, versions, conflicts, watches, finalizers; for virtual time.

`MemoryServer` is its state, and every change is one step of its log.
`shardsdk.testing.memoryapi` is a client's connection to it.

It has what the project asks of an API server, with the semantics that matter to
it: merge, JSON and apply patches conditional on resourceVersion, the status
subresource, selections entered and left, consistent initial events, writes that
are executed although their client died, owners of fields.  `admit` plays admission.
Of schemas it asks how lists merge and whether a map may be emptied, and nothing else;
there is no defaulting, there are no permissions and no garbage collection.
"""

from __future__ import annotations

import copy
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Final

from shardsdk.errors import AlreadyExists, BadRequest, Conflict, Gone, Invalid, NotFound
from shardsdk.kube.api import Body, Operation, PatchKind
from shardsdk.kube.selectors import Selector
from shardsdk.kube.store import Key
from shardsdk.protocol.objects import GroupResource, Resource
from shardsdk.testing.changes import Change
from shardsdk.testing.metadata import (
    check_metadata,
    check_new,
    check_place_in,
    check_preconditions,
    finalizers_of_deletion,
    naming_of,
    version_named,
    without_empties,
)
from shardsdk.testing.ownership import Writer, apply_patch, check_applied, check_unique, note_apply, note_write
from shardsdk.testing.patching import copy_tree, patched
from shardsdk.testing.requests import carry_out
from shardsdk.testing.selecting import check_fields, matcher
from shardsdk.testing.shapes import Shape, shape_of
from shardsdk.testing.strategies import (
    STATUS,
    Object,
    check_held,
    check_kind,
    check_part,
    check_version,
    content_of,
    has_generation,
    has_status,
    is_builtin,
    is_created_by_updates,
    kept_of,
    said_of,
    shown_in,
)
from shardsdk.testing.virtual import EPOCH

__all__ = ["EVERYTHING", "Admit", "Change", "MemoryServer", "Object"]

#: Plays admission: (verb, resource, old, new) -> new, or raises.
Admit = Callable[[str, Resource, Object | None, Object], Object]

EVERYTHING: Final = Selector()


@dataclass
class MemoryServer:
    """All objects, and the log of how they came to be."""

    admit: Admit = lambda verb, resource, old, new: new
    #: Plays admission of deletions: (resource, old), or raises.
    admit_deletion: Callable[[Resource, Object], None] = lambda resource, old: None
    #: As that of an API server, it is never 0: that would mean any.
    version: int = 1
    objects: dict[GroupResource, dict[Key, Object]] = field(default_factory=dict)
    log: list[Change] = field(default_factory=list)
    #: Watches that begin before this version are answered with 410.
    compacted: int = 0
    #: The wall clock by which this server says when something was created, or asked to go.
    now: Callable[[], datetime] = lambda: EPOCH
    #: The uid of what is created after a version.
    make_uid: Callable[[int], str] = "uid-{}".format
    #: Whether lists and watches are filtered by `shardSelector`, as since Kubernetes 1.36; others ignore it.
    filters_shards: bool = True
    #: Custom resources that have no status, and who says so.
    without_status: dict[GroupResource, str] = field(default_factory=dict)
    #: The schema of a custom resource, of the whole object; `None`: nobody knows, an apply may empty any map of it, and
    #: every list is one field.
    schema_of: Callable[[Resource], Mapping[str, Any] | None] = lambda resource: None

    #: Called after every change.
    listeners: list[Callable[[Change], None]] = field(default_factory=list)
    #: Whether clients are served a type; requests for any other are answered with 404.
    serves: Callable[[Resource], bool] = lambda resource: True

    def execute(self, operation: Operation[Any]) -> Object | None:
        """Carry out one operation; the object as it is then, `None` after a deletion.  Raises: as an API server."""
        return carry_out(self, operation)

    # -- reading ----------------------------------------------------------

    def has_status(self, resource: Resource) -> bool:
        """Whether objects have a status, which its own subresource writes."""
        return resource.group_resource not in self.without_status and has_status(resource)

    def get(self, resource: Resource, name: str, namespace: str | None) -> Object:
        """One object.  Raises: NotFound."""
        found = self.find(resource, name, namespace)
        if found is None:
            raise NotFound(f"{resource.plural} {namespace}/{name} not found", status=404, reason="NotFound")
        return shown_in(resource, found)

    def find(self, resource: Resource, name: str, namespace: str | None = None) -> Object | None:
        """The object itself, not to be changed; `None`: there is none."""
        return self._of(resource).get(Key(namespace or "", name))

    def select(self, resource: Resource, namespace: str | None = None, selector: Selector = EVERYTHING) -> list[Object]:
        """Copies of everything selected, by key.  Raises: BadRequest."""
        check_fields(resource, selector.fields)
        found = sorted(self._of(resource).items())
        selects = matcher(namespace, selector.labels, selector.fields, selector.shards)  # refuses what makes no sense
        return [shown_in(resource, thing) for _, thing in found if selects(thing)]

    def changes(self, resource: Resource, since: int) -> list[Change]:
        """The steps of the log after version `since`.  Raises: Gone."""
        if since < self.compacted:
            raise Gone(f"version {since} is too old", status=410, reason="Expired")
        begin = bisect_right(self.log, since, key=lambda change: change.version)
        return [change for change in self.log[begin:] if change.resource == resource.group_resource]

    # -- writing -----------------------------------------------------------

    def create(
        self, resource: Resource, body: Mapping[str, Any], namespace: str | None = None, manager: str = ""
    ) -> Object:
        """An object without a status: that is written later.  `manager`: whose its fields are; empty: nobody's.

        Raises: AlreadyExists, Invalid, ServerError.
        """
        check_new(body)
        return self._add(resource, body, namespace, partial(kept_of, resource, None), manager)

    def arrange(self, resource: Resource, body: Mapping[str, Any], namespace: str | None = None) -> Object:
        """An object with its status and owners, in one step: what a test begins with.  Raises: as `create`."""
        return self._add(
            resource, body, namespace, lambda made: made if self.has_status(resource) else said_of(made), None
        )

    def rearrange(self, resource: Resource, name: str, namespace: str | None, body: Mapping[str, Any]) -> Object:
        """A merge patch of an object and of its status, each where it is written.  Raises: as `patch`."""
        made = self.patch(resource, name, namespace, {part: value for part, value in body.items() if part != STATUS})
        if STATUS not in body:
            return made
        return self.patch(resource, name, namespace, {STATUS: body[STATUS]}, subresource=STATUS)

    def patch(
        self,
        resource: Resource,
        name: str,
        namespace: str | None,
        body: Body,
        kind: PatchKind = PatchKind.MERGE,
        subresource: str = "",
        manager: str = "",
    ) -> Object:
        """A patch of the status changes nothing else, any other no status.  `manager`: whose the changed fields are.

        Raises: NotFound, Conflict, Invalid.
        """
        check_part(resource, subresource, self.without_status)
        wanted = patched(self.get(resource, name, namespace), body, kind)
        return self._replace(resource, name, namespace, wanted, subresource, manager)

    def apply(
        self,
        resource: Resource,
        name: str,
        namespace: str | None,
        body: Mapping[str, Any],
        manager: str,
        *,
        force: bool = False,
        subresource: str = "",
    ) -> Object:
        """Have an object, made if need be, with these fields of `manager`'s; what it applied before is gone.

        What is applied of a status is one field set, what is applied beside it another.

        Raises: Conflict, Invalid; NotFound for the status of an object that is not there.
        """
        check_part(resource, subresource, self.without_status)
        check_place_in(body, name, namespace)
        current = self.find(resource, name, namespace)
        typed, said = is_builtin(resource), said_of(dict(body), subresource)
        writer, shape = self._writer(resource, manager, subresource), self._shape(resource)
        if subresource:
            said["metadata"] = naming_of(said.get("metadata") or {})
        check_applied(said, shape)
        if current is None and not subresource:
            said["metadata"] = {"name": name, **(said.get("metadata") or {})}
            applied = note_apply(said, writer, shape, typed=typed)
            return self._make(resource, applied, namespace, partial(kept_of, resource, None), None)
        there, schema = self.get(resource, name, namespace), self.schema_of(resource)
        wanted = apply_patch(there, said, writer, shape, force=force, typed=typed, schema=schema)
        return self._replace(resource, name, namespace, wanted, subresource, None)

    def update(
        self,
        resource: Resource,
        body: Mapping[str, Any],
        namespace: str | None = None,
        subresource: str = "",
        manager: str = "",
    ) -> Object:
        """`manager`: whose the changed fields are.  Raises: NotFound, Conflict, Invalid."""
        check_part(resource, subresource, self.without_status)
        where = body["metadata"].get("namespace") or namespace
        metadata = {**body["metadata"], **({"namespace": where} if where else {})}
        name, namespace = metadata["name"], where if resource.namespaced else None
        if not subresource and is_created_by_updates(resource) and self.find(resource, name, namespace) is None:
            others = {part: value for part, value in metadata.items() if part != "resourceVersion"}
            return self._make(
                resource, {**body, "metadata": others}, namespace, partial(kept_of, resource, None), manager
            )
        current = self.get(resource, name, namespace)
        wanted = copy.deepcopy({**body, "metadata": metadata})
        for part in ("apiVersion", "kind"):
            wanted[part] = wanted.get(part) or current[part]
        check_preconditions(resource, current["metadata"], None, metadata.get("uid"))
        return self._replace(resource, name, namespace, wanted, subresource, manager)

    def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        resource_version: str | None = None,
        uid: str | None = None,
        propagation: str | None = None,
    ) -> None:
        """Nobody collects garbage: what is deleted in the foreground keeps the finalizer that says so.

        Raises: NotFound, Conflict, Invalid.
        """
        finalizers_of_deletion(propagation, ())
        current = self.get(resource, name, namespace)
        metadata = current["metadata"]
        check_preconditions(resource, metadata, resource_version, uid)
        self.admit_deletion(resource, current)
        key = Key(namespace or "", name)
        stored = self._of(resource)[key]
        metadata["finalizers"] = finalizers_of_deletion(propagation, metadata.get("finalizers") or ())
        if not metadata["finalizers"]:
            self._remove(resource, key)
            return
        if "deletionTimestamp" not in metadata:
            metadata["deletionTimestamp"] = self._timestamp()
            if has_generation(resource):
                metadata["generation"] += 1
        if current != stored:
            self._commit(resource, key, stored, current)

    # -- inside -------------------------------------------------------------

    def _shape(self, resource: Resource) -> Shape:
        return shape_of(resource, None if is_builtin(resource) else self.schema_of(resource))

    def _check_unique(self, resource: Resource, made: Object) -> None:
        if not is_builtin(resource) and self.schema_of(resource) is not None:
            check_unique(made, self._shape(resource))

    def _writer(self, resource: Resource, manager: str, subresource: str = "") -> Writer:
        return Writer(manager, subresource, resource.api_version, self._timestamp())

    def _timestamp(self) -> str:
        return f"{self.now():%Y-%m-%dT%H:%M:%SZ}"

    def _of(self, resource: Resource) -> dict[Key, Object]:
        return self.objects.setdefault(resource.group_resource, {})

    def _make(
        self,
        resource: Resource,
        body: Mapping[str, Any],
        namespace: str | None,
        kept: Callable[[Object], Object],
        manager: str | None,
    ) -> Object:
        """An object that is not there, by a write that may find it there."""
        if uid := (body["metadata"] or {}).get("uid"):
            message = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            raise Conflict(message, status=409, reason="Conflict")
        return self._add(resource, body, namespace, kept, manager)

    def _add(
        self,
        resource: Resource,
        body: Mapping[str, Any],
        namespace: str | None,
        kept: Callable[[Object], Object],
        manager: str | None = "",
    ) -> Object:
        """`manager` None: it was applied, and says whose its fields are."""
        check_place_in(body, None, namespace)
        made = copy.deepcopy(dict(body))
        made.setdefault("apiVersion", resource.api_version)
        made.setdefault("kind", resource.kind)
        metadata = made.setdefault("metadata", {})
        if not resource.namespaced:
            metadata.pop("namespace", None)
        elif namespace:
            metadata["namespace"] = namespace
        made = kept(made)
        made["metadata"] = without_empties(made["metadata"])
        if manager is not None:
            made = note_write(None, made, self._writer(resource, manager), self._shape(resource))
        made = kept(self.admit("CREATE", resource, None, made))
        metadata = made["metadata"] = without_empties(made["metadata"])
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = f"{metadata['generateName']}{self.version:05d}"
        if not metadata.get("name"):
            raise Invalid(f"{resource.plural}: name or generateName is required", status=422, reason="Invalid")
        check_metadata(resource, None, metadata)
        self._check_unique(resource, made)
        key = Key(metadata.get("namespace") or "", metadata["name"])
        if key in self._of(resource):
            raise AlreadyExists(f"{resource.plural} {key} already exists", status=409, reason="AlreadyExists")
        metadata.update(uid=self.make_uid(self.version), creationTimestamp=self._timestamp())
        for name in ("generation", "deletionTimestamp"):
            metadata.pop(name, None)
        if has_generation(resource):
            metadata["generation"] = 1
        return self._commit(resource, key, None, made)

    def _replace(
        self,
        resource: Resource,
        name: str,
        namespace: str | None,
        wanted: Object,
        subresource: str,
        manager: str | None,
    ) -> Object:
        """`manager` None: it was applied, and says whose its fields are."""
        key = Key(namespace or "", name)
        current = self._of(resource)[key]
        version = current["metadata"]["resourceVersion"]
        check_kind(resource, current, wanted)
        if not isinstance(wanted.get("metadata"), dict) or not wanted["metadata"].get("name"):
            raise BadRequest(f"{resource.plural} {key}: it would have no name", status=400, reason="BadRequest")
        check_place_in(wanted, name, (namespace or "") if resource.namespaced else None)
        check_version(resource, wanted)
        wanted = kept_of(resource, current, wanted, subresource)
        if version_named(wanted["metadata"]) not in (0, int(version)):
            raise Conflict(f"{resource.plural} {key} has changed", status=409, reason="Conflict")
        if (wanted["metadata"].get("uid") or current["metadata"]["uid"]) != current["metadata"]["uid"]:
            raise Invalid(f"{resource.plural} {key}: metadata.uid: field is immutable", status=422, reason="Invalid")
        wanted["metadata"]["resourceVersion"] = version
        if manager is not None:
            wanted["metadata"] = without_empties(wanted["metadata"])
            writer = self._writer(resource, manager, subresource)
            wanted = note_write(current, wanted, writer, self._shape(resource))
        wanted = self.admit("UPDATE", resource, copy_tree(current), wanted)
        wanted = {**kept_of(resource, current, wanted, subresource), "apiVersion": current["apiVersion"]}
        metadata = wanted["metadata"] = without_empties({**wanted["metadata"], **naming_of(current["metadata"])})
        check_metadata(resource, current["metadata"], metadata)
        check_held(resource, current, wanted)
        self._check_unique(resource, wanted)
        if wanted == current:
            return shown_in(resource, current)
        if has_generation(resource) and content_of(wanted) != content_of(current):
            wanted["metadata"]["generation"] = current["metadata"]["generation"] + 1
        if "deletionTimestamp" in wanted["metadata"] and not wanted["metadata"].get("finalizers"):
            self._remove(resource, key)
            return wanted
        return self._commit(resource, key, current, wanted)

    def _commit(self, resource: Resource, key: Key, old: Object | None, new: Object) -> Object:
        self.version += 1
        new["metadata"]["resourceVersion"] = str(self.version)
        self._of(resource)[key] = new
        self._publish(Change(self.version, resource.group_resource, old, new))
        return shown_in(resource, new)

    def _remove(self, resource: Resource, key: Key) -> None:
        self.version += 1
        self._publish(Change(self.version, resource.group_resource, self._of(resource).pop(key), None))

    def _publish(self, change: Change) -> None:
        self.log.append(change)
        for listener in list(self.listeners):
            listener(change)

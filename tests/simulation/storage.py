"""The state of the simulated API server: objects, versions, and everything that ever happened to them.

Linearizable by construction: each method is one step of the event loop.
Objects are plain data that nobody changes once stored.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from shardsdk.errors import AlreadyExists, Conflict, NotFound
from shardsdk.kube.api import Unfit
from shardsdk.kube.decoding import unfit_of
from shardsdk.kube.selectors import Selector
from shardsdk.kube.store import Key
from shardsdk.protocol.objects import Resource
from shardsdk.testing.patching import copy_tree
from shardsdk.testing.selecting import matcher

Doc = dict[str, Any]

_MISFIT: Final = object()
_NO_LABELS: Final[Mapping[str, str]] = {}

#: What a list or a watch asks for: a namespace (`None`: all), and what to select there.
Selection = tuple[str | None, str, str, str]


def selection_of(namespace: str | None, selector: Selector) -> Selection:
    """As a key that is quick to look up."""
    return namespace or None, selector.labels, selector.fields, selector.shards


class Version:
    """One version of an object; what is asked of it more than once is worked out once and shared."""

    __slots__ = ("_decoded", "_labels", "_selected", "controller_uid", "doc", "key", "number", "uid")

    def __init__(self, doc: Doc) -> None:
        meta = doc["metadata"]
        self.doc = doc
        self.key = Key(meta.get("namespace", ""), meta["name"])
        self.number = int(meta["resourceVersion"])
        self.uid: str = meta["uid"]
        #: The uid of the controller; `None`: nobody controls it.
        self.controller_uid: str | None = None
        for reference in meta.get("ownerReferences") or ():
            if reference.get("controller"):
                self.controller_uid = reference["uid"]
                break
        self._labels: Mapping[str, str] = meta.get("labels") or _NO_LABELS
        self._decoded: dict[Any, Any] = {}
        self._selected: dict[Selection, bool] = {}

    def label(self, key: str) -> str | None:
        return self._labels.get(key)

    def matches(self, selection: Selection) -> bool:
        """Whether a list or watch shows it."""
        found = self._selected.get(selection)
        if found is None:
            found = self._selected[selection] = matcher(*selection)(self.doc)
        return found

    def decode(self, model: Any) -> Any:
        """The object as `model`; `None`: it does not fit, and a client would leave it out."""
        if model is dict:
            return copy_tree(self.doc)
        found = self._decoded.get(model)
        if found is None:
            try:
                found = msgspec.convert(self.doc, model)
            except msgspec.ValidationError:
                found = _MISFIT
            self._decoded[model] = found
        return None if found is _MISFIT else found

    def unfit(self, *, gone: bool = False) -> Unfit:
        """What a client knows of it where it does not fit the model."""
        return unfit_of(self.doc, ValueError("it does not fit"), gone=gone)


@dataclass(slots=True)
class Author:
    """Who writes: a process of the simulation, what it is doing (a reconcile, or nothing known), and when it sent that.

    `sent` is `None` for what no network lies between.
    """

    name: str
    doing: Any = None
    sent: float | None = None


class Commit(NamedTuple):
    """One accepted write; `after` is `None` for a deletion, and `before` carries the deletion's version then."""

    number: int
    resource: Resource
    key: Key
    before: Version | None
    after: Version | None
    author: Author

    @property
    def latest(self) -> Version:
        version = self.after or self.before
        assert version is not None
        return version


_NOTHING: Final[dict[Key, Version]] = {}


class Storage:
    """All objects; `on_commit` listeners are told of each write in the step that makes it."""

    def __init__(self, timestamp: Callable[[], str], make_uid: Callable[[int], str] = "uid-{:05d}".format) -> None:
        self.number = 1
        #: Watches that want to go on from before this version are told that it is gone.
        self.compacted = 0
        #: How often it was set back; what an earlier one was asked is not executed any more.
        self.era = 0
        self.on_commit: list[Callable[[Commit], None]] = []
        #: Told of the last commit of each object that is there, once the store was set back.
        self.on_set_back: list[Callable[[list[Commit]], None]] = []
        self._timestamp = timestamp
        self._make_uid = make_uid
        #: By the plural of their resource.
        self._objects: dict[str, dict[Key, Version]] = {}
        self._history: dict[str, list[Commit]] = {}
        self._made = 0

    # -- reading -----------------------------------------------------------

    def get(self, resource: Resource, key: Key) -> Version | None:
        return self._objects.get(resource.plural, _NOTHING).get(key)

    def objects(self, resource: Resource) -> Iterator[Version]:
        return iter(self._objects.get(resource.plural, _NOTHING).values())

    def demand(self, resource: Resource, key: Key) -> Version:
        """Raises: NotFound."""
        found = self.get(resource, key)
        if found is None:
            raise NotFound(f"{resource.plural} {key} not found", status=404, reason="NotFound")
        return found

    def since(self, resource: Resource, number: int) -> list[Commit]:
        """What happened to `resource` after version `number`."""
        history = self._history.get(resource.plural, [])
        return history[bisect.bisect_right(history, number, key=lambda commit: commit.number) :]

    def state_of(self, resource: Resource) -> tuple[int, int]:
        """Another one after each write of `resource`: until then what was worked out of its objects counts."""
        return self.era, len(self._history.get(resource.plural, ()))

    # -- backups -----------------------------------------------------------

    def set_back(self, number: int, *, raised_by: int = 0) -> list[Commit]:
        """Be what it was at version `number`, as after a restore of etcd; the last commit of each object that is there.

        Nobody is told.  Versions are given out a second time, unless they go on `raised_by` so many above, and
        whoever wants to go on from before is told that it is gone (etcdutl's --bump-revision and --mark-compacted).
        """
        latest: dict[tuple[str, Key], Commit] = {}
        for plural, history in self._history.items():
            del history[bisect.bisect_right(history, number, key=lambda commit: commit.number) :]
            for commit in history:
                latest[plural, commit.key] = commit
        there = {each: commit for each, commit in latest.items() if commit.after is not None}
        self._objects = {}
        for (plural, key), commit in there.items():
            self._objects.setdefault(plural, {})[key] = commit.latest
        self.number = number + raised_by
        self.compacted = self.number if raised_by else min(self.compacted, number)
        self.era += 1
        commits = sorted(there.values(), key=lambda commit: commit.number)
        for tell in self.on_set_back:
            tell(commits)
        return commits

    # -- writing -----------------------------------------------------------

    def name_for(self, resource: Resource, doc: Doc) -> Doc:
        """A copy of `doc` with what the API server fills in before admission sees it (the name it does not)."""
        return {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            **doc,
            "metadata": dict(doc.get("metadata") or {}),
        }

    def create(self, resource: Resource, doc: Doc, author: Author) -> Version:
        """Raises: AlreadyExists."""
        meta = dict(doc["metadata"])
        made = {**doc, "metadata": meta}
        self._made += 1
        if not meta.get("name"):
            meta["name"] = f"{meta['generateName']}{self._made:05x}"
        key = Key(meta.get("namespace", ""), meta["name"])
        if self.get(resource, key) is not None:
            raise AlreadyExists(f"{resource.plural} {key} exists", status=409, reason="AlreadyExists")
        meta["uid"] = self._make_uid(self._made)
        meta["generation"] = 1
        meta["creationTimestamp"] = self._timestamp()
        return self._commit(resource, key, None, made, author)

    def replace(self, resource: Resource, before: Version, doc: Doc, author: Author) -> Version:
        """Store `doc` instead of `before`; one that says the same is no write.

        Raises: NotFound, Conflict when `before` is no longer what is stored.
        """
        current = self.demand(resource, before.key)
        if current is not before:
            raise Conflict(f"{resource.plural} {before.key} has changed", status=409, reason="Conflict")
        meta = doc["metadata"]
        for fixed in ("uid", "name", "namespace", "creationTimestamp", "generation", "resourceVersion"):
            if fixed in before.doc["metadata"]:
                meta[fixed] = before.doc["metadata"][fixed]
        if not meta.get("labels"):
            meta.pop("labels", None)
        if doc == before.doc:
            return before
        if meta.get("deletionTimestamp") and not meta.get("finalizers"):
            return self._remove(resource, before, author)
        if doc.get("spec") != before.doc.get("spec"):
            meta["generation"] += 1
        return self._commit(resource, before.key, before, doc, author)

    def delete(self, resource: Resource, key: Key, author: Author, preconditions: Mapping[str, str | None]) -> None:
        """Raises: NotFound, Conflict."""
        current = self.demand(resource, key)
        meta = current.doc["metadata"]
        if any(value and meta.get(name) != value for name, value in preconditions.items()):
            raise Conflict(f"{resource.plural} {key} is another one", status=409, reason="Conflict")
        if meta.get("finalizers"):
            marked = {"deletionTimestamp": self._timestamp(), **meta}
            self.replace(resource, current, {**current.doc, "metadata": marked}, author)
        else:
            self._remove(resource, current, author)

    def _remove(self, resource: Resource, current: Version, author: Author) -> Version:
        self.number += 1
        gone = Version({**current.doc, "metadata": {**current.doc["metadata"], "resourceVersion": str(self.number)}})
        del self._objects[resource.plural][current.key]
        self._tell(Commit(self.number, resource, current.key, gone, None, author))
        return gone

    def _commit(self, resource: Resource, key: Key, before: Version | None, doc: Doc, author: Author) -> Version:
        self.number += 1
        doc["metadata"]["resourceVersion"] = str(self.number)
        made = Version(doc)
        self._objects.setdefault(resource.plural, {})[key] = made
        self._tell(Commit(self.number, resource, key, before, made, author))
        return made

    def _tell(self, commit: Commit) -> None:
        self._history.setdefault(commit.resource.plural, []).append(commit)
        for listener in self.on_commit:
            listener(commit)

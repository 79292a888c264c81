"""What the API server serves, and what people call it.

Does: read discovery as a whole (aggregated where it is offered), and find
resources by plural, singular, short name or kind, as kubectl does.  Refuses: to
guess versions; of each group the one that the API server prefers is taken.

Source: k8s.io/api/apidiscovery/v2; k8s.io/apimachinery meta/v1, APIResourceList.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from shardsdk.errors import NotFound, ServerError, ShardingError
from shardsdk.kube.api import Api
from shardsdk.protocol.objects import GroupResource, Resource

_AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Served:
    """A resource with its other names and the verbs that it offers."""

    resource: Resource
    singular: str = ""
    short_names: tuple[str, ...] = ()
    verbs: frozenset[str] = frozenset()

    def is_called(self, name: str) -> bool:
        """Whether people mean it by `name`."""
        return name.lower() in (self.resource.plural, self.singular, self.resource.kind.lower(), *self.short_names)


class _Kind(msgspec.Struct, frozen=True):
    kind: str = ""


class _Meta(msgspec.Struct, frozen=True):
    name: str = ""


class _Entry(msgspec.Struct, frozen=True, rename="camel"):
    resource: str = ""
    response_kind: _Kind | None = None
    scope: str = ""
    singular_resource: str = ""
    short_names: list[str] | None = None
    verbs: list[str] | None = None


class _Version(msgspec.Struct, frozen=True):
    version: str = ""
    resources: list[_Entry] | None = None


class _Group(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()
    versions: list[_Version] | None = None


class _Groups(msgspec.Struct, frozen=True):
    """An aggregated answer, or (no `items`) one of the older kind."""

    kind: str = ""
    items: list[_Group] | None = None


class _OldVersion(msgspec.Struct, frozen=True):
    version: str = ""


class _OldGroup(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    versions: list[_OldVersion] | None = None
    preferred_version: _OldVersion = _OldVersion()


class _OldGroups(msgspec.Struct, frozen=True):
    groups: list[_OldGroup] | None = None


class _OldEntry(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    kind: str = ""
    namespaced: bool = False
    singular_name: str = ""
    short_names: list[str] | None = None
    verbs: list[str] | None = None


class _OldEntries(msgspec.Struct, frozen=True):
    resources: list[_OldEntry] | None = None


@dataclass(frozen=True, slots=True)
class Catalog:
    """Everything that is served; `unread`: groups whose server did not answer."""

    served: tuple[Served, ...]
    unread: tuple[str, ...] = ()

    def named(self, text: str) -> list[Served]:
        """The resources that `text` can mean: `secrets`, `deploy`, `deployments.apps`, `deployments.v1.apps`."""
        name, _, where = text.partition(".")
        return [
            each
            for each in self.served
            if each.is_called(name)
            and where in ("", each.resource.group, f"{each.resource.version}.{each.resource.group}".rstrip("."))
        ]

    def find(self, name: GroupResource) -> Served | None:
        """A resource by group and plural."""
        return next((each for each in self.served if each.resource.group_resource == name), None)


async def read_catalog(api: Api) -> Catalog:
    """Ask for everything that is served.  Raises: ApiError, ConnectionFailed."""
    core, rest = await _ask(api, "/api", _Groups), await _ask(api, "/apis", _Groups)
    if core.kind == rest.kind == "APIGroupDiscoveryList":
        listed = [*_of_groups(core.items or ()), *_of_groups(rest.items or ())]
        return Catalog(_preferred(listed))
    return await _read_one_by_one(api)


async def _read_one_by_one(api: Api) -> Catalog:
    """For API servers that do not offer aggregated discovery."""
    groups = (await _ask(api, "/apis", _OldGroups)).groups or []
    places = [("", "v1", "/api/v1")]
    for group in groups:
        ordered = dict.fromkeys(each.version for each in (group.preferred_version, *(group.versions or ())))
        places += [(group.name, version, f"/apis/{group.name}/{version}") for version in ordered if version]
    listed, unread = list[Served](), list[str]()
    for name, version, path in places:
        try:
            entries = (await _ask(api, path, _OldEntries)).resources or ()
        except NotFound:
            continue
        except ShardingError:
            # One aggregated API server that is down must not hide all others.
            unread.append(f"{name}/{version}")
            continue
        listed += [_of_old_entry(name, version, entry) for entry in entries if "/" not in entry.name]
    return Catalog(_preferred(listed), tuple(unread))


async def _ask(api: Api, path: str, model: type[_T]) -> _T:
    body = await api.raw("GET", path, headers={"Accept": _AGGREGATED})
    try:
        return msgspec.json.decode(body, type=model)
    except (msgspec.DecodeError, ValueError) as error:
        raise ServerError(f"GET {path}: the answer cannot be read: {error}", status=200) from error


def _of_groups(groups: Sequence[_Group]) -> Iterator[Served]:
    for group in groups:
        for version in group.versions or ():
            for entry in version.resources or ():
                kind = entry.response_kind.kind if entry.response_kind else ""
                namespaced = entry.scope == "Namespaced"
                yield Served(
                    Resource(group.metadata.name, version.version, entry.resource, kind, namespaced),
                    entry.singular_resource,
                    tuple(entry.short_names or ()),
                    frozenset(entry.verbs or ()),
                )


def _of_old_entry(group: str, version: str, entry: _OldEntry) -> Served:
    return Served(
        Resource(group, version, entry.name, entry.kind, entry.namespaced),
        entry.singular_name,
        tuple(entry.short_names or ()),
        frozenset(entry.verbs or ()),
    )


def _preferred(listed: Sequence[Served]) -> tuple[Served, ...]:
    """Each resource once, in the first version that has it."""
    first: dict[GroupResource, Served] = {}
    for each in listed:
        first.setdefault(each.resource.group_resource, each)
    return tuple(first.values())

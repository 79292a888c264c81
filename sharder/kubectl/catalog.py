"""What the API server serves, and what people call it.

Discovery is read as a whole (aggregated, as Kubernetes 1.30 and newer offer it).
Resources are found by plural, singular, short name or kind, as kubectl does, each
in the version that the API server prefers.

Source: k8s.io/api/apidiscovery/v2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from shardsdk.errors import ConfigurationError, ServerError
from shardsdk.kube.api import Api
from shardsdk.protocol.objects import GroupResource, Resource

_AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
#: `freshness` of a version whose server does not answer: what is listed of it is old, or nothing at all.
_STALE: Final = "Stale"


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
    freshness: str = ""
    resources: list[_Entry] | None = None


class _Group(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()
    versions: list[_Version] | None = None


class _Groups(msgspec.Struct, frozen=True):
    """An aggregated answer; one of another kind comes from an older server."""

    kind: str = ""
    items: list[_Group] | None = None


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


async def read_catalog(api: Api) -> Catalog:
    """Ask for everything that is served.  Raises: ApiError, ConnectionFailed; ConfigurationError for an old server."""
    groups = [group for path in ("/api", "/apis") for group in await _ask(api, path)]
    unread = [
        f"{group.metadata.name}/{version.version}"
        for group in groups
        for version in group.versions or ()
        if version.freshness == _STALE
    ]
    return Catalog(_preferred(_of_groups(groups)), tuple(unread))


async def _ask(api: Api, path: str) -> list[_Group]:
    body = await api.raw("GET", path, headers={"Accept": _AGGREGATED})
    try:
        answer = msgspec.json.decode(body, type=_Groups)
    except (msgspec.DecodeError, ValueError) as error:
        raise ServerError(f"GET {path}: the answer cannot be read: {error}", status=200) from error
    if answer.kind != "APIGroupDiscoveryList":
        raise ConfigurationError("the API server does not offer aggregated discovery; use Kubernetes 1.30 or newer")
    return answer.items or []


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


def _preferred(listed: Iterable[Served]) -> tuple[Served, ...]:
    """Each resource once, in the first version that has it."""
    first: dict[GroupResource, Served] = {}
    for each in listed:
        first.setdefault(each.resource.group_resource, each)
    return tuple(first.values())

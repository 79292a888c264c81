"""Whether an API server serves a resource under the group, version and plural that a program says."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

import msgspec

from shardsdk.errors import NotFound, ShardingError
from shardsdk.kube.api import Api
from shardsdk.protocol.objects import Resource

#: Plurals that are named where nothing is near to what was asked for.
MAX_NAMED: Final = 8


class _Named(msgspec.Struct, frozen=True):
    name: str = ""


class _Resources(msgspec.Struct, frozen=True):
    resources: list[_Named] | None = None


class _Version(msgspec.Struct, frozen=True):
    version: str = ""


class _Group(msgspec.Struct, frozen=True):
    versions: list[_Version] | None = None


async def find_unserved(api: Api, resources: Iterable[Resource]) -> list[str]:
    """What of `resources` is not served, each in a sentence with the remedy; where nobody can tell, nothing."""
    found = []
    for resource in resources:
        try:
            words = await _explain(api, resource)
        except (ShardingError, msgspec.DecodeError):
            continue
        if words is not None:
            found.append(words)
    return found


async def _explain(api: Api, resource: Resource) -> str | None:
    group, version, plural = resource.group, resource.version, resource.plural
    root = f"/apis/{group}" if group else "/api"
    try:
        listed = await _resources(api, f"{root}/{version}")
    except NotFound:
        versions = await _versions(api, root) if group else []
        if not versions:
            return (
                f"the API server does not know the group {group!r} of {resource.group_resource}: install its"
                " CustomResourceDefinition, or correct the group"
            )
        return f"{resource.group_resource} is said to be of version {version!r}, but {group} has {', '.join(versions)}"
    if plural in listed:
        return None
    near = difflib.get_close_matches(plural, listed, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there is {', '.join(listed[:MAX_NAMED]) or 'nothing'}"
    return f"{resource.api_version} has no resource {plural!r}; {hint}; or install its CustomResourceDefinition"


async def _resources(api: Api, path: str) -> list[str]:
    found = msgspec.json.decode(await api.raw("GET", path), type=_Resources)
    return sorted(each.name for each in found.resources or () if "/" not in each.name)


async def _versions(api: Api, path: str) -> list[str]:
    try:
        found = msgspec.json.decode(await api.raw("GET", path), type=_Group)
    except NotFound:
        return []
    return [each.version for each in found.versions or ()]

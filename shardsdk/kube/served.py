"""Whether an API server serves a resource under the group, version and plural that a program says; and if not, why.

another version     the resource is there, in other versions of its group
another plural      the kind is there, and goes by another plural
a plural like it    something of the version is spelt nearly so
nothing             its definition is not installed
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from copy import copy
from typing import Final

from shardsdk.errors import NotServed, ShardingError
from shardsdk.kube.answers import UNSERVED
from shardsdk.kube.api import Api
from shardsdk.kube.cancelled import interrupted_at_most
from shardsdk.kube.discovery import Served, served_by
from shardsdk.protocol.objects import Resource

#: Plurals that are named where nothing is near to what was asked for.
MAX_NAMED: Final = 8
#: How alike a plural must be to be taken for the one that was meant.
_LIKENESS: Final = 0.7


async def find_unserved(api: Api, resources: Iterable[Resource]) -> list[str]:
    """What of `resources` is not served, each in a sentence with the remedy; where nobody can tell, nothing."""
    found, served = [], served_by(api)
    for resource in resources:
        try:
            words = await explain_unserved(served, resource)
        except ShardingError:
            continue
        if words is not None:
            found.append(words)
    return found


async def with_reason(api: Api, resource: Resource, error: ShardingError) -> ShardingError:
    """`error`, of a request for `resource`; where that is not served and it can be told why, with the reason."""
    if not isinstance(error, NotServed):
        return error
    try:
        with interrupted_at_most(str(resource.group_resource)):
            words = await explain_unserved(served_by(api), resource)
    except ShardingError:
        return error
    told = copy(error)
    if words is not None:
        told.args = (f"{str(error).removesuffix(UNSERVED)} — {words}; where it was served before, serve it again",)
    return told


async def explain_unserved(served: Served, resource: Resource, install: str = "") -> str | None:
    """Why `resource` is not served, in a sentence with the remedy; `None`: it is.

    `install` is the command that installs its definition, when that comes with the program.

    Raises: ApiError, ConnectionFailed when the API server cannot tell.
    """
    listed = await served.resources(resource.group, resource.version)
    if listed is not None and resource.plural in listed:
        return None
    name, kind = str(resource.group_resource), resource.kind
    there = {version: await served.resources(*version) or {} for version in await _others(served, resource)}
    if versions := [version for (_, version), each in there.items() if resource.plural in each]:
        return (
            f"{name} is not served in version {resource.version}; there is {' and '.join(versions)}: write one of these"
            f" where {kind} is declared" + (f", or bring the definition up to date: {install}" if install else "")
        )
    if (same := _same_kind([listed or {}, *there.values()], kind)) is not None:
        return (
            f"the API server does not know {name}; it has the kind {kind} as {same.plural} in {same.api_version}: write"
            f" plural {same.plural!r}"
            + (f" and version {same.version!r}" if same.version != resource.version else "")
            + f" where {kind} is declared"
            + (", or delete that definition, which deletes its objects, and install yours" if install else "")
        )
    return f"the API server does not know {name}; " + _remedy(resource, list(listed or ()), install)


async def _others(served: Served, resource: Resource) -> list[tuple[str, str]]:
    versions = await served.versions(resource.group)
    return [(resource.group, version) for version in versions if version != resource.version]


def _same_kind(listings: Iterable[dict[str, Resource]], kind: str) -> Resource | None:
    return next((each for listed in listings for each in listed.values() if kind and each.kind == kind), None)


def _remedy(resource: Resource, listed: list[str], install: str) -> str:
    if install:
        return f"install its CustomResourceDefinition: {install}"
    if near := difflib.get_close_matches(resource.plural, listed, 1, _LIKENESS):
        return f"it has {near[0]}: is the plural of {resource.kind} right?"
    remedy = (
        "install what brings it (a CustomResourceDefinition, as a rule),"
        f" or correct group and plural of {resource.kind}"
    )
    if listed and resource.group:
        remedy += f" ({resource.api_version} has {', '.join(sorted(listed)[:MAX_NAMED])})"
    return remedy

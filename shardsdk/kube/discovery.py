"""Which resources the API server serves, and in which version.

A group's preferred version is asked first, then its others; answers are
remembered for seconds.  That something is missing is forgotten sooner: whoever
asks is waiting for it to appear.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import msgspec

from shardsdk.errors import NotFound, ServerError
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock
from shardsdk.protocol.objects import Resource

#: How long a found resource is remembered, and a missing one: many rings may list the same, and who looks again has
#: a reason to.
FOUND_SECONDS: Final = 2.0
MISSING_SECONDS: Final = 1.0
#: Resources remembered at most; beyond that the oldest is forgotten.
REMEMBERED_MAX: Final = 4_096

_T = TypeVar("_T")

Fetch = Callable[[str], Awaitable[bytes]]


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    version: str = ""


class _Group(msgspec.Struct, frozen=True, rename="camel"):
    preferred_version: _Version = _Version()
    versions: list[_Version] | None = None


class _Listed(msgspec.Struct, frozen=True):
    name: str
    kind: str = ""
    namespaced: bool = False
    verbs: frozenset[str] | None = None


class _Listing(msgspec.Struct, frozen=True):
    resources: list[_Listed] | None = None


class Served:
    """What an API server serves; `fetch` gets a path.  Each path is fetched once: make another one to look again.

    Its methods raise ApiError, ConnectionFailed when the API server cannot tell.
    """

    __slots__ = ("_fetch", "_resources", "_versions")

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._versions: dict[str, list[str]] = {}
        self._resources: dict[tuple[str, str], dict[str, Resource] | None] = {}

    async def versions(self, group: str) -> list[str]:
        """The group's versions, the preferred one first; the core group has one, one that is not known none."""
        if not group:
            return ["v1"]
        if group not in self._versions:
            found = await self._get(f"/apis/{group}", _Group) or _Group()
            ordered = [found.preferred_version, *(found.versions or ())]
            self._versions[group] = list(dict.fromkeys(entry.version for entry in ordered if entry.version))
        return self._versions[group]

    async def resources(self, group: str, version: str) -> dict[str, Resource] | None:
        """The resources of a version by their plurals; `None`: it is not served."""
        if (group, version) not in self._resources:
            found = await self._get(f"/apis/{group}/{version}" if group else f"/api/{version}", _Listing)
            self._resources[group, version] = (
                None
                if found is None
                else {
                    each.name: Resource(
                        group, version, each.name, each.kind, each.namespaced, each.verbs or frozenset()
                    )
                    for each in found.resources or ()
                    if "/" not in each.name
                }
            )
        return self._resources[group, version]

    async def _get(self, path: str, model: type[_T]) -> _T | None:
        try:
            return _decode(path, await self._fetch(path), model)
        except NotFound:
            return None


def served_by(api: Api) -> Served:
    """What the API server of `api` serves."""
    return Served(lambda path: api.raw("GET", path))


class Discovery:
    """Looks resources up by group and plural; `fetch` gets a path."""

    __slots__ = ("_clock", "_fetch", "_known")

    def __init__(self, fetch: Fetch, clock: Clock) -> None:
        self._fetch = fetch
        self._clock = clock
        self._known: dict[tuple[str, str], tuple[float, Resource | None]] = {}

    async def find(self, group: str, plural: str) -> Resource | None:
        """The resource in the preferred version that serves it; `None`: not served now.

        Raises: ApiError, ConnectionFailed when the API server cannot tell.
        """
        until, known = self._known.get((group, plural), (float("-inf"), None))
        if self._clock.monotonic() < until:
            return known
        found = await self._look(group, plural)
        while len(self._known) >= REMEMBERED_MAX:
            del self._known[next(iter(self._known))]
        lifetime = MISSING_SECONDS if found is None else FOUND_SECONDS
        self._known[group, plural] = (self._clock.monotonic() + lifetime, found)
        return found

    async def _look(self, group: str, plural: str) -> Resource | None:
        served = Served(self._fetch)
        for version in await served.versions(group):
            resources = await served.resources(group, version)
            if resources is not None and plural in resources:
                return resources[plural]
        return None


def _decode(path: str, body: bytes, model: type[_T]) -> _T:
    """Raises: ServerError, because an aggregated API server may answer anything."""
    try:
        return msgspec.json.decode(body, type=model)
    except (msgspec.DecodeError, ValueError) as error:
        raise ServerError(f"GET {path}: the answer cannot be read: {error}", status=200) from error

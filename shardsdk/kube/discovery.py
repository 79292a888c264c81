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
from shardsdk.kube.clock import Clock
from shardsdk.protocol.objects import Resource

#: How long a found resource is remembered, and a missing one.
FOUND_SECONDS: Final = 30.0
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


class _Served(msgspec.Struct, frozen=True):
    name: str
    kind: str = ""
    namespaced: bool = False


class _ServedList(msgspec.Struct, frozen=True):
    resources: list[_Served] | None = None


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
        for version in await self._versions(group):
            path = f"/apis/{group}/{version}" if group else f"/api/{version}"
            try:
                served = _decode(path, await self._fetch(path), _ServedList)
            except NotFound:
                continue
            for entry in served.resources or ():
                if entry.name == plural:
                    return Resource(group, version, plural, entry.kind, entry.namespaced)
        return None

    async def _versions(self, group: str) -> list[str]:
        """The group's versions, the preferred one first; the core group has one."""
        if not group:
            return ["v1"]
        try:
            found = _decode(f"/apis/{group}", await self._fetch(f"/apis/{group}"), _Group)
        except NotFound:
            return []
        ordered = [found.preferred_version, *(found.versions or ())]
        return list(dict.fromkeys(entry.version for entry in ordered if entry.version))


def _decode(path: str, body: bytes, model: type[_T]) -> _T:
    """Raises: ServerError, because an aggregated API server may answer anything."""
    try:
        return msgspec.json.decode(body, type=model)
    except (msgspec.DecodeError, ValueError) as error:
        raise ServerError(f"GET {path}: the answer cannot be read: {error}", status=200) from error

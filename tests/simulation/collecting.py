"""Garbage collection: what is controlled by an object that is gone goes too, a moment later."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from contextvars import Context
from random import Random

from shardsdk.errors import ShardingError
from shardsdk.protocol.objects import Resource
from tests.simulation.server import Service, SimServer
from tests.simulation.storage import Author, Commit, Version

COLLECTOR = Author("garbage-collector")
#: From an owner's end to its children's.
DELAY_SECONDS = (0.05, 2.0)


class Collector:
    """Collects objects of `children` whose controller is no object of `owners`."""

    def __init__(self, server: SimServer, owners: Resource, children: Sequence[Resource], rng: Random) -> None:
        self._server = server
        self._owners = owners
        self._children = tuple(children)
        self._rng = rng
        server.storage.on_commit.append(self._on_commit)

    def _on_commit(self, commit: Commit) -> None:
        if commit.resource == self._owners and commit.after is None:
            for resource in self._children:
                for child in self._server.storage.objects(resource):
                    if owner_uid(child) == commit.latest.uid:
                        self._collect_later(resource, child)
        elif commit.resource in self._children and commit.before is None and not self._owner_lives(commit.latest):
            self._collect_later(commit.resource, commit.latest)

    def look_again(self) -> None:
        """The store was set back: what is to be collected of what it holds now."""
        for resource in self._children:
            for child in self._server.storage.objects(resource):
                if not self._owner_lives(child):
                    self._collect_later(resource, child)

    def _owner_lives(self, child: Version) -> bool:
        uid = owner_uid(child)
        return uid is None or any(owner.uid == uid for owner in self._server.storage.objects(self._owners))

    def _collect_later(self, resource: Resource, child: Version) -> None:
        delay = self._rng.uniform(*DELAY_SECONDS)
        era = self._server.storage.era
        asyncio.get_running_loop().call_later(delay, self._collect, resource, child, era, context=Context())

    def _collect(self, resource: Resource, child: Version, era: int) -> None:
        if self._server.storage.era != era:
            return
        if self._server.service is not Service.UP:
            self._collect_later(resource, child)
            return
        with suppress(ShardingError):
            self._server.storage.delete(resource, child.key, COLLECTOR, {"uid": child.uid})


def owner_uid(child: Version) -> str | None:
    """The uid of the controller; `None`: nobody controls it."""
    return child.controller_uid

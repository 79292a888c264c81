"""Takes the labels of a ring that is gone off its objects.

They are found by selector, page by page, and each is patched conditionally on
the version that was seen.  Once the ring is there again, the sweep ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from sharder.core import patches
from sharder.kubectl.outcomes import ONE_RESOURCE, REFUSED
from shardsdk.errors import Conflict, NotFound, ShardingError, StreamInterrupted
from shardsdk.kube.api import Api
from shardsdk.kube.selectors import Selector, absent, exists, join
from shardsdk.kube.store import Key
from shardsdk.protocol.labels import RingLabels
from shardsdk.protocol.objects import ObjectMeta, PartialObject, Resource

#: Patches on their way at the same time; a bystander's load, not a resync's.
PATCHES: Final = 16
#: Times that an object which changes meanwhile is read and tried again.
TRIES: Final = 5
#: Times that a list whose snapshot ran out is begun again.
LISTS: Final = 3
#: Objects that are named for each resource.
MAX_EXAMPLES: Final = 3


class RingIsBack(ShardingError):
    """The ring has been created again; its labels mean something."""


@dataclass(slots=True)
class Swept:
    """What became of one resource's objects.

    `left`: found in a dry run.  `gone`: deleted, or without labels, before they
    were patched.  `refused`: error -> how often, and the first of each in full.
    `unread`: why they could not be listed to the end (empty: they were); `failed`:
    the API server failed over it, while it may be listed.
    """

    resource: Resource
    left: int = 0
    removed: int = 0
    gone: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    messages: dict[str, str] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)
    unread: str = ""
    failed: bool = False

    @property
    def found(self) -> int:
        """Objects that carried a label."""
        return self.left + self.removed + self.gone + sum(self.refused.values())

    def name(self, meta: ObjectMeta) -> None:
        """Keep some names."""
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append(str(Key(meta.namespace, meta.name)))

    def refuse(self, error: ShardingError) -> None:
        """Count an error by its kind."""
        kind = type(error).__name__
        self.refused[kind] = self.refused.get(kind, 0) + 1
        self.messages.setdefault(kind, " ".join(str(error).split()))

    def leave(self, error: ShardingError) -> None:
        """Say why the rest is not looked at."""
        self.unread, self.failed = " ".join(str(error).split()), not isinstance(error, REFUSED)


@dataclass(frozen=True, slots=True)
class Sweep:
    """One cleanup; `apply` False: only look.

    `namespace`: only what is in it, so of namespaced resources (None: everything).
    `still_gone` says whether the ring is still not there; asked before each page of writes.
    """

    api: Api
    labels: RingLabels
    apply: bool
    namespace: str | None
    still_gone: Callable[[], Awaitable[bool]]

    async def run(self, resources: Iterable[Resource]) -> AsyncIterator[Swept]:
        """Go through `resources`, one after the other.  Raises: RingIsBack."""
        for resource in resources:
            yield await self.sweep(resource)

    async def sweep(self, resource: Resource) -> Swept:
        """Go through one resource; what is refused, or fails, is counted.  Raises: RingIsBack, ConnectionFailed."""
        swept = Swept(resource)
        shard, drain = self.labels.shard, self.labels.drain
        try:
            for labels in (exists(shard), join(absent(shard), exists(drain))):
                await self._sweep_selected(swept, Selector(labels=labels))
        except ONE_RESOURCE as error:
            # Also when it cannot be seen whether the ring is still gone: then nothing of the page was written.
            swept.leave(error)
        return swept

    async def _sweep_selected(self, swept: Swept, selector: Selector) -> None:
        before = swept.left, dict(swept.refused)
        for attempt in range(1, LISTS + 1):
            # What was begun anew shows again whatever was not removed.
            swept.left, swept.refused = before[0], dict(before[1])
            try:
                pages = self.api.pages(swept.resource, self.namespace, selector=selector)
                async for page in pages:
                    await self._sweep_page(swept, page)
            except StreamInterrupted:
                if attempt == LISTS:
                    raise
                continue
            return

    async def _sweep_page(self, swept: Swept, page: list[PartialObject]) -> None:
        for each in page:
            swept.name(each.metadata)
        if not self.apply:
            swept.left += len(page)
            return
        if not await self.still_gone():
            raise RingIsBack(
                f"ring {self.labels.ring} has been created again; its labels say once more who owns what, so the rest"
                " of them stays"
            )
        gate = asyncio.Semaphore(PATCHES)

        async def clean(meta: ObjectMeta) -> None:
            async with gate:
                await self._clean(swept, meta)

        async with asyncio.TaskGroup() as tasks:
            for each in page:
                tasks.create_task(clean(each.metadata))

    async def _clean(self, swept: Swept, meta: ObjectMeta) -> None:
        """Patch one object, and again while others write to it."""
        namespace, found = meta.namespace or None, meta
        try:
            for attempt in range(1, TRIES + 1):
                try:
                    patch = patches.release(self.labels, found.resource_version)
                    await self.api.patch(swept.resource, meta.name, namespace, patch)
                    swept.removed += 1
                    return
                except Conflict:
                    if attempt == TRIES:
                        raise
                present = await self.api.find(swept.resource, meta.name, namespace)
                if present is None or not self._labelled(present.metadata):
                    swept.gone += 1
                    return
                found = present.metadata
        except NotFound:
            swept.gone += 1
        except ShardingError as error:
            swept.refuse(error)

    def _labelled(self, meta: ObjectMeta) -> bool:
        return meta.label(self.labels.shard) is not None or meta.label(self.labels.drain) is not None

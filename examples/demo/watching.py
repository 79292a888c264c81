"""What the demo sees: owners of all objects over time, from watches of its own.

Refuses: to ask the sharder or the shards; it looks at what they have written.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from examples.demo.owners import OBJECTS, ByLabels, ByRanges, Data, Owners
from shardsdk.kube.api import Api
from shardsdk.kube.clock import SystemClock
from shardsdk.kube.reflector import Delta, EventKind, Reflector
from shardsdk.kube.store import Key
from shardsdk.protocol.labels import parse_ring_name
from shardsdk.protocol.objects import Resource

SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")


@dataclass(slots=True)
class Handover:
    """One object between two owners: how long it was without a living one."""

    name: str
    before: str | None
    after: str
    orphaned_seconds: float


@dataclass(slots=True)
class Owned:
    """Who had an object last, and since when (monotonic) it has had no living owner; `None`: it has one."""

    by: str | None
    orphaned_at: float | None


@dataclass(slots=True)
class Watching:
    """Owners of the Secrets of some namespaces and of the ConfigMaps made for them.

    Shards have their Leases in `namespace`, and unless `namespaces` says otherwise the objects are there, too;
    `by_ranges`: the ring assigns ranges of hashes.
    """

    api: Api
    ring: str
    namespace: str
    namespaces: Sequence[str] = ()
    by_ranges: bool = False
    clock: SystemClock = field(default_factory=SystemClock)
    #: Shards that live; who is not in here owns nothing, whatever is written.
    living: set[str] = field(default_factory=set)
    handovers: list[Handover] = field(default_factory=list)
    moved_configmaps: int = 0
    #: What was written: changes of objects that were there, and what the owners' own things count.
    writes: Counter[str] = field(default_factory=Counter)
    #: uids of the ConfigMaps that were ever there for a Secret, by the Secret's uid: a shard that does not know
    #: another's work makes a second one, or one anew.
    made: dict[str, set[str]] = field(default_factory=dict)
    _owned: dict[tuple[Resource, Key], Owned] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    owners: Owners = field(init=False)
    secrets: Reflector[Data] = field(init=False)
    configmaps: Reflector[Data] = field(init=False)

    def __post_init__(self) -> None:
        self.namespaces = self.namespaces or (self.namespace,)
        self.owners = (
            ByRanges(self.api, self.ring, self.namespace, self.clock, self.writes, self._look_at_all)
            if self.by_ranges
            else ByLabels(parse_ring_name(self.ring))
        )
        self.secrets = self._reflect(SECRETS, self._on_secret)
        self.configmaps = self._reflect(CONFIGMAPS, self._on_configmap)

    def _reflect(self, resource: Resource, handler: Callable[[Delta[Data]], None]) -> Reflector[Data]:
        where, covered = (self.namespaces[0] if len(self.namespaces) == 1 else None), frozenset(self.namespaces)
        return Reflector(
            self.api, resource, namespace=where, model=Data, metadata_only=False, handler=handler, clock=self.clock,
            rng=random.Random(), keep=lambda thing: thing.metadata.namespace in covered,
        )  # fmt: skip

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for reflector in (self.secrets, self.configmaps, *self.owners.reflectors):
                tasks.create_task(reflector.run())

    async def synced(self) -> None:
        """Wait until everything has been seen that was there at the start."""
        for reflector in (self.secrets, self.configmaps, *self.owners.reflectors):
            await reflector.synced.wait()

    # -- owners over time --------------------------------------------------

    def owner(self, thing: Data) -> str | None:
        """The one living shard that owns the object."""
        living = [shard for shard in self.owners.holders_of(thing) if shard in self.living]
        return living[0] if len(living) == 1 else None

    def bury(self, shard: str) -> None:
        """The shard is no more: what it owned has no living owner from now on."""
        self.living.discard(shard)
        self._look_at_all()

    def begin(self) -> None:
        """Count from here on."""
        self.handovers.clear()
        self.writes.clear()
        self.moved_configmaps = 0

    def _look_at_all(self) -> None:
        """Owners may have changed without a change of any object."""
        now = self.clock.monotonic()
        for thing in self.secrets.store:
            self._look(SECRETS, thing, now)
        for thing in self._made():
            self._look(CONFIGMAPS, thing, now)
        self._changed.set()

    def _look(self, resource: Resource, thing: Data, now: float) -> None:
        owned = self._owned.setdefault((resource, _key(thing)), Owned(None, now))
        if (owner := self.owner(thing)) is None:
            owned.orphaned_at = now if owned.orphaned_at is None else owned.orphaned_at
            return
        if owner != owned.by and resource is SECRETS:
            since = now if owned.orphaned_at is None else owned.orphaned_at
            self.handovers.append(Handover(thing.metadata.name, owned.by, owner, now - since))
        elif owner != owned.by and owned.by is not None:
            self.moved_configmaps += 1
        owned.by, owned.orphaned_at = owner, None

    def _on_secret(self, delta: Delta[Data]) -> None:
        self._on_object(SECRETS, delta)

    def _on_configmap(self, delta: Delta[Data]) -> None:
        if (owner := delta.object.metadata.controller) is not None:
            self.made.setdefault(owner.uid, set()).add(delta.object.metadata.uid)
            self._on_object(CONFIGMAPS, delta)
        self._changed.set()

    def _on_object(self, resource: Resource, delta: Delta[Data]) -> None:
        if delta.kind is EventKind.DELETED:
            self._owned.pop((resource, _key(delta.object)), None)
        else:
            self.writes[OBJECTS] += delta.kind is EventKind.MODIFIED
            self._look(resource, delta.object, self.clock.monotonic())
        self._changed.set()

    # -- what is asked of it -----------------------------------------------

    async def until(self, done: Callable[[], bool], timeout_seconds: float, what: str) -> None:
        """Wait until `done()`; looked at after each event.

        Raises: TimeoutError, saying what was waited for.
        """
        try:
            async with asyncio.timeout(timeout_seconds):
                while not done():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError as error:
            problems = "; ".join(self.problems()[:3]) or "nothing else is wrong"
            raise TimeoutError(f"waited {timeout_seconds:.0f} s for {what}: {problems}") from error

    def spread(self) -> Mapping[str, tuple[int, int, int]]:
        """Per shard: Secrets, of these changing hands, ConfigMaps."""
        mains = self._count(self.secrets.store)
        leaving = self._count(thing for thing in self.secrets.store if self.owners.leaving(thing))
        children = self._count(self._made())
        return {
            name: (mains[name], leaving[name], children[name]) for name in sorted({*mains, *children, *self.living})
        }

    def _count(self, things: Iterable[Data]) -> Counter[str]:
        return Counter(shard for thing in things for shard in self.owners.holders_of(thing))

    def problems(self) -> list[str]:
        """Everything that is not as it should be; empty when all is well."""
        return [*self._problems_of_secrets(), *self._problems_of_configmaps()]

    def calm(self) -> bool:
        """Whether all is well."""
        return not self.problems()

    def at_rest(self) -> bool:
        """Whether all is well, and will stay so."""
        return self.calm() and not any(self.owners.is_to_move(each, self.living) for each in self.secrets.store)

    def _made(self) -> list[Data]:
        return [thing for thing in self.configmaps.store if thing.metadata.controller is not None]

    def _problems_of_secrets(self) -> list[str]:
        wrong = []
        for thing in self.secrets.store:
            name, holders = thing.metadata.name, self.owners.holders_of(thing)
            if len(self.living.intersection(holders)) > 1:
                wrong.append(f"secret {name} has several owners: {', '.join(holders)}")
            elif self.owner(thing) is None:
                wrong.append(f"secret {name} has no living owner")
            elif leaving := self.owners.leaving(thing):
                wrong.append(f"secret {name} {leaving}")
            if misplaced := self.owners.misplaced(thing):
                wrong.append(f"secret {name} {misplaced}")
        return wrong

    def _problems_of_configmaps(self) -> list[str]:
        children: dict[str, list[Data]] = {}
        for child in self._made():
            reference = child.metadata.controller
            assert reference is not None
            children.setdefault(reference.uid, []).append(child)
        wrong = []
        for thing in self.secrets.store:
            made = children.get(thing.metadata.uid, [])
            if len(made) != 1:
                wrong.append(f"secret {thing.metadata.name} has {len(made)} configmaps instead of one")
                continue
            child = made[0]
            if (times := len(self.made.get(thing.metadata.uid, ()))) > 1:
                wrong.append(f"the configmap of secret {thing.metadata.name} was made {times} times")
            if self.owners.holders_of(child) != self.owners.holders_of(thing):
                wrong.append(f"configmap {child.metadata.name} is not on its secret's shard")
            if misplaced := self.owners.misplaced(child):
                wrong.append(f"configmap {child.metadata.name} {misplaced}")
            if checksum(thing.data) not in (child.data or {}).values():
                wrong.append(f"configmap {child.metadata.name} has not the right checksum")
        return wrong


def _key(thing: Data) -> Key:
    return Key(thing.metadata.namespace, thing.metadata.name)


def checksum(data: Mapping[str, str] | None) -> str:
    """The checksum that examples/checksum writes, from a Secret's data as it comes over the wire."""
    digest = hashlib.sha256()
    for key, value in sorted((data or {}).items()):
        digest.update(key.encode() + b"\0" + base64.b64decode(value) + b"\0")
    return digest.hexdigest()

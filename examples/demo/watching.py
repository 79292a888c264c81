"""What the demo sees: owners of all objects over time, from watches of its own.

Refuses: to ask the sharder or the shards; it looks at the objects.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from shardsdk.kube.api import Api
from shardsdk.kube.clock import SystemClock
from shardsdk.kube.reflector import Delta, EventKind, Reflector
from shardsdk.protocol.labels import RingLabels, parse_ring_name
from shardsdk.protocol.objects import ObjectMeta, Resource

SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")


class Data(msgspec.Struct, frozen=True, rename="camel"):
    """A Secret or ConfigMap."""

    metadata: ObjectMeta
    data: dict[str, str] | None = None


@dataclass(slots=True)
class Handover:
    """One object between two owners: when it lost a living one, and when it had one again."""

    name: str
    before: str | None
    after: str
    orphaned_seconds: float


@dataclass(slots=True)
class Watching:
    """Owners of the Secrets of one namespace and of the ConfigMaps made for them."""

    api: Api
    ring: str
    namespace: str
    clock: SystemClock = field(default_factory=SystemClock)
    #: Shards that live; who is not in here owns nothing, whatever a label says.
    living: set[str] = field(default_factory=set)
    handovers: list[Handover] = field(default_factory=list)
    moved_configmaps: int = 0
    #: uids of the ConfigMaps that were ever there for a Secret, by the Secret's uid: a shard that does not know
    #: another's work makes a second one, or one anew.
    made: dict[str, set[str]] = field(default_factory=dict)
    _orphaned_at: dict[str, tuple[float, str | None]] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    labels: RingLabels = field(init=False)
    secrets: Reflector[Data] = field(init=False)
    configmaps: Reflector[Data] = field(init=False)

    def __post_init__(self) -> None:
        self.labels = parse_ring_name(self.ring)
        self.secrets = self._reflect(SECRETS, self._on_secret)
        self.configmaps = self._reflect(CONFIGMAPS, self._on_configmap)

    def _reflect(self, resource: Resource, handler: Callable[[Delta[Data]], None]) -> Reflector[Data]:
        return Reflector(
            self.api, resource, namespace=self.namespace, model=Data, metadata_only=False,
            handler=handler, clock=self.clock, rng=random.Random(),
        )  # fmt: skip

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.secrets.run())
            tasks.create_task(self.configmaps.run())

    # -- owners over time --------------------------------------------------

    def owner(self, thing: Data) -> str | None:
        """The living shard that owns the object."""
        shard = thing.metadata.label(self.labels.shard)
        return shard if shard in self.living else None

    def bury(self, shard: str) -> None:
        """The shard is no more: what it owned has no living owner from now on."""
        now = self.clock.monotonic()
        self.living.discard(shard)
        for thing in self.secrets.store:
            if thing.metadata.label(self.labels.shard) == shard:
                self._orphaned_at.setdefault(thing.metadata.name, (now, shard))

    def _on_secret(self, delta: Delta[Data]) -> None:
        name, now = delta.object.metadata.name, self.clock.monotonic()
        if delta.kind is EventKind.DELETED:
            self._orphaned_at.pop(name, None)
        elif (after := self.owner(delta.object)) is None:
            before = delta.old.metadata.label(self.labels.shard) if delta.old is not None else None
            self._orphaned_at.setdefault(name, (now, before))
        else:
            self._note(name, delta, after, now)
        self._changed.set()

    def _note(self, name: str, delta: Delta[Data], after: str, now: float) -> None:
        old = delta.old.metadata.label(self.labels.shard) if delta.old is not None else None
        since, before = self._orphaned_at.pop(name, (now, old))
        if before != after:
            self.handovers.append(Handover(name, before, after, now - since))

    def _on_configmap(self, delta: Delta[Data]) -> None:
        if (owner := delta.object.metadata.controller) is not None:
            self.made.setdefault(owner.uid, set()).add(delta.object.metadata.uid)
        if delta.kind is EventKind.MODIFIED and delta.old is not None:
            label = self.labels.shard
            self.moved_configmaps += delta.old.metadata.label(label) != delta.object.metadata.label(label)
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
        """Per shard: Secrets, of these draining, ConfigMaps."""
        label = self.labels.shard
        mains = Counter(thing.metadata.label(label) for thing in self.secrets.store)
        drains = Counter(
            thing.metadata.label(label)
            for thing in self.secrets.store
            if thing.metadata.label(self.labels.drain) is not None
        )
        children = Counter(thing.metadata.label(label) for thing in self._made())
        names = {name for name in (*mains, *children, *self.living) if name is not None}
        return {name: (mains[name], drains[name], children[name]) for name in sorted(names)}

    def problems(self) -> list[str]:
        """Everything that is not as it should be; empty when all is well."""
        return [*self._problems_of_secrets(), *self._problems_of_configmaps()]

    def calm(self) -> bool:
        """Whether all is well."""
        return not self.problems()

    def _made(self) -> list[Data]:
        return [thing for thing in self.configmaps.store if thing.metadata.controller is not None]

    def _problems_of_secrets(self) -> list[str]:
        wrong = []
        for thing in self.secrets.store:
            name = thing.metadata.name
            if self.owner(thing) is None:
                wrong.append(f"secret {name} has no living owner")
            elif thing.metadata.label(self.labels.drain) is not None:
                wrong.append(f"secret {name} is draining")
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
            if (times := len(self.made.get(thing.metadata.uid, ()))) > 1:
                wrong.append(f"the configmap of secret {thing.metadata.name} was made {times} times")
            if made[0].metadata.label(self.labels.shard) != thing.metadata.label(self.labels.shard):
                wrong.append(f"configmap {made[0].metadata.name} is not on its secret's shard")
            if checksum(thing.data) not in (made[0].data or {}).values():
                wrong.append(f"configmap {made[0].metadata.name} has not the right checksum")
        return wrong


def checksum(data: Mapping[str, str] | None) -> str:
    """The checksum that examples/checksum writes, from a Secret's data as it comes over the wire."""
    digest = hashlib.sha256()
    for key, value in sorted((data or {}).items()):
        digest.update(key.encode() + b"\0" + base64.b64decode(value) + b"\0")
    return digest.hexdigest()

"""Made-up histories, told step by step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from tests.chaos.history import (
    ASSIGNMENTS,
    CHILDREN,
    LEASES,
    OWNERS,
    Down,
    History,
    Known,
    Reconcile,
    Request,
    Version,
    Write,
    Writer,
)
from tests.chaos.rules import judge

LEASE_SECONDS = 12.0
LISTS = ("versions", "reconciles", "writes", "ticks", "downs", "requests")
USER = Writer("user")
SHARDER = Writer("sharder")
NAMESPACE = "default"
#: What a Lease says that holds all there is.
ALL = "0x0000000000000000-0x10000000000000000"


@dataclass
class Story:
    """A history that is told in order: each step takes a second and, where it writes, a revision."""

    now: float = 0.0
    revision: int = 0
    facts: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in LISTS})

    def store(self, resource: str, name: str, **facts: Any) -> Version:
        """A version, which is known to have been written within this second."""
        self.revision += 2
        self.now += 1
        facts = {"uid": name, "namespace": "" if resource == ASSIGNMENTS else NAMESPACE, **facts}
        made = Version((0, self.revision), resource, name, self.now, **facts)
        self.facts["versions"].append(made)
        self.facts["ticks"] += [Known((0, self.revision - 1), self.now - 0.9, self.now - 0.8)]
        return made

    def asked(
        self, by: Writer | str, version: Version, *, code: int | None = 200, verb: str = "patch", named: bool = True
    ) -> Version:
        """That an API server was asked for the version, by a shard of that name or somebody else."""
        writer = Writer("shard", by) if isinstance(by, str) else by
        at = version.at if code == 200 and not version.deleted else None
        name = version.name if named else ""
        number = f"request-{len(self.facts['requests'])}"
        self.facts["requests"].append(Request(number, writer, verb, version.resource, name, code, at))
        return version

    def lease(self, shard: str, holder: str | None = None, **facts: Any) -> Version:
        return self.store(LEASES, shard, holder=shard if holder is None else holder, **facts)

    def name(self, shard: str | None, **facts: Any) -> Version:
        return self.store(ASSIGNMENTS, "checksum", named=((0, shard),), **facts)

    def renew(self, *shards: str) -> None:
        for shard in shards:
            self.lease(shard)

    def owner(self, shard: str | None, value: str = "1", **facts: Any) -> Version:
        return self.store(OWNERS, "a", **{"shard": shard, "value": value, "content": value, **facts})

    def child(self, shard: str | None, value: str = "1", write: str = "", **facts: Any) -> Version:
        facts = {"value": value, "write": write, "content": f"{value} by {write}", **facts}
        return self.store(CHILDREN, "a-0", owner="a", shard=shard, **facts)

    def begin(self, shard: str, key: str, *, lasts: float | None = 0.5, process: str = "") -> None:
        self.now += 1
        end = None if lasts is None else self.now + lasts
        self.facts["reconciles"].append(Reconcile(key, process or f"{shard}.1", shard, "a", self.now, end))

    def write(self, key: str, write: str, *, answered: bool = True) -> None:
        """A shard sends a write; what it makes is stored by `child`."""
        at = (0, self.revision + 2) if answered else None
        self.facts["writes"].append(Write(write, key, self.now + 0.2, self.now + 2 if answered else None, at))

    def down(self, process: str, seconds: float | None, how: Literal["suspended", "ended"] = "suspended") -> None:
        self.facts["downs"].append(Down(process, self.now, None if seconds is None else self.now + seconds, how))

    def told(self, **facts: Any) -> History:
        lists: dict[str, Any] = {name: tuple(each) for name, each in self.facts.items()}
        facts = {"living": frozenset({"one", "two"}), "children": 1, "lease_seconds": LEASE_SECONDS, **facts}
        return History(**{**lists, "requests": lists["requests"] or None}, end=self.now + 1, **facts)


def begun() -> Story:
    """Two shards; an object with a child on the first."""
    story = Story()
    story.renew("one", "two")
    story.owner("one")
    story.begin("one", "one/1")
    story.write("one/1", "w1")
    story.child("one", write="w1")
    return story


def handed_over() -> Story:
    """The first shard leaves in order; the second one works on the object."""
    story = begun()
    story.lease("one", holder="")
    story.child("two", write="w1")
    story.owner("two")
    story.begin("two", "two/1")
    return story


def rules(history: History) -> list[str]:
    return [each.rule for each in judge(history).violations]

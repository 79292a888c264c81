"""What an object waits for: one ordered list of reasons, asked before each reconcile and when somebody wants to know.

    default/a: waits since 3 s for the cache to show its own write of ConfigMap
    default/a-seen (version 1234); looked at again in 12 s at the latest

`GATE` decides whether a reconcile may begin; `explain` asks the same list, and
then where the queue has the object, and says in a sentence what it found and
what will wake it.

Nothing changes by asking.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple

from shardsdk.kube.store import Key
from shardsdk.protocol.objects import GroupResource
from shardsdk.protocol.verdict import Verdict
from shardsdk.queueing.item import ItemState
from shardsdk.reconcile.state import Child, Drain, DrainState, ObjectState


class Wait(Enum):
    """What an object waits for, by the name under which it is shown."""

    RUNNING = "the end of a reconcile"
    UNFIT = "an object that fits"
    CACHE = "the cache"
    ANOTHERS = "its label"
    DRAIN = "its drain"
    LEASE = "the lease"
    WRITES = "own writes"
    CHILDREN = "its children"
    UNREADABLE = "an unreadable child"
    WORKER = "a worker"
    BACKOFF = "its backoff"
    DELAY = "its time"
    GAVE_UP = "an event, after an error"
    NOTHING = "an event"


#: When an object waits for each, and what wakes it.
MEANINGS: Final[Mapping[Wait, tuple[str, str]]] = {
    Wait.RUNNING: ("it is being reconciled", "the end of that, its time limit, or its cancellation"),
    Wait.UNFIT: (
        "it does not fit its class, or an index or a transform raises at it",
        "a change of it, or of the program",
    ),
    Wait.CACHE: ("the controller's cache does not have it: gone, another shard's, not selected", "its arrival"),
    Wait.ANOTHERS: ("its label names another shard, or none", "a label that names this shard"),
    Wait.DRAIN: ("the sharder asks for it", "the end of what runs and is written; then it goes away"),
    Wait.LEASE: ("the lease that the work needs is not held, or doubted", "its next renewal, or a new process"),
    Wait.WRITES: ("the caches do not show what was written for it", "the watch, or 15 s"),
    Wait.CHILDREN: ("its children are not known since it came, or since a write without an answer", "a list"),
    Wait.UNREADABLE: ("a child of its cannot be read, and might be made twice", "a change of that child"),
    Wait.WORKER: ("it is in the queue", "a free worker (`concurrency`)"),
    Wait.BACKOFF: ("it failed, or returned `Requeue()`", "the end of its backoff, or an event"),
    Wait.DELAY: ("it returned `RequeueAfter(…)`", "that moment, or an event"),
    Wait.GAVE_UP: (
        "its last reconcile failed for good, or was cancelled",
        "an event; after `Permanent` a change of its spec, or another process",
    ),
    Wait.NOTHING: ("it is as it should be", "an event"),
}


class Admission(NamedTuple):
    """What has to be right for a reconcile to begin; `verdict` None: the cache does not show the object."""

    verdict: Verdict | None
    lease_held: bool = True
    writes_shown: bool = True
    children_known: bool = True
    children_readable: bool = True
    fits: bool = True


#: What keeps a reconcile from beginning, in the order in which it is asked.
GATE: Final[tuple[tuple[Wait, Callable[[Admission], bool]], ...]] = (
    (Wait.UNFIT, lambda found: not found.fits),
    (Wait.CACHE, lambda found: found.verdict is None),
    (Wait.ANOTHERS, lambda found: found.verdict is Verdict.IGNORE),
    (Wait.DRAIN, lambda found: found.verdict is Verdict.ACKNOWLEDGE),
    (Wait.LEASE, lambda found: not found.lease_held),
    (Wait.WRITES, lambda found: not found.writes_shown),
    (Wait.CHILDREN, lambda found: not found.children_known),
    (Wait.UNREADABLE, lambda found: not found.children_readable),
)


def held_by(found: Admission) -> Wait | None:
    """What keeps a reconcile from beginning; `None`: nothing."""
    return next((wait for wait, holds in GATE if holds(found)), None)


@dataclass(frozen=True, slots=True)
class Facts:
    """All that is known of an object and a controller at the moment `now` (monotonic).

    `running` counts the reconciles of it by any controller; `unreadable` names
    children that cannot be read, `unfit` says why the object itself cannot be; `kinds` are for names that people know.
    """

    controller: str
    resource: GroupResource
    key: Key
    now: float
    admission: Admission
    item: ItemState
    state: ObjectState | None = None
    drain: DrainState | None = None
    running: int = 0
    unreadable: tuple[str, ...] = ()
    kinds: Mapping[GroupResource, str] = field(default_factory=dict)
    unfit: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What an object waits for, since when, and when it is looked at again at the latest (seconds; `None`: not known).

    `text` says it in a sentence; `kind` is the object's, as people know it.
    """

    controller: str
    resource: GroupResource
    namespace: str
    name: str
    wait: Wait
    since_seconds: float | None
    again_seconds: float | None
    failures: int
    error: str
    text: str
    kind: str = ""

    def as_json(self) -> dict[str, Any]:
        """The same for programs."""
        return {
            "controller": self.controller,
            "resource": str(self.resource),
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "waitsFor": self.wait.name,
            "sinceSeconds": None if self.since_seconds is None else round(self.since_seconds, 3),
            "againSeconds": None if self.again_seconds is None else round(self.again_seconds, 3),
            "failures": self.failures,
            "error": self.error,
            "text": self.text,
        }


def explain(facts: Facts) -> Explanation:
    """What an object waits for."""
    wait = waits_for(facts)
    since, again = _since(wait, facts), _again(wait, facts)
    words = _WORDS[wait](facts)
    if since is not None:
        words = words.replace(_SINCE, f" since {_span(since)}")
    if again is not None:
        words += f"; {_AGAIN.get(wait, 'looked at again')} in {_span(again)}{_LATEST.get(wait, '')}"
    words += _early(facts)
    error = facts.state.error if facts.state is not None else ""
    text = f"{facts.key}: {words.replace(_SINCE, '')}"
    key, failures, kind = facts.key, facts.item.failures, facts.kinds.get(facts.resource, "")
    return Explanation(
        facts.controller, facts.resource, key.namespace, key.name, wait, since, again, failures, error, text, kind
    )


def waits_for(facts: Facts) -> Wait:
    """The first reason that there is."""
    item, state = facts.item, facts.state
    held = held_by(facts.admission)
    if item.started is not None:
        return Wait.RUNNING
    # What is not to be reconciled waits neither for its writes nor for its children.
    wanted = item.queued_since is not None or (state is not None and state.waits)
    if held is not None and (wanted or held not in (Wait.WRITES, Wait.CHILDREN)):
        return held
    if item.queued_since is not None:
        return Wait.WORKER
    if item.due is not None:
        return Wait.BACKOFF if item.failures else Wait.DELAY
    return Wait.GAVE_UP if state is not None and state.error else Wait.NOTHING


#: Stands in words for since when.
_SINCE: Final = " [since]"


def _since(wait: Wait, facts: Facts) -> float | None:
    """For how many seconds."""
    state, moment = facts.state, None
    match wait:
        case Wait.RUNNING:
            moment = facts.item.started
        case Wait.DRAIN if facts.drain is not None and facts.drain.open:
            moment = facts.drain.since
        case Wait.WRITES if state is not None and state.expected:
            moment = min(each.since for each in state.expected.values())
        case Wait.CHILDREN if state is not None and state.arrival is not None:
            moment = state.arrival.since
        case Wait.WORKER:
            moment = facts.item.queued_since
        case _:
            pass
    return None if moment is None else max(facts.now - moment, 0.0)


def _again(wait: Wait, facts: Facts) -> float | None:
    """After how many seconds it is looked at again."""
    state, moment = facts.state, None
    match wait:
        case Wait.BACKOFF | Wait.DELAY:
            moment = facts.item.due
        case Wait.DRAIN if facts.drain is not None and facts.drain.drain is Drain.VOID:
            moment = facts.drain.not_before
        case Wait.WRITES if state is not None and state.expected:
            moment = min(each.until for each in state.expected.values())
        case Wait.CHILDREN if state is not None and state.arrival is not None and state.arrival.missing:
            moment = state.arrival.until
        case _:
            pass
    return None if moment is None else max(moment - facts.now, 0.0)


#: What happens then, and how sure that is.
_AGAIN: Final[Mapping[Wait, str]] = {
    Wait.BACKOFF: "tried again",
    Wait.DRAIN: "acknowledged again",
    Wait.CHILDREN: "listed again",
}
_LATEST: Final[Mapping[Wait, str]] = {Wait.WRITES: " at the latest", Wait.CHILDREN: " at the latest"}


def _running(facts: Facts) -> str:
    drained = facts.drain is not None and facts.drain.open and facts.drain.drain is not Drain.EARLY
    after = "; it was asked for meanwhile, and is reconciled once more" if facts.item.queued_since is not None else ""
    return f"is being reconciled{_SINCE}" + ("; its drain waits for the end of that" if drained else after)


def _early(facts: Facts) -> str:
    """What is said besides of an object that is drained and could not be given away yet."""
    drain = facts.drain
    if drain is None or drain.drain is not Drain.EARLY:
        return ""
    left = _span(max(drain.not_before - facts.now, 0.0))
    return (
        f"; it is to be given away, in {left} at the soonest: until then what the process before this one had sent may"
        " be executed"
    )


def _drain(facts: Facts) -> str:
    drain = Drain.ASKED if facts.drain is None else facts.drain.drain
    match drain:
        case Drain.EARLY:
            found = f"was found drained{_SINCE}: the process before this one may have given it away"
            return f"{found}; it rests until it changes"
        case Drain.BUSY:
            others = "a reconcile" if facts.running == 1 else f"{facts.running} reconciles"
            return f"is to be given away{_SINCE}; that waits for the end of {others} of it"
        case Drain.VOID:
            return (
                f"is to be given away{_SINCE}, but an admission webhook changes the object in the acknowledgement,"
                " which does not count then"
            )
        case Drain.ACKNOWLEDGED:
            return "was given away; the cache is about to show it"
        case _:
            return f"is to be given away{_SINCE}, once this shard's own writes are answered or dead"


def _writes(facts: Facts) -> str:
    expected = (facts.state.expected if facts.state is not None else None) or {}
    named = [
        f"own deletion of {_name(child, facts)}"
        if each.ends is not None
        else f"own write of {_name(child, facts)} (version {each.version})"
        for child, each in expected.items()
    ]
    return f"waits{_SINCE} for the cache to show its {_few(named)}"


def _children(facts: Facts) -> str:
    arrival = None if facts.state is None else facts.state.arrival
    if arrival is None or not arrival.missing:
        return f"waits{_SINCE} for a list of its children"
    named = [f"{_name(child, facts)} (version {version})" for child, version in arrival.missing.items()]
    return f"waits{_SINCE} for the cache to show what a list has shown of its children: {_few(named)}"


def _backoff(facts: Facts) -> str:
    error = "" if facts.state is None else facts.state.error
    times = "once" if facts.item.failures == 1 else f"{facts.item.failures} times in a row"
    return f"has failed {times}, the last time with {error}" if error else f"has asked {times} to come back (Requeue)"


def _gave_up(facts: Facts) -> str:
    state = facts.state
    return "" if state is None else f"waits for {state.waits_for}; its last reconcile ended with {state.error}"


_WORDS: Final[Mapping[Wait, Callable[[Facts], str]]] = {
    Wait.RUNNING: _running,
    Wait.UNFIT: lambda facts: f"is not reconciled until it can be read: {facts.unfit}",
    Wait.CACHE: lambda _: (
        "is not in this controller's cache: it does not exist, is another shard's or nobody's, or is not selected"
    ),
    Wait.ANOTHERS: lambda _: "is another shard's, or nobody's",
    Wait.DRAIN: _drain,
    Wait.LEASE: lambda _: "waits for the lease, which is not held (any more), or has yet to be confirmed",
    Wait.WRITES: _writes,
    Wait.CHILDREN: _children,
    Wait.UNREADABLE: lambda facts: f"is not reconciled until this can be read: {_few(facts.unreadable)}",
    Wait.WORKER: lambda facts: f"waits{_SINCE} for a free worker ({facts.item.priority.name.lower()} priority)",
    Wait.BACKOFF: _backoff,
    Wait.DELAY: lambda _: "waits until the time that its last reconcile asked for",
    Wait.GAVE_UP: _gave_up,
    Wait.NOTHING: lambda _: "waits for its next event",
}


def _name(child: Child, facts: Facts) -> str:
    return f"{facts.kinds.get(child.resource, child.resource)} {child.key}"


def _few(names: list[str] | tuple[str, ...]) -> str:
    more = len(names) - 1
    return ("" if not names else names[0]) + (f" and {more} more" if more > 0 else "")


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.2g} s"

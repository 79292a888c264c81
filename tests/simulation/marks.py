"""What should happen sometimes: named points of the product's logic, counted over a run.

A rule holds easily where nothing ever happens.  So each branch that matters has
a name here, and whoever plays many runs adds up how often each was reached.
`watching` counts what decisions and steps of the product come to; the world
counts the rest by `World.mark`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest.mock import patch

from sharder.core import admission
from sharder.core.decisions import Decision, Reason
from sharder.core.shards import State
from sharder.core.takeover import Act
from sharder.placement import reconciler as worker
from sharder.placement.handover import Handovers
from sharder.takeover import controller as leases
from sharder.webhook.app import OUTCOMES
from shardsdk.cache import identity
from shardsdk.protocol.verdict import Verdict
from tests.simulation.ranges.drawing import BESIDES, COVERS, EDITS, TWINS
from tests.simulation.scenarios import Scenario
from tests.simulation.schedule import RARE, WEIGHTS, Broken
from tests.simulation.vocabulary import Marks

#: Branches of moving groups; each is a method of `Handovers` and what it gave.
_GROUPS: Final = (
    "let go",
    "not let go",
    "is looked at again",
    "has changed",
    "moved",
    "not moved",
    "child moved",
    "child not moved",
    "doubts cleared",
    "held up",
)

#: Every name that may be counted; a run's `Marks` know no others.
DECLARED: Final = (
    *(f"decision {each.name}" for each in Decision),
    *(f"reason {each.value}" for each in Reason),
    *(f"lease {each.name}" for each in Act),
    *(f"state {each.value}" for each in State),
    *(f"admission {each}" for each in dict.fromkeys(OUTCOMES)),
    *(f"guard {each.name}" for each in Verdict),
    *(f"group {each}" for each in _GROUPS),
    *(f"action {each}" for each in (*WEIGHTS, *RARE, *EDITS, *COVERS, *BESIDES, *TWINS)),
    *(f"scenario {each.name}" for each in Scenario),
    "heal",
    "ended because its ring covers others",
    "said that it is about to leave",
    "acknowledged while about to leave",
    "stop of a machine noticed",
    "crashed with writes under way",
    "etcd restored",
    "etcd restored, versions raised",
    *(f"broken {each.name}" for each in Broken),
)

#: Names that the default seeds of the tests need not reach; all others they must.
SELDOM: Final = frozenset({
    # Runs have no such objects and shards.
    "decision IGNORE", "reason no_key", "reason ambiguous_shard", "reason unfit_shard",
    # No type is taken away there.
    "admission another_kind",
    # Nobody sends requests like that.
    "admission not_ours", "admission malformed", "admission unknown_ring", "admission failed", "admission too_large",
    "admission too_much", "admission too_slow", "admission gone", "admission not_acknowledged",
    # One run in fifty comes to it, or fewer.
    "reason target_unavailable", "admission owner_unassigned", "admission owner_unread", "group not let go",
})  # fmt: skip


def no_marks() -> Marks:
    """Every declared name, counted zero times."""
    return dict.fromkeys(DECLARED, 0)


@contextmanager
def watching(mark: Callable[[str], None]) -> Iterator[None]:
    """Count what the product decides within this context."""
    with ExitStack() as stack:
        for owner, name, listen in _LISTENERS:
            stack.enter_context(patch.object(owner, name, listen(getattr(owner, name), mark)))
        yield


_Mark = Callable[[str], None]
_Wrap = Callable[[Any, _Mark], Any]


def _after(name: Callable[..., tuple[str, ...]]) -> _Wrap:
    """Call the real function, then count what `name` makes of its result and arguments."""

    def wrap(right: Any, mark: _Mark) -> Any:
        def told(*args: Any, **named: Any) -> Any:
            result = right(*args, **named)
            for each in name(result, *args):
                mark(each)
            return result

        return told

    return wrap


def _after_awaiting(name: Callable[..., tuple[str, ...]]) -> _Wrap:
    def wrap(right: Any, mark: _Mark) -> Any:
        async def told(*args: Any, **named: Any) -> Any:
            result = await right(*args, **named)
            for each in name(result, *args):
                mark(each)
            return result

        return told

    return wrap


def _let_go(result: Any, mover: Any, batch: Any) -> tuple[str, ...]:
    return tuple("group let go" if group.let_go else "group not let go" for group in batch)


def _either(yes: str, no: str) -> Callable[..., tuple[str, ...]]:
    return lambda result, *_: (yes if result else no,)


_decided = _after(lambda outcome, *_: (f"decision {outcome.decision.name}", f"reason {outcome.reason.value}"))
_judged = _after(lambda verdict, *_: (f"guard {verdict.name}",))
_STATE: Final = {state: (f"state {state.value}",) for state in State}

_LISTENERS: Final[tuple[tuple[Any, str, _Wrap], ...]] = (
    (worker, "decide", _decided),
    (admission, "decide", _decided),
    (leases, "decide_takeover", _after(lambda step, *_: (f"lease {step.act.name}",))),
    (leases, "classify", _after(lambda judged, *_: _STATE[judged.state])),
    (identity, "judge", _judged),
    (Handovers, "_renew", _after_awaiting(_let_go)),
    (Handovers, "_read_owner", _after_awaiting(lambda *_: ("group doubts cleared",))),
    (Handovers, "_look_again", _after_awaiting(_either("group is looked at again", "group has changed"))),
    (Handovers, "_take_steps", _after_awaiting(_either("group moved", "group not moved"))),
    (Handovers, "_move_child", _after_awaiting(_either("group child moved", "group child not moved"))),
    (Handovers, "_hold_up", _after(lambda *_: ("group held up",))),
)

"""When a ring's objects are gone through, and when the ring is settled.

A deep pass goes through everything that has a shard, a shallow one through main objects only, one over a namespace
through everything in it.  What asks for a pass or puts it off is an event; TABLE says what each changes:

- A change of the shards leaves the ring unsettled until a deep pass that began once no replica could place by an older
  membership any more has found nothing.
- Objects that change hands leave it unsettled, too; what was made meanwhile may be with the shard that they were on.
  Then a deep pass is *owed*: due as soon as nothing waits, not while everything moves.  A pass that began amid that
  pays for nothing; and what has moved may be what others waited for, so that pauses that grew while nothing did are
  over.  Where the last pass has found nothing else, and the shards are the same, the next rests for so long that passes
  take a tenth of the time (a minute at most): whoever may write an object may have it change hands again and again.
- A pass that a newer membership has overtaken ends, and what it was asked for is asked for again; but not for ever.
- A shard that was silent has missed, at most, a few new objects, and others work on those.  So after one pass on that
  account the next is put off: shards that renew irregularly would have everything gone through all the time.
- A namespace that came into scope, or left it, is gone through, and nothing else is, or rings over many objects would
  have all of them read whenever somebody makes a namespace.  What a pass finds in one no watch need hold: the ring is
  not settled before a pass over that namespace has found nothing.  Replicas that did not know of it yet have admitted
  objects meanwhile: so it is gone through once more when they do.

How a deep pass has ended is an event as well, by the first of CONCLUSIONS that holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from sharder.core.membership import Membership

#: Pause before a pass that failed or was found wanting is made again; doubles up to the second.
RETRY_SECONDS: Final = (1.0, 60.0)
#: For what others were given while a shard was silent, everything is gone through at most once in so long.
SILENCE_SECONDS: Final = 300.0
#: How often in a row a pass ends early because the membership has changed.
MAX_SUPERSEDED: Final = 2
#: A pass for what changes hands while the shards stay begins after so many times what the last took, or the last pause.
RESTS: Final = 9
NEVER: Final = float("-inf")


class Asked(NamedTuple):
    """Passes that are asked for, apart from a deep one: a shallow one, and those over namespaces."""

    shallow: bool = False
    namespaces: frozenset[str] = frozenset()

    def __or__(self, other: Asked) -> Asked:
        """Both."""
        return Asked(self.shallow or other.shallow, self.namespaces | other.namespaces)


NOTHING: Final = Asked()


class ResyncState(msgspec.Struct, frozen=True):
    """What is known of one ring's passes; times on the monotonic clock.

    `changed_at`: when the shards changed last; `settle_after_seconds` later every replica knows.  `silence_at`:
    when the end of a silence may ask for a pass again.  `generation` counts changes of the shards.  `clean`: the
    last deep pass found nothing, and nothing has changed since.  `deep_at`: when a deep pass is due (`None`: it is
    not).  `owed`: one is due as soon as nothing waits.  `asked`: other passes, not before `not_before`.  `left_out`:
    objects that were found were left out, because too many waited; `left_out_of`: the namespaces of those that no
    watch holds.  `unsure`: the namespaces that have changed, and were not gone through since.  `later`: when those
    that have changed are to be gone through once more.  `again`: those in which the last pass has found something.
    `pause`: before the next attempt.  `rests_until`: when what changes hands may have one made again.  `superseded`:
    passes in a row that were overtaken.
    """

    settle_after_seconds: float
    changed_at: float
    silence_at: float = NEVER
    generation: int = 0
    clean: bool = False
    deep_at: float | None = None
    owed: bool = False
    asked: Asked = NOTHING
    not_before: float = NEVER
    left_out: bool = False
    left_out_of: frozenset[str] = frozenset()
    unsure: frozenset[str] = frozenset()
    later: frozenset[tuple[float, str]] = frozenset()
    again: frozenset[str] = frozenset()
    pause: float = RETRY_SECONDS[0]
    rests_until: float = NEVER
    superseded: int = 0

    @property
    def settles_at(self) -> float:
        """From when on no replica can still be placing by an older membership."""
        return self.changed_at + self.settle_after_seconds

    @property
    def nothing_found(self) -> bool:
        """Whether the last passes have found nothing, and nothing has changed since."""
        return self.clean and not self.unsure


class Event(Enum):
    """What happens to a ring, or to a pass over it."""

    SHARDS_CHANGED = "other shards are available"
    READINESS_CHANGED = "a shard became ready to take objects, or is so no longer"
    SILENCE_ENDED = "a shard was silent and is so no longer"
    SILENCE_ENDED_AGAIN = "that, and the last pass on account of such an event is not long ago, or to come"
    NAMESPACE_CHANGED = "a namespace came into the ring's scope or left it"
    MOVING = "objects begin to change hands"
    QUIET = "nothing waits any more, and a deep pass is owed"
    LEFT_OUT = "a pass leaves out what it found, because too many wait"
    ROOM = "fewer wait: there is room for what was left out"
    PERIOD_OVER = "the sync period is over"
    NO_SHARD = "a pass is due, but no shard is available"
    SHALLOW_BEGINS = "what is asked for begins"
    DEEP_BEGINS = "a deep pass begins"
    DEEP_BEGINS_AMID = "a deep pass begins while objects change hands"
    SUPERSEDED = "the pass was overtaken by a change of the shards"
    FAILED = "the pass failed"
    ENDED = "the pass has gone through everything"
    FOUND_IN_NAMESPACES = "a pass over namespaces has found something"
    NAMESPACES_CLEAN = "a pass over namespaces has found nothing"
    FOUND_SOME = "a deep pass has found something, or left something out"
    TOO_EARLY = "a deep pass has found nothing, but began before every replica knew the shards"
    OBJECTS_WAIT = "a deep pass has found nothing, but objects wait"
    MORE_ASKED = "a deep pass has found nothing, but another was asked for meanwhile"
    FOUND_NOTHING = "a deep pass has found nothing, and nothing waits"


@dataclass(frozen=True, slots=True)
class Effect:
    """A change of the state, at a moment, on account of the passes that an event names."""

    words: str
    of: Callable[[ResyncState, float, Asked], ResyncState]


@dataclass(frozen=True, slots=True)
class Change:
    """What an event changes, one effect after the other; nothing unless `only_if` holds."""

    effects: tuple[Effect, ...]
    only_if: Callable[[ResyncState], bool] = lambda _: True


CLEAN: Final = Effect("the ring is clean", lambda state, now, named: replace(state, clean=True))
UNCLEAN: Final = Effect("the ring is not clean", lambda state, now, named: replace(state, clean=False))
OWED: Final = Effect("a deep pass is owed", lambda state, now, named: replace(state, owed=True))
NOT_OWED: Final = Effect("none is owed", lambda state, now, named: replace(state, owed=False))
DEEP_WHEN_ALL_KNOW: Final = Effect(
    "a deep pass is due when every replica knows the shards",
    lambda state, now, named: replace(state, deep_at=state.settles_at),
)
DEEP_SOON: Final = Effect(
    "a deep pass is due after the pause, unless one is due already",
    lambda state, now, named: replace(state, deep_at=now + state.pause if state.deep_at is None else state.deep_at),
)
DEEP_WITHIN_PAUSE: Final = Effect(
    "a deep pass is due after the pause, or earlier if one is due already",
    lambda state, now, named: _due_at(state, now + state.pause),
)
DEEP_IN_TURN: Final = Effect(
    "a deep pass is due after the pause and once the last has rested, or earlier if one is due already",
    lambda state, now, named: _due_at(state, max(now + state.pause, state.rests_until)),
)
DEEP_LATER: Final = Effect(
    "a deep pass is due once that is long enough ago",
    lambda state, now, named: replace(state, deep_at=min(state.silence_at, now + SILENCE_SECONDS)),
)
SILENCE: Final = Effect(
    "it is the last such pass for a while",
    lambda state, now, named: replace(state, silence_at=max(now, state.deep_at or now) + SILENCE_SECONDS),
)
DEEP_NOW: Final = Effect("a deep pass is due now", lambda state, now, named: replace(state, deep_at=now))
NO_DEEP: Final = Effect("no deep pass is due", lambda state, now, named: replace(state, deep_at=None))
ASKED: Final = Effect(
    "the passes that it names are asked for", lambda state, now, named: replace(state, asked=state.asked | named)
)
LEFT_OUT_ASKED: Final = Effect(
    "a shallow pass, and those over the namespaces with what was left out, are asked for",
    lambda state, now, named: replace(state, asked=state.asked | Asked(True, state.left_out_of)),
)
NONE_ASKED: Final = Effect("no other pass is asked for", lambda state, now, named: replace(state, asked=NOTHING))
AT_ONCE: Final = Effect("what is asked for waits no longer", lambda state, now, named: replace(state, not_before=NEVER))
AFTER_PAUSE: Final = Effect(
    "what is asked for waits for the pause", lambda state, now, named: replace(state, not_before=now + state.pause)
)
PAUSE_DOUBLED: Final = Effect(
    "the next pause is twice as long",
    lambda state, now, named: replace(state, pause=min(2 * state.pause, RETRY_SECONDS[1])),
)
PAUSE_FIRST: Final = Effect("the pause is the first", lambda state, now, named: replace(state, pause=RETRY_SECONDS[0]))
LEFT_OUT: Final = Effect(
    "it is remembered that objects were left out, and of which namespaces",
    lambda state, now, named: replace(state, left_out=True, left_out_of=state.left_out_of | named.namespaces),
)
NONE_LEFT_OUT: Final = Effect(
    "what was left out is forgotten", lambda state, now, named: replace(state, left_out=False, left_out_of=frozenset())
)
AGAIN: Final = Effect(
    "the next deep pass goes through those namespaces again",
    lambda state, now, named: replace(state, again=state.again | named.namespaces),
)
NONE_AGAIN: Final = Effect("no namespace is due again", lambda state, now, named: replace(state, again=frozenset()))
UNSURE: Final = Effect(
    "nobody knows what is in those namespaces",
    lambda state, now, named: replace(state, unsure=state.unsure | named.namespaces),
)
LATER: Final = Effect(
    "they are gone through once more when every replica knows of it",
    lambda state, now, named: replace(
        state,
        later=frozenset(each for each in state.later if each[1] not in named.namespaces)
        | {(now + state.settle_after_seconds, each) for each in named.namespaces},
    ),
)
NONE_LATER: Final = Effect(
    "no namespace is to be gone through once more", lambda state, now, named: replace(state, later=frozenset())
)
SURE: Final = Effect(
    "it is known what is in those namespaces, but for what has changed meanwhile",
    lambda state, now, named: replace(state, unsure=state.unsure - (named.namespaces - state.asked.namespaces)),
)
CHANGED_NOW: Final = Effect(
    "replicas are given time to know the shards, and no pass rests",
    lambda state, now, named: replace(state, changed_at=now, rests_until=NEVER),
)
GENERATION: Final = Effect(
    "a pass under way is overtaken", lambda state, now, named: replace(state, generation=state.generation + 1)
)
ONE_MORE: Final = Effect(
    "one more was overtaken in a row", lambda state, now, named: replace(state, superseded=state.superseded + 1)
)
NONE_IN_A_ROW: Final = Effect("none was overtaken in a row", lambda state, now, named: replace(state, superseded=0))

#: What each event changes; the effects apply one after the other.
TABLE: Final[Mapping[Event, Change]] = MappingProxyType(
    {
        Event.SHARDS_CHANGED: Change(
            (UNCLEAN, CHANGED_NOW, DEEP_WHEN_ALL_KNOW, ASKED, AT_ONCE, PAUSE_FIRST, GENERATION)
        ),
        Event.READINESS_CHANGED: Change((UNCLEAN, CHANGED_NOW, DEEP_WHEN_ALL_KNOW, ASKED, AT_ONCE, PAUSE_FIRST)),
        Event.SILENCE_ENDED: Change((UNCLEAN, CHANGED_NOW, DEEP_WHEN_ALL_KNOW, ASKED, AT_ONCE, PAUSE_FIRST, SILENCE)),
        Event.SILENCE_ENDED_AGAIN: Change((DEEP_LATER, SILENCE), only_if=lambda state: state.deep_at is None),
        Event.NAMESPACE_CHANGED: Change((ASKED, UNSURE, LATER)),
        Event.MOVING: Change((UNCLEAN, OWED)),
        Event.QUIET: Change((PAUSE_FIRST, DEEP_IN_TURN), only_if=lambda state: state.owed),
        Event.LEFT_OUT: Change((LEFT_OUT,)),
        Event.ROOM: Change((UNCLEAN, LEFT_OUT_ASKED, NONE_LEFT_OUT, DEEP_SOON), only_if=lambda state: state.left_out),
        Event.PERIOD_OVER: Change((DEEP_NOW,)),
        Event.NO_SHARD: Change((NONE_ASKED, NO_DEEP, NONE_LATER)),
        Event.SHALLOW_BEGINS: Change((NONE_ASKED,)),
        Event.DEEP_BEGINS: Change((NO_DEEP, NOT_OWED, NONE_ASKED, NONE_LEFT_OUT, NONE_AGAIN)),
        Event.DEEP_BEGINS_AMID: Change((NO_DEEP, NONE_ASKED, NONE_LEFT_OUT, NONE_AGAIN)),
        Event.SUPERSEDED: Change((ONE_MORE, ASKED)),
        Event.FAILED: Change((ASKED, AFTER_PAUSE, DEEP_WITHIN_PAUSE, PAUSE_DOUBLED)),
        Event.ENDED: Change((NONE_IN_A_ROW,)),
        Event.FOUND_IN_NAMESPACES: Change((UNCLEAN, SURE, AGAIN, DEEP_SOON)),
        Event.NAMESPACES_CLEAN: Change((SURE,)),
        Event.FOUND_SOME: Change((DEEP_WITHIN_PAUSE, PAUSE_DOUBLED)),
        Event.TOO_EARLY: Change((DEEP_WHEN_ALL_KNOW,)),
        Event.OBJECTS_WAIT: Change((OWED,)),
        Event.MORE_ASKED: Change(()),
        Event.FOUND_NOTHING: Change((CLEAN, PAUSE_FIRST)),
    }
)


@dataclass(frozen=True, slots=True)
class Round:
    """What is gone through at once, from `began` on (`amid` moves): everything if it is `deep`, and what is `asked`."""

    deep: bool
    asked: Asked
    generation: int
    began: float
    amid: bool = False


class _End(NamedTuple):
    state: ResyncState
    found: int
    began: float
    quiet: bool


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What the end of a deep pass means in a case for which no conclusion above this one holds."""

    words: str
    holds: Callable[[_End], bool]
    event: Event


#: Read from the top; the first that holds says how a deep pass has ended.
CONCLUSIONS: Final = (
    Conclusion("something was found or left out", lambda end: bool(end.found) or end.state.left_out, Event.FOUND_SOME),
    Conclusion(
        "it began before every replica knew the shards",
        lambda end: end.began < end.state.settles_at,
        Event.TOO_EARLY,
    ),
    Conclusion("objects wait", lambda end: not end.quiet, Event.OBJECTS_WAIT),
    Conclusion("objects have changed hands meanwhile", lambda end: end.state.owed, Event.QUIET),
    Conclusion(
        "another pass was asked for meanwhile",
        lambda end: end.state.deep_at is not None or end.state.asked.shallow,
        Event.MORE_ASKED,
    ),
    Conclusion("otherwise", lambda _: True, Event.FOUND_NOTHING),
)


def on(state: ResyncState, event: Event, now: float, named: Asked = NOTHING) -> ResyncState:
    """The state after `event`; `named`: the passes that it asks for, or that it concerns."""
    if event is Event.SILENCE_ENDED and now < state.silence_at:
        event = Event.SILENCE_ENDED_AGAIN
    change = TABLE[event]
    if change.only_if(state):
        for effect in change.effects:
            state = effect.of(state, now, named)
    return state


def compare(old: Membership, new: Membership) -> tuple[Event, Asked] | None:
    """What a change of the membership is to the passes; `None`: nothing.

    A shallow pass is asked for at once when a shard can take objects that it could not take, or is to give away what it
    has.  That a shard is silent sends elsewhere what nobody has; nothing else is different.
    """
    able, able_before = ({shard for shard in each.available if each.may_drain_to(shard)} for each in (new, old))
    the_same = (new.available, new.ready, new.staying) == (old.available, old.ready, old.staying)
    if the_same and able <= able_before:
        return None
    leave = (old.staying - new.staying) & new.available
    asked = Asked(shallow=bool(new.available - old.available or able - able_before or leave))
    if new.staying != old.staying:
        return Event.SHARDS_CHANGED, asked
    # Else the ring gives the same answers, and a pass under way stays good.
    silence = the_same and able - able_before <= old.silent - old.unsteady - old.unrenewed
    return Event.SILENCE_ENDED if silence else Event.READINESS_CHANGED, asked


def due(state: ResyncState, period_over_at: float) -> float:
    """When the next pass begins."""
    deep: tuple[float, ...] = () if state.deep_at is None else (state.deep_at,)
    moment = min((period_over_at, *deep, *(at for at, _ in state.later)))
    return min(moment, state.not_before) if state.asked != NOTHING else moment


def begin(state: ResyncState, now: float, *, moving: bool) -> tuple[ResyncState, Round]:
    """Begin what is due: a deep pass comes across what was left out, if there is room for that by now.

    With it go those over namespaces that are owed still: what was asked for while no shard was there is forgotten.
    `moving`: objects change hands just now.
    """
    deep = state.deep_at is not None and now >= state.deep_at
    more = state.left_out_of | state.again | state.unsure if deep else frozenset()
    known = frozenset(each for each in state.later if each[0] <= now)
    state = replace(state, later=state.later - known)
    asked = Asked(state.asked.shallow, state.asked.namespaces | more | {name for _, name in known})
    event = Event.DEEP_BEGINS_AMID if moving else Event.DEEP_BEGINS
    begun = on(state, event if deep else Event.SHALLOW_BEGINS, now)
    return begun, Round(deep, asked, state.generation, now, moving)


def conclude(state: ResyncState, passed: Round, found: int, now: float, *, quiet: bool) -> ResyncState:
    """The state after passes that went through everything, and `found` so many; `quiet`: nothing waits."""
    state = on(state, Event.ENDED, now)
    if passed.asked.namespaces:
        event = Event.FOUND_IN_NAMESPACES if found else Event.NAMESPACES_CLEAN
        state = on(state, event, now, Asked(namespaces=passed.asked.namespaces))
    if not passed.deep or passed.generation != state.generation:
        return state
    end = _End(state, found, passed.began, quiet)
    event = next(each for each in CONCLUSIONS if each.holds(end)).event
    # Amid moves not before one has rested since the shards changed: what that sets moving does not wait.
    rests = event in (Event.QUIET, Event.FOUND_NOTHING) and not passed.amid
    if rests or (event in (Event.QUIET, Event.OBJECTS_WAIT) and state.rests_until != NEVER):
        state = replace(state, rests_until=now + min(RESTS * (now - passed.began), RETRY_SECONDS[1]))
    return on(state, event, now)


def _due_at(state: ResyncState, moment: float) -> ResyncState:
    return replace(state, deep_at=moment if state.deep_at is None else min(state.deep_at, moment))


def is_superseded(state: ResyncState, generation: int) -> bool:
    """Whether a pass that began with this generation of shards is to end early."""
    return generation != state.generation and state.superseded < MAX_SUPERSEDED


def is_settled(state: ResyncState, *, quiet: bool) -> bool:
    """Whether every object is where it should be; `quiet`: nothing waits."""
    return state.nothing_found and quiet

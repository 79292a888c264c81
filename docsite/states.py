"""States, decisions and outcomes as tables: the words of the code, and what each means.

The states' rows are what `classify` says of leases made for the purpose, so a
change of its rules changes the page.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sharder.core.admission import AnswerOutcome
from sharder.core.decisions import Decision, Reason
from sharder.core.shards import LeaseFacts, Proof, State, classify
from sharder.webhook.app import Trouble

#: E, D and the moments that matter, in seconds: a lease of 15 s seen at 0 runs out at 15.
_DURATION: Final = 15
_MOMENTS: Final = {
    0.0: "before it runs out",
    15.0: "up to one duration after it ran out",
    30.0: "one duration and more after it ran out",
    75.0: "60 s and more after it ran out",
}
_DOES: Final[Mapping[State, str]] = {
    State.READY: "nothing; looks again when the lease runs out",
    State.EXPIRED: "nothing yet, but drains nothing toward it; looks again one duration later",
    State.UNCERTAIN: "acquires the lease itself, which proves that the API server takes writes",
    State.DEAD: "moves its objects at once, without drain, while it holds the lease itself",
    State.ORPHANED: "deletes the lease, once no object carries the shard's name",
}
_OUTCOMES: Final[Mapping[AnswerOutcome, str]] = {
    AnswerOutcome.ASSIGNED: "labelled with a shard",
    AnswerOutcome.RESTORED: "a shard label that was removed without drain, or replaced by hand, was put back, and so"
    " was one that a manifest without labels took from a draining object",
    AnswerOutcome.NOT_ACKNOWLEDGED: "a write took the shard label off a draining object and was no acknowledgement (it"
    " left the drain label, or changed more): labels were put back, the object drains on, and its writer got a warning",
    AnswerOutcome.ALREADY_LABELLED: "carries a shard label; nothing to do",
    AnswerOutcome.LEFT_TO_PLACEMENT: "an owner whose children move first; the leader places it",
    AnswerOutcome.OWNER_UNASSIGNED: "its owner has no shard yet; it will follow",
    AnswerOutcome.NO_SHARD: "no shard is available",
    AnswerOutcome.STALE: "this replica has heard nothing of leases or rings for too long to decide",
    AnswerOutcome.ANOTHER_KIND: "its resource was taken away and made again as another kind, or in another scope; the"
    " ring is looked up again at once",
    AnswerOutcome.NOT_OURS: "not of the ring, or controlled by nothing in it",
    AnswerOutcome.MALFORMED: "the request cannot be read as an admission review",
}
_TROUBLES: Final[Mapping[Trouble, str]] = {
    Trouble.UNKNOWN_RING: "no ring of that name is known here (yet, or any more)",
    Trouble.MALFORMED: "the request cannot be read as an admission review",
    Trouble.OWNER_UNREAD: "its owner could not be read in time",
    Trouble.FAILED: "an error in the sharder; its log has the stack",
    Trouble.TOO_LARGE: "the request is larger than any object that can be stored",
    Trouble.TOO_MUCH: "too many large requests at the same time",
    Trouble.TOO_SLOW: "the request did not arrive in time",
    Trouble.GONE: "the caller went away before the answer",
}


def render_states() -> str:
    """The state of a shard by what its lease says, for shards with and without fence."""
    lines = ["| lease | when | state | with fence | available | the sharder |", "|---|---|---|---|---|---|"]
    for held in (True, False):
        for moment, when in _MOMENTS.items():
            state, fenced = (_state(moment, held=held, fenced=each) for each in (False, True))
            previous = _state(moment - _DURATION, held=held, fenced=False) if moment else None
            if state is previous:
                continue
            holder = "held by its shard" if held else "released, or held by anyone else"
            available = "yes" if state.available else "no"
            words = "at any time until 60 s after it ran out" if state is State.DEAD else when
            row = (holder, words, f"`{state.value}`", f"`{fenced.value}`", available, _DOES[state])
            lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def _state(moment: float, *, held: bool, fenced: bool) -> State:
    facts = LeaseFacts("default", "a", "a" if held else "", _DURATION, fenced, 0.0, not held)
    return classify(facts, Proof(0.0, moment)).state


def render_decisions() -> str:
    """Every decision in words, and every reason."""
    lines = ["| decision | meaning |", "|---|---|"]
    lines += [f"| {decision.name} | {decision.value} |" for decision in Decision]
    lines += ["", "| reason | meaning |", "|---|---|"]
    lines += [f"| `{reason.value}` | {reason.words[0].upper()}{reason.words[1:]}. |" for reason in Reason]
    return "\n".join(lines)


def render_outcomes() -> str:
    """The webhook's outcomes, as its metric counts them."""
    lines = ["| outcome | meaning |", "|---|---|"]
    lines += [f"| `{outcome.value}` | {_OUTCOMES[outcome]} |" for outcome in AnswerOutcome]
    answered = {outcome.value for outcome in AnswerOutcome}
    lines += [f"| `{each.value}` | {_TROUBLES[each]} |" for each in Trouble if each.value not in answered]
    return "\n".join(lines)

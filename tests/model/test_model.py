"""No state of the protocol has two owners, and each planted fault is found; `make model` tries the larger ones, too."""

from __future__ import annotations

import pytest

from tests.model.flaws import Flaw, is_safe
from tests.model.page import PAGE, render_cells, render_way
from tests.model.search import search, stuck_states

#: With edits by hand there are twice as many states: those that say the most.
_EDITED = (Flaw.NONE, Flaw.LOOKS_AT_NOBODY, Flaw.NOBODY_LOOKS)


@pytest.mark.parametrize("flaw", Flaw, ids=lambda flaw: flaw.name)
def test_two_owners_are_found_where_a_rule_is_broken_and_no_net_left(flaw: Flaw) -> None:
    outcome = search(flaw, edited=False)
    assert bool(outcome.violation) != is_safe(flaw, edited=False), outcome
    row = f"| {flaw.value} | {' | '.join(render_cells(outcome))} |"
    page = PAGE.read_text()
    assert row in page, "run `make model`"
    assert render_way(outcome.violation) in page, "run `make model`"


@pytest.mark.parametrize("flaw", _EDITED, ids=lambda flaw: flaw.name)
def test_whatever_somebody_writes_by_hand_the_shards_own_look_keeps_two_owners_away(flaw: Flaw) -> None:
    outcome = search(flaw, edited=True)
    assert bool(outcome.violation) != is_safe(flaw, edited=True), outcome
    assert f"| {' | '.join(render_cells(outcome))} |\n" in PAGE.read_text(), "run `make model`"


def test_from_every_state_a_shard_can_come_to_work() -> None:
    assert stuck_states() == 0


def test_ranges_that_would_wait_for_ever_are_found() -> None:
    assert stuck_states(never="sharder") > 0


def test_every_flaw_is_on_the_page() -> None:
    page = PAGE.read_text()
    assert not [flaw for flaw in Flaw if f"| {flaw.value} |" not in page]

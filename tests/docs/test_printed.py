"""What the documentation says of the code is what the code says; `make docs` prints it anew."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docsite import conditions, messages, meters, states
from docsite.pages import DOCS
from docsite.printed import PRINTERS, print_page
from sharder.core.admission import AnswerOutcome
from sharder.core.conditions import ConditionType
from sharder.core.decisions import Decision, Reason
from sharder.core.shards import State
from sharder.webhook.app import Trouble

PAGES = sorted(DOCS.rglob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_page_holds_what_the_code_prints(page: Path) -> None:
    text = page.read_text()
    assert print_page(text) == text, "run `make docs`"


def test_everything_that_can_be_printed_is_on_a_page() -> None:
    text = "".join(page.read_text() for page in PAGES)
    assert not [name for name in PRINTERS if f"<!-- printed: {name} -->" not in text]


def test_every_word_of_the_core_is_explained() -> None:
    concepts, outcomes = (states.render_states() + states.render_decisions()), states.render_outcomes()

    assert all(f"`{state.value}`" in concepts for state in State)
    assert all(f"| {decision.name} |" in concepts for decision in Decision)
    assert all(f"`{reason.value}`" in concepts for reason in Reason)
    assert all(f"`{each.value}`" in outcomes for each in (*AnswerOutcome, *Trouble))
    assert all(f"`{each.value}`" in conditions.render_rings() for each in ConditionType)
    assert not conditions.reasons_without_example(), "have docsite/conditions.py show it"


def test_every_metric_has_a_meaning_and_a_unit() -> None:
    families = (*meters.sharder_families(), *meters.shardsdk_families())

    assert {"controller_sharding_shards", "shardsdk_lease_remaining_seconds"} <= {each.name for each in families}
    assert not [family.name for family in families if len(family.documentation) < 10]
    assert {meters.unit_of(family.name, family.documentation) for family in families} == {
        "seconds", "bytes", "Unix time in seconds", "always 1", "0 or 1", "ratio", "count",
    }  # fmt: skip


def test_what_is_1_while_something_holds_is_no_count() -> None:
    families = (*meters.sharder_families(), *meters.shardsdk_families())
    units = {each.name: meters.unit_of(each.name, each.documentation) for each in families}
    switches = {each.name for each in families if re.search(r"\b1 (while|where|on)\b|^Whether", each.documentation)}

    assert {"shardsdk_other_form_awaited", "shardsdk_watches_filtered_by_server"} <= switches
    assert switches == {name for name, unit in units.items() if unit == "0 or 1"}


@pytest.mark.parametrize(
    ("name", "meaning", "unit"),
    [
        ("controller_sharding_oldest_drain_age_seconds", "", "seconds"),
        ("controller_runtime_reconcile_time_seconds", "", "seconds"),
        ("process_cpu_seconds_total", "", "seconds"),
        ("process_start_time_seconds", "", "Unix time in seconds"),
        ("controller_sharding_webhook_certificate_expiry_timestamp_seconds", "", "Unix time in seconds"),
        ("process_resident_memory_bytes", "", "bytes"),
        ("controller_sharding_fullest_shard_ratio", "", "ratio"),
        ("controller_sharding_ring_condition", "1 where a condition holds", "0 or 1"),
        ("controller_sharding_movements_total", "Labels given", "count"),
    ],
)
def test_unit_follows_from_name_and_meaning(name: str, meaning: str, unit: str) -> None:
    assert meters.unit_of(name, meaning) == unit


def test_a_gauge_is_found_however_its_name_and_meaning_are_passed() -> None:
    source = "m.gauge('a', 'b', f)\nm.gauge('c', documentation='d', read=f)\nm.gauge(documentation='f', name='e')"
    assert list(meters.gauges_in(source, "here")) == [("a", "b"), ("c", "d"), ("e", "f")]
    with pytest.raises(ValueError, match=r"^here:1: .*written out"):
        list(meters.gauges_in("m.gauge(name, 'b', f)", "here"))


def test_every_warning_and_error_is_explained() -> None:
    assert messages.explained() == messages.logged(), "bring docs/messages.md up to the log calls"

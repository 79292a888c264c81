"""What objects hold is shown on a terminal and not obeyed by it: nothing steers it, turns text, or forges lines."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
from datetime import UTC, datetime

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sharder.core.membership import Membership
from sharder.core.ringspec import Role
from sharder.failures import Failure
from sharder.kubectl.check.command import Section, render_section
from sharder.kubectl.check.findings import Finding, Level
from sharder.kubectl.cleanup.command import render_swept
from sharder.kubectl.cleanup.sweep import Swept
from sharder.kubectl.counting import Trouble
from sharder.kubectl.documents import render_document
from sharder.kubectl.explain.text import render_stray
from sharder.kubectl.outcomes import Unread
from sharder.kubectl.session import Session
from sharder.kubectl.shards import read_shard_status
from sharder.kubectl.status.overview import Condition, Overview, ResourceCount
from sharder.kubectl.status.text import render_overview
from sharder.kubectl.text import Painter, Tone
from shardsdk.kube.clock import SystemClock
from shardsdk.logs import JsonFormatter, TextFormatter
from shardsdk.protocol.labels import LEASE_STATE_LABEL
from shardsdk.protocol.leases import Lease, LeaseSpec
from shardsdk.protocol.objects import GroupResource, ObjectMeta, Resource
from tests.fuzz.hostile_values import examples

PLAIN, COLOURS = Painter(False), Painter(True)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
#: What terminals do with these: clear the screen, set the title, answer as if typed, go back, turn and hide text.
steering = st.sampled_from(
    ["\x1b[2J", "\x1b]0;x\x07", "\x1b[6n", "\x1bP$q\x1b\\", "\r", "\n", "\b", "\x9b2J", "\x7f", "\u202e", "\u2066",
     "\u200b", "\ufeff", "\u2028", "\x85", "\x1b[32m✓ ready\x1b[0m", "\x1b[8m", "\U000e0041", "\ud800"]
)  # fmt: skip
hostile = st.lists(steering | st.text(max_size=4), min_size=1, max_size=5).map("".join).filter(bool)


def harmless(text: str) -> bool:
    return text.isprintable()


def said(lines: list[str], painter: Painter) -> str:
    out = io.StringIO()
    Session(None, SystemClock(), out, painter).say(*lines)  # type: ignore[arg-type]
    return out.getvalue()


def words(line: str) -> list[str]:
    """Without the bars, which are there with colours only."""
    return re.sub("[▏▎▍▌▋▊▉█]", "", line).split()


def judge(lines: list[str], painted: list[str]) -> None:
    """`lines` without colours, `painted` the same with them."""
    assert [line for line in lines if not harmless(line)] == []
    # Colours are the painter's: without what it has put around pieces, the same is left.
    assert [words(re.sub(r"\x1b\[\d{1,2}m", "", line)) for line in painted] == [words(line) for line in lines]
    for tone in (PLAIN, COLOURS):
        assert len(said(painted, tone).splitlines()) == len(painted)


@given(hostile)
@examples(60)
def test_status_shows_what_leases_and_conditions_hold(text: str) -> None:
    spec = LeaseSpec(holder_identity=text, lease_duration_seconds=15, renew_time=text, acquire_time=text)
    old = LeaseSpec(holder_identity=text, lease_duration_seconds=1, renew_time="2020-01-01T00:00:00.000000Z")
    labels = {LEASE_STATE_LABEL: "ready"}
    shards = tuple(read_shard_status(Lease(ObjectMeta(name=text, namespace=text, labels=labels), each), NOW)
                   for each in (spec, old))  # fmt: skip
    counted = ResourceCount(
        GroupResource(text, text), Role.CONTROLLED, False, {text: 1, "other": 2}, {text: 1}, 1, 1, None, 1, 1,
        dict.fromkeys(Trouble, (text,)),
    )  # fmt: skip
    conditions = tuple(Condition(text, status, text, text, 1.0) for status in (True, False, None))
    gaps = (Unread(text, text, text),)
    made = Overview("websites", True, conditions, True, (text,), text, shards, Membership(), (counted,), gaps, text)
    judge(render_overview(made, PLAIN, wide=True), render_overview(made, COLOURS, wide=True))


@given(hostile)
@examples(60)
def test_check_cleanup_and_explain_show_what_they_found(text: str) -> None:
    def lines(painter: Painter) -> list[str]:
        section = Section(text, tuple(Finding(text, level, text, text) for level in Level))
        swept = Swept(
            Resource(text, "v1", text, text), left=2, refused={text: 1}, messages={text: text}, examples=[text]
        )
        return [
            *render_section(section, painter, quiet=False),
            *render_swept(swept, painter),
            *render_stray(text, text, painter),
            painter.paint(text, Tone.BAD),
        ]

    judge(lines(PLAIN), lines(COLOURS))


@given(hostile)
@examples(60)
def test_documents_hold_it_all_the_same(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:  # no answer of an API server can hold half a character
        return
    for compact in (True, False):
        as_json, as_yaml = (render_document({"a": [text], text: 1}, form, compact=compact) for form in ("json", "yaml"))
        assert harmless(as_json.replace("\n", ""))
        assert harmless(as_yaml.replace("\n", ""))
        assert json.loads(as_json) == {"a": [text], text: 1}
        assert yaml.safe_load(as_yaml) == {"a": [text], text: 1}


@given(hostile)
@examples(60)
def test_errors_are_one_line_each(text: str) -> None:
    out = io.StringIO()
    Failure((text,), misused=False).tell("sharder", out)
    assert harmless(out.getvalue().removesuffix("\n"))


def record(text: str, *, stack: bool) -> logging.LogRecord:
    try:
        raise RuntimeError(text)
    except RuntimeError:
        caught = sys.exc_info()
    made = logging.LogRecord("a", logging.ERROR, "a.py", 1, "said %s", (text,), caught if stack else None)
    made.__dict__.update(error=text, object=text)
    return made


@given(hostile, st.booleans())
@examples(100)
def test_log_lines_hold_no_other_lines_and_steer_nothing(text: str, stack: bool) -> None:
    first, *more = TextFormatter().format(record(text, stack=stack)).split("\n")
    assert harmless(first)
    assert all(harmless(line) for line in more)
    # Whatever an error says, its lines do not begin as a line of the log does.
    assert all(line.startswith("  ") for line in more)
    assert bool(more) == stack
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    line = JsonFormatter().format(record(text, stack=stack))
    assert harmless(line)
    assert json.loads(line)["object"] == text


@pytest.mark.parametrize("text", ["plain", "Grüße", "日本", "✓ …"])
def test_what_people_write_stays_as_it_is(text: str) -> None:
    assert said([text], PLAIN) == f"{text}\n"
    assert COLOURS.paint(text, Tone.GOOD) == f"\x1b[32m{text}\x1b[0m"
    assert render_document([text], "yaml") == f"- {text}\n"


@pytest.mark.parametrize("text", ["y", "N", "1e3", "4212e67", "0x1f", "1_000"])
def test_what_parsers_in_go_take_for_something_else_is_quoted(text: str) -> None:
    """A ring, a shard or a namespace may be called so."""
    assert render_document({"name": text}, "yaml") == f"name: '{text}'\n"


@pytest.mark.parametrize("text", ["✗: ✓", "x → y", "節 \U0001f600", "…"])
@pytest.mark.parametrize("compact", [False, True])
def test_documents_say_the_same_where_signs_cannot_be_printed(text: str, compact: bool) -> None:
    for form in ("json", "yaml"):
        printed = render_document({text: [text]}, form, compact=compact, ascii_only=True)
        assert printed.isascii()
        assert (json.loads if form == "json" else yaml.safe_load)(printed) == {text: [text]}

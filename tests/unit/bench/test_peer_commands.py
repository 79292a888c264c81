"""Commands of sharders that the bench is given: what is refused, and what is said when one does not do its part."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.peer import PLACEHOLDERS, Command, PeerError, Scene, Size
from bench.shards import Owners
from localcluster.errors import ComponentFailed
from localcluster.installation import Process
from localcluster.process import Supervisor

ALL = "{kubeconfig} {certdir} {port}"


def test_placeholders_are_filled_wherever_they_stand_and_braces_stay() -> None:
    command = Command.parse("/bin/sh --kubeconfig={kubeconfig} '{certdir}/tls.crt' :{port} '{{x}}' a\\ b")
    filled = command.filled(Path("/k"), Path("/c"), 7)
    assert filled == ["/bin/sh", "--kubeconfig=/k", "/c/tls.crt", ":7", "{x}", "a b"]


@given(st.lists(st.text(st.characters(exclude_characters="{}\0", exclude_categories=["Cs"]))))
def test_words_without_placeholders_arrive_as_they_are(words: list[str]) -> None:
    command = Command.parse(shlex.join(["/bin/sh", *words]) + " " + ALL)
    assert command.filled(Path("/k"), Path("/c"), 7) == ["/bin/sh", *words, "/k", "/c", "7"]


@pytest.mark.parametrize("missing", PLACEHOLDERS)
def test_a_placeholder_that_is_missing_is_named(missing: str) -> None:
    text = "/bin/sh " + ALL.replace(f"{{{missing}}}", "")
    with pytest.raises(PeerError, match=rf"\{{{missing}\}} is missing"):
        Command.parse(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"/bin/sh {ALL} {{cert}}", r"\{cert\} is unknown; there are \{kubeconfig\}, \{certdir\}, \{port\}"),
        (f"/bin/sh {ALL} {{port.x}}", "is unknown"),
        (f"/bin/sh {ALL} {{}}", "is unknown"),
        (f"/bin/sh {ALL} {{port:d}}", "write placeholders as in"),
        (f"/bin/sh {ALL} {{", "write {{{{ for a brace".replace("{{{{", r"\{\{")),
        (f"/bin/sh '{ALL}", "close each quote"),
        (f"no-such-sharder {ALL}", "no program 'no-such-sharder'; name it by its absolute path"),
        ("", "is missing"),
    ],
)
def test_what_cannot_be_run_is_refused_with_what_to_do(text: str, said: str) -> None:
    with pytest.raises(PeerError, match=said):
        Command.parse(text)


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    supervisor = Supervisor()
    yield supervisor
    supervisor.close()


def scene(process: Process) -> Scene:
    nobody = cast(Any, None)
    return Scene("peer", Size(1), process, nobody, Owners(nobody, "ring", "namespace"), {}, print)


async def test_a_command_that_ends_is_told_from_one_that_never_places(supervisor: Supervisor) -> None:
    ends = Process("ends", ["/bin/sh", "-c", "echo no configuration >&2; exit 3"], supervisor)
    ends.start()
    with pytest.raises(ComponentFailed, match=r"(?s)ended before it was ready: .* foreground.*no configuration"):
        await scene(ends).until("it was ready", lambda: False, 60)
    waits = Process("waits", [sys.executable, "-c", "import signal; signal.pause()"], supervisor)
    waits.start()
    with pytest.raises(ComponentFailed, match=r"waits took more than 0\.01 s until it was ready"):
        await scene(waits).until("it was ready", lambda: False, 0.01)
    assert waits.running

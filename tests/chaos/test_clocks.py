"""Wrong clocks take a library that is built; tests/node/test_clocks.py has what it does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos import clocks
from tests.chaos.clocks import built, clocks_environment


def test_a_right_clock_takes_nothing() -> None:
    assert clocks_environment(0.0, 1.0) == {}


def test_where_it_cannot_be_built_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(clocks, "_COMPILERS", ("no-such-compiler",))
    with pytest.raises(LookupError, match="apt-get install gcc"):
        built(tmp_path)

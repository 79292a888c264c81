"""Whatever a test is about, nothing fails meanwhile by a fault of ours: it would be tried again, and go unnoticed."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def no_fault_of_ours(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """A test that means to have some clears `caplog` at its end."""
    yield
    faults = [each for each in caplog.get_records("call") if each.levelno >= logging.ERROR and each.exc_info]
    assert [each.getMessage() for each in faults] == []

from __future__ import annotations

import gc

import pytest


@pytest.fixture(scope="module", autouse=True)
def leftovers_collected() -> None:
    """What other tests left behind is destroyed before these listen for errors: a pending task says so in the log."""
    gc.collect()

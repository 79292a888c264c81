"""Surroundings that have nothing of this machine's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shardsdk.commands import explain as command
from tests.own_logging import own_logging
from tests.ports import free_port
from tests.walking import runtime_directory

__all__ = ["own_logging"]  # applies to all tests of this folder


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Nothing of this machine's own: neither its processes nor its clusters."""
    monkeypatch.setattr(command, "HEALTH_PORT", free_port())
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nowhere"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime_directory(tmp_path)))
    return dict(os.environ)

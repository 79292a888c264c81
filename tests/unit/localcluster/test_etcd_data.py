"""What an API server made once is copied for those after it, without the room that etcd keeps for its log."""

from __future__ import annotations

import filecmp
from pathlib import Path

import pytest

from localcluster.binaries import Binaries
from localcluster.etcd_data import begin_with_kept, keep, kept_data

_LOG_BYTES = 8_000_000


def _binaries(*etcd: str) -> Binaries:
    return Binaries(etcd, ("kube-apiserver",), ("kube-controller-manager",), ("kubectl",), "a test")


@pytest.fixture
def ended(tmp_path: Path) -> Path:
    """The folder of an etcd: of its log only the beginning is written, and something in the middle."""
    folder = tmp_path / "etcd"
    (folder / "member").mkdir(parents=True)
    (folder / "member" / "db").write_bytes(b"objects")
    with open(folder / "member" / "log", "wb") as log:
        log.write(b"entries")
        log.seek(_LOG_BYTES // 2)
        log.write(b"more")
        log.write(bytes(_LOG_BYTES - log.tell()))
    return folder


def test_copies_are_the_same_and_take_no_room_for_nothing(ended: Path, tmp_path: Path) -> None:
    binaries = _binaries(str(tmp_path / "controlplane"), "etcd")
    kept = kept_data(binaries)
    assert kept is not None
    keep(ended, kept)
    begin_with_kept(binaries, tmp_path / "second")
    for folder in (kept, tmp_path / "second"):
        same, different, failed = filecmp.cmpfiles(ended, folder, ["member/db", "member/log"], shallow=False)
        assert (len(same), different, failed) == (2, [], [])
        assert (folder / "member" / "log").stat().st_blocks * 512 < _LOG_BYTES / 10


def test_who_keeps_them_second_leaves_the_first(ended: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    keep(ended, kept)
    (ended / "member" / "db").write_bytes(b"others")
    keep(ended, kept)
    assert (kept / "member" / "db").read_bytes() == b"objects"
    assert sorted(tmp_path.iterdir()) == [ended, kept], "nothing is left behind"


def test_without_any_an_etcd_begins_with_nothing(tmp_path: Path) -> None:
    begin_with_kept(_binaries(str(tmp_path / "controlplane"), "etcd"), tmp_path / "etcd")
    begin_with_kept(_binaries(str(tmp_path / "etcd-program")), tmp_path / "etcd")
    assert list(tmp_path.iterdir()) == []


def test_programs_of_somebody_elses_have_none() -> None:
    assert kept_data(_binaries("/opt/etcd")) is None

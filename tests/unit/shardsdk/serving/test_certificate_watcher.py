from __future__ import annotations

import asyncio
import logging
import tempfile
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from shardsdk.serving.certificate_spec import Lifetimes, ServingNames
from shardsdk.serving.certificate_watcher import Directory, find_default_directory
from shardsdk.serving.renewal import make_stored
from shardsdk.serving.x509_messages import Answer, Question
from shardsdk.serving.x509_process import ask_here
from tests.unit.shardsdk.serving.manual_clock import START, ManualClock

POLL = timedelta(seconds=5)


def write_pair(directory: Path, now: datetime = START, life: timedelta = timedelta(days=90)) -> tuple[bytes, bytes]:
    serving = make_stored(ServingNames.of(["localhost"]), now, Lifetimes(serving=life)).serving
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "tls.crt").write_bytes(serving.certificate.pem)
    (directory / "tls.key").write_bytes(serving.key)
    return serving.certificate.pem, serving.key


async def test_a_pair_is_loaded_and_its_authority_is_not_injected(tmp_path: Path) -> None:
    certificate, key = write_pair(tmp_path)
    source = Directory(tmp_path, clock=ManualClock())
    await source.refresh()
    assert source.published.pair is not None
    assert (source.published.pair.certificate, source.published.pair.key) == (certificate, key)
    assert source.published.ca_bundle is None


@pytest.mark.parametrize(
    ("away", "level"), [(timedelta(0), None), (timedelta(days=-2), "WARNING"), (timedelta(days=9000), "ERROR")]
)
async def test_a_certificate_that_is_not_valid_now_is_served_and_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, away: timedelta, level: str | None
) -> None:
    write_pair(tmp_path)
    source = Directory(tmp_path, clock=ManualClock(away.total_seconds()))
    await source.refresh()
    await source.refresh()
    assert source.published.pair is not None
    told = [(each.levelname, each.msg) for each in caplog.records if each.levelno > logging.INFO]
    assert told == ([(level, "webhook certificate is not valid now")] if level else [])


async def test_one_that_nobody_renews_is_told_of_each_day_until_somebody_does(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    write_pair(tmp_path)
    source = Directory(tmp_path, clock=clock)
    told: list[tuple[int, tuple[str, str]]] = []
    for hours in range(0, 24 * 93, 6):
        caplog.clear()
        await source.refresh()
        told += [(hours // 24, (each.levelname, each.msg)) for each in caplog.records if each.levelno > logging.INFO]
        clock.jump(timedelta(hours=6))
    soon, ended = ("WARNING", "webhook certificate expires soon"), ("ERROR", "webhook certificate is not valid now")
    assert told == [*((day, soon) for day in range(83, 90)), *((day, ended) for day in range(90, 93))]

    caplog.clear()
    write_pair(tmp_path, clock.now())
    await source.refresh()
    assert [each.levelname for each in caplog.records if each.levelno > logging.INFO] == []


async def test_one_that_lives_for_hours_is_told_of_in_the_last_tenth_of_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    write_pair(tmp_path, life=timedelta(hours=100))
    source = Directory(tmp_path, clock=clock)
    told = []
    for hour in range(101):
        caplog.clear()
        await source.refresh()
        told += [hour for each in caplog.records if each.levelno > logging.INFO]
        clock.jump(timedelta(hours=1))
    assert told == [90, 100]


async def test_other_file_names_are_taken(tmp_path: Path) -> None:
    write_pair(tmp_path)
    (tmp_path / "tls.crt").rename(tmp_path / "cert.pem")
    (tmp_path / "tls.key").rename(tmp_path / "key.pem")
    source = Directory(tmp_path, clock=ManualClock(), certificate_name="cert.pem", key_name="key.pem")
    await source.refresh()
    assert source.published.loaded.is_set()


async def test_a_mismatched_pair_is_looked_into_once_and_that_it_is_mended_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """To look into one takes a process of its own."""
    caplog.set_level("INFO")
    asked, loaded = list[object](), list[bool]()

    async def ask(question: Question) -> Answer:
        asked.append(question)
        return await ask_here(question)

    good = write_pair(tmp_path)
    source = Directory(tmp_path, clock=ManualClock(), ask=ask, on_load=loaded.append)
    await source.refresh()
    write_pair(tmp_path)
    (tmp_path / "tls.key").write_bytes(good[1])
    for _ in range(12):
        await source.refresh()
    assert len(asked) == 2
    (tmp_path / "tls.crt").write_bytes(good[0])
    await source.refresh()
    await source.refresh()
    assert source.published.failure is None
    assert loaded == [True, False, True]
    assert [each.msg for each in caplog.records].count("webhook certificate loaded") == 2


async def test_an_encrypted_key_is_refused_without_asking_anybody(tmp_path: Path) -> None:
    write_pair(tmp_path)
    key = serialization.load_pem_private_key((tmp_path / "tls.key").read_bytes(), None)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
    (tmp_path / "tls.key").write_bytes(key.private_bytes(*form, serialization.BestAvailableEncryption(b"secret")))
    source = Directory(tmp_path, clock=ManualClock())
    await source.refresh()
    assert "is encrypted; store it without a password" in str(source.published.failure)


async def test_a_mismatched_pair_changes_nothing_and_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loads: list[bool] = []
    write_pair(tmp_path)
    source = Directory(tmp_path, clock=ManualClock(), on_load=loads.append)
    await source.refresh()
    good = source.published.pair
    write_pair(tmp_path / "other")
    (tmp_path / "tls.key").write_bytes((tmp_path / "other" / "tls.key").read_bytes())
    await source.refresh()
    await source.refresh()
    assert source.published.pair is good
    assert "do not fit together" in str(source.published.failure)
    assert caplog.messages.count("webhook certificate not loaded") == 1
    (tmp_path / "tls.crt").write_bytes((tmp_path / "other" / "tls.crt").read_bytes())
    await source.refresh()
    assert source.published.pair != good
    assert source.published.failure is None
    assert loads == [True, False, True]


@pytest.mark.parametrize("content", [None, b"", b"\x00\xff garbage", b"x" * (2 << 20)])
@pytest.mark.parametrize("name", ["tls.crt", "tls.key"])
async def test_an_unreadable_file_is_named(tmp_path: Path, name: str, content: bytes | None) -> None:
    write_pair(tmp_path)
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(content)
    source = Directory(tmp_path, clock=ManualClock())
    await source.refresh()
    assert not source.published.loaded.is_set()
    assert name in str(source.published.failure)


async def test_what_is_wrong_with_two_empty_files_is_said(tmp_path: Path) -> None:
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).write_bytes(b"")
    source = Directory(tmp_path, clock=ManualClock())
    await source.refresh()
    assert "the serving certificate is not readable" in str(source.published.failure)


async def test_the_symlink_swap_of_a_mounted_secret_is_followed(tmp_path: Path) -> None:
    clock = ManualClock()
    write_pair(tmp_path / "..first")
    (tmp_path / "..data").symlink_to("..first")
    (tmp_path / "tls.crt").symlink_to("..data/tls.crt")
    (tmp_path / "tls.key").symlink_to("..data/tls.key")
    source = Directory(tmp_path, clock=clock)
    running = asyncio.create_task(source.run())
    await clock.asleep()
    certificate, _ = write_pair(tmp_path / "..second")
    (tmp_path / "..swap").symlink_to("..second")
    (tmp_path / "..swap").rename(tmp_path / "..data")
    await clock.pass_by(POLL)
    assert source.published.pair is not None
    assert source.published.pair.certificate == certificate
    running.cancel()


async def test_files_that_appear_later_are_taken(tmp_path: Path) -> None:
    clock = ManualClock()
    source = Directory(tmp_path / "certs", clock=clock)
    running = asyncio.create_task(source.run())
    await clock.asleep()
    assert not source.published.loaded.is_set()
    write_pair(tmp_path / "certs")
    await clock.pass_by(POLL)
    assert source.published.loaded.is_set()
    running.cancel()


def test_without_a_directory_for_temporary_files_there_is_no_default_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/absent"])
    assert find_default_directory() is None


def test_the_default_directory_counts_only_when_it_holds_a_pair(tmp_path: Path) -> None:
    assert find_default_directory(temporary=tmp_path) is None
    directory = tmp_path / "k8s-webhook-server" / "serving-certs"
    write_pair(directory)
    assert find_default_directory(temporary=tmp_path) == directory
    (directory / "tls.key").unlink()
    assert find_default_directory(temporary=tmp_path) is None

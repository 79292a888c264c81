from __future__ import annotations

import shutil
import subprocess
import sys
import zipapp
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

import shardsdk
from shardsdk.serving import x509_process as apart
from shardsdk.serving import x509_worker
from shardsdk.serving.certificate_spec import Lifetimes, ServingNames
from shardsdk.serving.x509_messages import Judgement, JudgeSecret, ReadValidity, Refused, Validity
from shardsdk.serving.x509_process import Ask, CertificateWorkFailed, ask_apart, ask_here

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NAMES = ServingNames.of(["sharder.sharding-system.svc", "127.0.0.1"])
BOTH = pytest.mark.parametrize("ask", [ask_here, ask_apart])


@BOTH
async def test_what_one_made_the_other_finds_good(ask: Ask) -> None:
    other = ask_apart if ask is ask_here else ask_here
    made = await ask(JudgeSecret(None, NAMES, NOW, Lifetimes()))
    assert isinstance(made, Judgement)
    assert made.reason
    judged = await other(JudgeSecret(made.data, NAMES, NOW, Lifetimes()))
    assert isinstance(judged, Judgement)
    assert (judged.reason, judged.problem, judged.data) == (None, None, made.data)
    assert judged.expires_at == NOW + Lifetimes().serving
    validity = await other(ReadValidity(made.certificate))
    assert isinstance(validity, Validity)
    assert validity.begins_at < NOW < validity.expires_at == made.expires_at


async def test_a_secret_that_the_library_trips_over_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it raises about somebody's certificates is not known beforehand."""

    def trip(data: object) -> None:
        raise x509.DuplicateExtension("there are two", x509.SubjectAlternativeName.oid)

    monkeypatch.setattr(x509_worker, "parse_stored", trip)
    refused = await ask_here(JudgeSecret({"ca.crt": b"x"}, NAMES, NOW, Lifetimes()))
    assert isinstance(refused, Refused)
    assert "DuplicateExtension: there are two" in refused.message
    assert "delete the Secret" in refused.message


@BOTH
async def test_what_cannot_be_read_is_refused_in_words(ask: Ask) -> None:
    refused = await ask(ReadValidity(b"garbage"))
    assert isinstance(refused, Refused)
    assert "not a PEM certificate" in refused.message


async def test_nothing_is_due_before_it_is_said_to_be() -> None:
    """So that whoever keeps a judgement until then misses nothing; through two rotations of the authority."""
    now, data, steps = NOW, None, 0
    while now < NOW + timedelta(days=800):
        judged = await ask_here(JudgeSecret(data, NAMES, now, Lifetimes()))
        assert isinstance(judged, Judgement)
        data, steps = judged.data, steps + 1
        assert judged.due_at >= now
        if judged.due_at == now:
            continue
        just_before = judged.due_at - timedelta(microseconds=1)
        for moment in (now, now + (judged.due_at - now) / 2, just_before):
            again = await ask_here(JudgeSecret(data, NAMES, moment, Lifetimes()))
            assert isinstance(again, Judgement)
            assert again.reason is None, moment
        now = judged.due_at
    assert 10 < steps < 100


@pytest.mark.parametrize(
    ("worker", "said"),
    [
        (("/absent/python",), "cannot be started"),
        ((sys.executable, "-c", "raise SystemExit('no entropy')"), "ended with 1: no entropy"),
        ((sys.executable, "-c", "print('{}')"), "ended with 0: it said nothing"),
    ],
)
async def test_a_process_that_fails_is_an_error_that_says_how(
    worker: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apart, "_command", lambda: worker)
    with pytest.raises(CertificateWorkFailed, match=said):
        await ask_apart(ReadValidity(b""))


async def test_a_process_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(apart, "_command", lambda: (sys.executable, "-c", "import signal; signal.pause()"))
    monkeypatch.setattr(apart, "ANSWER_SECONDS", 0.1)
    with pytest.raises(CertificateWorkFailed, match="took over"):
        await ask_apart(ReadValidity(b""))


ASK = """
import asyncio
from shardsdk.serving.x509_messages import ReadValidity
from shardsdk.serving.x509_process import ask_apart
print(asyncio.run(ask_apart(ReadValidity(b"garbage"))))
"""


def ask_in(folder: Path, *arguments: str, **environment: str) -> str:
    """What a program in `folder` is answered that is run by Python with these arguments."""
    (folder / "program.py").write_text(ASK)
    for name in ("operator", "types", "email", "token"):
        (folder / f"{name}.py").write_text("raise SystemExit('this is not yours')")
    said = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    return said.stdout + said.stderr


def test_what_lies_in_the_folder_that_it_is_started_in_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "msgspec.py").write_text("raise SystemExit('nor is this')")
    assert "not a PEM certificate" in ask_in(tmp_path, "-P", "program.py")
    assert "not a PEM certificate" in ask_in(tmp_path, "-I", "program.py", PYTHONPATH=str(tmp_path))


@pytest.mark.parametrize("place", ["script", "path", "zip"])
def test_it_has_the_modules_of_the_process_that_asks(tmp_path: Path, place: str) -> None:
    """Wherever those were found: beside the program, by the environment, or in an archive that is the program."""
    source = tmp_path / "source"
    shutil.copytree(Path(shardsdk.__file__).parent, source / "shardsdk", ignore=shutil.ignore_patterns("__pycache__"))
    worker = source / "shardsdk" / "serving" / "x509_worker.py"
    worker.write_text(worker.read_text().replace("Refused(str(error))", "Refused('by the copy')"))
    match place:
        case "script":
            (source / "program.py").write_text(ASK)
            arguments, environment = [str(source / "program.py")], {}
        case "path":
            arguments, environment = ["-P", "program.py"], {"PYTHONPATH": str(source)}
        case _:
            (source / "__main__.py").write_text(ASK)
            zipapp.create_archive(source, tmp_path / "program.pyz")
            arguments, environment = [str(tmp_path / "program.pyz")], {}
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert "by the copy" in ask_in(elsewhere, *arguments, **environment)


def test_the_service_does_without_the_library() -> None:
    """It and the kubernetes package are a quarter of what the service would take."""
    code = "import sys, sharder.service, sharder.cli; print({'cryptography', 'kubernetes'} & set(sys.modules))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "set()"


async def test_certificates_carry_the_name_of_whose_they_are() -> None:
    made = await ask_here(JudgeSecret(None, ServingNames.of(["a.svc"], "sharder webhook"), NOW, Lifetimes()))
    assert isinstance(made, Judgement)
    serving, authority = (x509.load_pem_x509_certificate(pem) for pem in (made.certificate, made.bundle))
    assert serving.subject.rfc4514_string() == "CN=sharder webhook"
    assert serving.issuer == authority.subject
    assert authority.subject.rfc4514_string() == "CN=sharder webhook CA"

"""The pods of an operator with webhooks, and what is refused about their certificate."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.printed_manifests import complaint, folder, of_kind, printed, write

__all__ = ["folder"]  # applies to all tests of this file

WEBHOOK = """
@operator.validate(Site, timeout_seconds={seconds})
def check(review):
    pass
"""


@pytest.mark.parametrize(("seconds", "grace"), [(5, 30), (30, 45)])
def test_a_pod_that_ends_has_time_to_answer_what_has_begun(
    seconds: int, grace: int, capsys: pytest.CaptureFixture[str]
) -> None:
    write()
    Path("sites.py").write_text(Path("sites.py").read_text() + WEBHOOK.format(seconds=seconds))
    pod = of_kind(printed(capsys=capsys), "Deployment")["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == grace


def test_two_that_are_to_sign_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    write()
    Path("sites.py").write_text(Path("sites.py").read_text() + WEBHOOK.format(seconds=5))
    options = ("--image", "i:1", "--cert-manager", "--issuer", "company")
    said = complaint("manifests", "sites.py", *options, capsys=capsys)
    assert "authority of the operator's own, --issuer for another one: leave one of them out" in said

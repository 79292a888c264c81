"""What is there to be copied does not grow by itself."""

from __future__ import annotations

from typing import Final

from docsite.pages import ROOT
from docsite.ports import count

#: Lines of each example that are neither blank nor a comment.  Whoever makes one shorter lowers its number; whoever
#: makes one longer asks first whether the library could do it.
LINES: Final = {
    "checksum.py": 42,
    "elected.py": 46,
    "kopf_operator.py": 52,
    "plain_client.py": 113,
    "ports/cronjob.py": 108,
    "ports/ephemeral_volume.py": 35,
    "ports/webpage.py": 79,
    "stateful.py": 40,
    "website.py": 48,
}


def test_no_example_gets_longer() -> None:
    examples = ROOT / "examples"
    files = [*examples.glob("*.py"), *(examples / "ports").glob("*.py")]
    found = {str(path.relative_to(examples)): count(path.read_text()) for path in files}
    assert found == LINES

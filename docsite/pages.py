"""The pages of the documentation: where they are, and the fenced blocks in them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
DOCS: Final = ROOT / "docs"
#: Links to other sites.
EXTERNAL: Final = r"https?://[^\s)>\"`\\]+"

_FENCED: Final = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)(?P<attributes>[^\n]*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_FILE: Final = re.compile(r"(?:#|//|<!--) (?P<name>[\w./-]+\.\w+|[\w./-]*\bDockerfile)\b[^\n]*\n")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: the page it is on (relative to docs/), its language, the line it begins at, its text."""

    page: str
    line: int
    language: str
    text: str

    @property
    def file(self) -> str:
        """The file that it becomes, as its first line says (`# shard.py`); empty for one that is run or shown."""
        first = _FILE.match(self.text)
        return first["name"] if first else ""

    @property
    def commands(self) -> tuple[str, ...]:
        """The commands of a `sh` block, continued lines joined."""
        if self.language != "sh":
            return ()
        lines = self.text.replace("\\\n", " ").splitlines()
        return tuple(" ".join(line.split()) for line in lines if line.strip() and not line.lstrip().startswith("#"))

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def read_pages() -> Mapping[str, str]:
    """Every page by its path relative to docs/."""
    return {str(path.relative_to(DOCS)): path.read_text() for path in sorted(DOCS.rglob("*.md"))}


def blocks_of(page: str, text: str) -> tuple[Block, ...]:
    """The fenced blocks of one page, in order."""
    found = []
    for match in _FENCED.finditer(text):
        indent = match["indent"]
        body = "\n".join(line.removeprefix(indent) for line in match["text"].split("\n"))
        found.append(Block(page, text.count("\n", 0, match.start()) + 1, match["language"], body))
    return tuple(found)

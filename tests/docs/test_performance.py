"""Figures grow old: a reader can see of each when it was taken."""

from __future__ import annotations

import re

from docsite.pages import read_pages


def test_every_section_with_figures_says_when_they_were_taken() -> None:
    _, *sections = read_pages()["performance.md"].split("\n## ")
    assert sections
    undated = [
        each.splitlines()[0] for each in sections if not re.search(r"^Measured on \d+ \w+ \d{4}", each, re.MULTILINE)
    ]
    assert not undated

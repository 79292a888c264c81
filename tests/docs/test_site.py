"""The documentation builds, every link in it leads somewhere, and the site is whole without a network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docsite.hooks import prose_of
from docsite.pages import DOCS, ROOT, read_pages

#: Attributes of a page by which a browser fetches something unasked.
FETCHED = re.compile(r"<(?:script|img|link|iframe|source)\b[^>]*?\b(?:src|href)=\"?([^\s\">]+)")


def build(folder: Path, config: Path) -> subprocess.CompletedProcess[str]:
    # Not --quiet: warnings that are not shown do not count as failures either.
    command = [sys.executable, "-m", "mkdocs", "build", "--config-file", str(config), "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(folder, ROOT / "mkdocs.yml")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.timeout(600)
def test_every_page_is_in_the_site(site: Path) -> None:
    for page in read_pages():
        name = re.sub(r"(README|index)\.md$", "index.md", page)
        assert (site / name).with_suffix(".html").exists()


@pytest.mark.timeout(600)
def test_the_reference_is_in_the_site_and_found_from_every_page(site: Path) -> None:
    assert "server_side_apply" in (site / "api/shardsdk.html").read_text()
    assert 'href="api/shardsdk.html"' in (site / "index.html").read_text()


@pytest.mark.timeout(600)
def test_the_site_fetches_nothing_from_elsewhere(site: Path) -> None:
    fetched = {
        (str(page.relative_to(site)), target)
        for page in site.rglob("*.html")
        for target in FETCHED.findall(page.read_text())
        if "//" in target
    }
    elsewhere = re.compile(r"url\([\"']?https?:")
    styles = {str(css.relative_to(site)) for css in site.rglob("*.css") if elsewhere.search(css.read_text())}

    assert not fetched
    assert not styles


@pytest.mark.timeout(600)
def test_files_of_the_repository_that_pages_link_to_are_in_the_site(site: Path) -> None:
    assert "def checksum" in re.sub(r"<[^>]+>", "", (site / "repository/examples/checksum.py.html").read_text())
    assert 'href="repository/index.html"' in (site / "index.html").read_text()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("link", "complaint"),
    [
        ("nowhere.md", "not found"),
        ("concepts.md#nowhere", "anchor"),
        ("../nowhere/README.md", "not found"),
        ("/concepts.md", "absolute"),
    ],
)
def test_a_broken_link_fails_the_build(link: str, complaint: str, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text(f"# Start\n\n[A link]({link})\n")
    (docs / "concepts.md").write_text("# Concepts\n\n[Back](index.md)\n")
    settings = (ROOT / "mkdocs.yml").read_text().partition("\nextra_css")[0]
    (tmp_path / "mkdocs.yml").write_text(settings.replace("docsite/hooks.py", str(ROOT / "docsite/hooks.py")))

    done = build(tmp_path / "site", tmp_path / "mkdocs.yml")

    assert done.returncode != 0
    assert complaint in done.stderr


def test_pages_are_ordinary_markdown_on_a_git_host() -> None:
    """Links go to files, not to what the site makes of them."""
    links = [
        (page, target)
        for page, text in read_pages().items()
        for target in re.findall(r"\]\(([^)\s#:]+)(?:#[^)]*)?\)", prose_of(text))
        if not (DOCS / page).parent.joinpath(target).exists()
    ]
    assert not links


def test_links_to_other_sites_are_listed() -> None:
    command = [sys.executable, "-m", "docsite", "links"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()

    assert "https://github.com/timebertt/kubernetes-controller-sharding" in listed
    assert all(link.startswith("https://") for link in listed if "127.0.0.1" not in link)

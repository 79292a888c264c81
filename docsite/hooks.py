"""What MkDocs calls while it builds the site.

Does: turn links that leave docs/ into links to pages made of the repository's
files, so that the site is whole by itself, and list what is added to folders
(decisions, sdk) without a line in mkdocs.yml.  Refuses: a link to a file that
does not exist; MkDocs' strict mode fails the build.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docsite.pages import DOCS, ROOT
from docsite.reference import MODULES, render_module

#: Folder of the pages that show files of the repository.
SOURCE: Final = "repository"
#: Folder of the API reference.
REFERENCE: Final = "api/"
_LINK: Final = re.compile(r"(?P<before>\]\()(?P<target>[^)\s#:]+)(?P<anchor>#[^)\s]*)?(?P<after>\))")
_CODE: Final = re.compile(r"(^ *```.*?^ *```$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
_LANGUAGES: Final = {".py": "python", ".yaml": "yaml", ".json": "json", ".toml": "toml", "": "text"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill the folders of the navigation: `- Decisions: decisions/`."""
    for section in config.nav or []:
        for title, entries in section.items() if isinstance(section, dict) else ():
            if entries == REFERENCE:
                section[title] = [{name: f"{REFERENCE}{name}.md"} for name in MODULES]
            elif isinstance(entries, str) and entries.endswith("/"):
                section[title] = [str(path.relative_to(DOCS)) for path in _pages_in(entries)]
            elif isinstance(entries, list):
                section[title] = list(_with_the_rest(entries))
    if config.nav:
        config.nav = [each for each in config.nav if not (isinstance(each, dict) and [] in each.values())]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each file of the repository that a page links to, and for those that these link to."""
    for entry in _reference_pages(config):
        name = entry.removeprefix(REFERENCE).removesuffix(".md")
        files.append(File.generated(config, entry, content=render_module(name)))
    waiting = [(f"docs/{file.src_uri}", file.content_string) for file in files.documentation_pages()]
    while waiting:
        path, text = waiting.pop()
        for target in _repository_links(path, text):
            uri = _uri(target)
            if files.get_file_from_path(uri) is None and (ROOT / target).exists():
                content = _show(target)
                files.append(File.generated(config, uri, content=content))
                waiting.append((target, content if target.endswith(".md") else ""))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Point links that leave docs/ to those pages."""
    uri = page.file.src_uri
    path = _origin(uri)

    def relink(found: re.Match[str]) -> str:
        target = _resolve(path, found["target"])
        if target is None or not (ROOT / target).exists():
            return found[0]
        inside = target.startswith("docs/") and (ROOT / target).is_file()
        there = target.removeprefix("docs/") if inside else _uri(target)
        relative = posixpath.relpath(there, posixpath.dirname(uri))
        return f"{found['before']}{relative}{found['anchor'] or ''}{found['after']}"

    return "".join(part if number % 2 else _LINK.sub(relink, part) for number, part in enumerate(_CODE.split(markdown)))


def _with_the_rest(entries: list[Any]) -> Iterator[Any]:
    """The entries of a section, of which `sdk/` stands for every page of that folder that no other names."""
    named = {page for each in entries for page in (each.values() if isinstance(each, dict) else (each,))}
    for each in entries:
        if isinstance(each, str) and each.endswith("/"):
            rest = (str(path.relative_to(DOCS)) for path in _pages_in(each))
            yield from (page for page in rest if page not in named)
        else:
            yield each


def _reference_pages(config: MkDocsConfig) -> list[str]:
    """Those that the navigation asks for."""
    entries = (page for section in config.nav or [] if isinstance(section, dict) for page in section.values())
    listed = (each for entry in entries if isinstance(entry, list) for each in entry if isinstance(each, dict))
    return [path for each in listed for path in each.values() if isinstance(path, str) and path.startswith(REFERENCE)]


def _pages_in(folder: str) -> list[Any]:
    """README or index first, then by name; a template is no page."""
    found = [path for path in (DOCS / folder).glob("*.md") if path.name != "template.md"]
    return sorted(found, key=lambda path: (path.name not in ("README.md", "index.md"), path.name))


def prose_of(text: str) -> str:
    """A page without its code, in which nothing is a link."""
    return "".join(_CODE.split(text)[::2])


def _repository_links(path: str, text: str) -> set[str]:
    resolved = {_resolve(path, found["target"]) for found in _LINK.finditer(prose_of(text))}
    return {target for target in resolved if target is not None and not _is_page(target)}


def _is_page(target: str) -> bool:
    return target.startswith("docs/") and (ROOT / target).is_file()


def _resolve(path: str, target: str) -> str | None:
    """The target of a link as a path in the repository; None: outside, or a link to the page itself."""
    resolved = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    return None if resolved.startswith("..") or resolved == "." else resolved


def _uri(target: str) -> str:
    return f"{SOURCE}/{target}" if target.endswith(".md") else f"{SOURCE}/{target}.md"


def _origin(uri: str) -> str:
    """Where in the repository a page comes from."""
    if not uri.startswith(f"{SOURCE}/"):
        return f"docs/{uri}"
    path = uri.removeprefix(f"{SOURCE}/")
    return path if (ROOT / path).exists() else path.removesuffix(".md")


def _show(target: str) -> str:
    """A file as a page: Markdown as it is, code in a block, a folder as a list."""
    path = ROOT / target
    if path.is_dir():
        entries = sorted(each.name for each in path.iterdir() if each.name[0] not in "._")
        return f"# {target}/\n\n" + "\n".join(f"- `{name}`" for name in entries) + "\n"
    if path.suffix == ".md":
        return path.read_text()
    language = _LANGUAGES.get(PurePosixPath(target).suffix, "text")
    return f"# {target}\n\n````{language}\n{path.read_text().rstrip()}\n````\n"

"""Every log line of level warning and above: what docs/messages.md has to explain.

Does: read the messages off the calls in the source, and off the page.  Refuses:
a message that is not a literal; nobody could search for it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Final

from docsite.pages import DOCS, ROOT

_LEVELS: Final = {"warning": "warning", "error": "error", "exception": "error", "critical": "critical"}
_LOGGERS: Final = ("log", "logger")
_ROW: Final = re.compile(r"^\| `(?P<text>[^`]+)` \| (?P<levels>[\w, ]+) \| (?P<remedy>.+) \|$", re.MULTILINE)

#: Message -> its levels, as the page writes them.
Messages = Mapping[str, str]


def logged() -> Messages:
    """What the code logs; `%s` and the like stand for what changes."""
    found: dict[str, set[str]] = {}
    for package in ("sharder", "shardsdk"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for text, level in _calls(ast.parse(path.read_text()), str(path.relative_to(ROOT))):
                found.setdefault(text, set()).add(level)
    return {text: ", ".join(sorted(levels, reverse=True)) for text, levels in found.items()}


def explained() -> Messages:
    """What the page explains."""
    return {row["text"]: row["levels"] for row in _ROW.finditer((DOCS / "messages.md").read_text())}


def _calls(tree: ast.AST, path: str) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        logger, levels, message = node.func.value, [_LEVELS.get(node.func.attr)], node.args[:1]
        name = logger.id if isinstance(logger, ast.Name) else logger.attr if isinstance(logger, ast.Attribute) else ""
        if node.func.attr == "log" and len(node.args) > 1 and isinstance(node.args[0], ast.Name):
            levels, message = [_LEVELS.get(each.lower()) for each in _chosen(tree, node.args[0].id)], node.args[1:2]
        if name not in _LOGGERS or not any(levels):
            continue
        told = [each for each in levels if each is not None]
        match message[0]:
            case ast.Constant(value=str() as text):
                yield from ((text, level) for level in told)
            case ast.Name(id=name):
                yield from ((text, level) for text in _assigned(tree, name) for level in told)
            case _:
                raise ValueError(f"{path}:{node.lineno}: the message of a log line must be a literal")


def _assigned(tree: ast.AST, name: str) -> Iterator[str]:
    """The texts that a variable called `name` is given."""
    for value in _values(tree, name):
        for each in (value, *ast.iter_child_nodes(value)):
            if isinstance(each, ast.Constant) and isinstance(each.value, str):
                yield each.value


def _chosen(tree: ast.AST, name: str) -> Iterator[str]:
    """The levels that a variable called `name` may be, as in `logging.INFO if ... else logging.WARNING`."""
    for value in _values(tree, name):
        yield from (
            each.attr
            for each in ast.walk(value)
            if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == "logging"
        )


def _values(tree: ast.AST, name: str) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and any(
            isinstance(each, ast.Name) and each.id == name for each in node.targets
        ):
            yield node.value

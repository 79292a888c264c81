"""Files and functions stay short enough to be read at once."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

MOST_LINES = 400
#: What would be one thought in two halves: the signatures of all verbs of the API, each with what it promises.
WHOLE = {"shardsdk/kube/api.py"}
MOST_FUNCTION_LINES = 70
#: Verbs over any transport, metadata with fewer fields, and what users' classes inherit from.
INHERITED = {"Api", "Kind", "KindMeta", "Model", "ModelMeta", "SlimMeta"}
FOLDERS = ("shardsdk", "sharder", "localcluster", "examples", "bench", "docsite", "tests")
#: Written by `make kinds`, for editors and type checkers: one class after the other, and nothing to follow.
GENERATED = Path("shardsdk/kinds/builtin")
SOURCES = sorted(
    path for folder in FOLDERS for path in Path(folder).rglob("*.py") if not path.is_relative_to(GENERATED)
)
#: A file of tests, as docstrings name it for what they promise.
PROOF = re.compile(r"(?<![\w/])(?:tests|unit|integration|properties)/[\w/]+\.py")
VAGUE = {"util", "utils", "common", "helper", "helpers", "misc"}


@dataclass(frozen=True, slots=True)
class Class:
    """A class as it is written: of its bases those that are plain names, and whether one is called a protocol."""

    path: Path
    name: str
    bases: tuple[str, ...]
    is_protocol: bool


@dataclass(frozen=True, slots=True)
class Read:
    """What the tests want of the sources; the trees themselves would take hundreds of megabytes."""

    #: By file and name.
    function_lines: dict[str, int]
    #: Of the SDK: where a type is left to be guessed.
    guessed: list[str]
    #: Of the two packages.
    classes: list[Class]


@cache
def read() -> Read:
    """Each file parsed once, for all tests."""
    found = Read({}, [], [])
    for path in SOURCES:
        tree = ast.parse(path.read_text())
        found.function_lines.update({f"{path}:{name}": lines for name, lines in functions(tree)})
        if path.parts[0] == "shardsdk":
            found.guessed.extend(f"{path}:{line}" for line in guesses(tree))
        if path.parts[0] in ("shardsdk", "sharder"):
            found.classes.extend(classes(tree, path))
    return found


def test_files_are_short() -> None:
    lengths = {str(path): path.read_text().count("\n") for path in SOURCES}
    long = {path for path, lines in lengths.items() if lines > MOST_LINES}
    assert not long - WHOLE, f"more than {MOST_LINES} lines: make two files of what are two thoughts"
    assert not WHOLE - long, f"{MOST_LINES} lines or fewer by now: take it off WHOLE"


def test_functions_are_short() -> None:
    assert not {name: lines for name, lines in read().function_lines.items() if lines > MOST_FUNCTION_LINES}


def test_the_example_takes_fewer_than_80_lines() -> None:
    assert Path("examples/checksum.py").read_text().count("\n") < 80


def functions(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def test_every_file_is_named_after_what_it_holds() -> None:
    assert not [path for path in SOURCES if VAGUE & {part.removesuffix(".py") for part in path.parts}]


def test_proofs_that_are_named_exist() -> None:
    code = (path for path in SOURCES if path.parts[0] in ("shardsdk", "sharder", "localcluster"))
    named = {(str(path), proof) for path in code for proof in PROOF.findall(path.read_text())}
    assert len(named) > 50
    assert not sorted((path, proof) for path, proof in named if not Path(proof).exists())


def test_types_of_the_sdks_names_are_written_down() -> None:
    """What `pyright --verifytypes` would take for a guess (tests/types), found at once."""
    assert not read().guessed, "write `log: Final = …`, `self.name: str = …`"


def guesses(tree: ast.Module) -> Iterator[int]:
    """Lines of loggers and of public attributes whose type only a call tells."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(ast.unparse(target) == "log" for target in node.targets):
            yield node.lineno
    methods = [
        method
        for owner in ast.walk(tree)
        if isinstance(owner, ast.ClassDef) and not owner.name.startswith("_")
        for method in owner.body
        if isinstance(method, ast.FunctionDef) and method.name == "__init__"
    ]
    for part in (part for method in methods for part in ast.walk(method)):
        if isinstance(part, ast.Assign) and isinstance(part.value, ast.Call | ast.BoolOp | ast.IfExp):
            names = [ast.unparse(target) for target in part.targets]
            if any(name.startswith("self.") and not name.startswith("self._") for name in names):
                yield part.lineno


def test_only_errors_inherit() -> None:
    """Of our own classes; protocols, enums and structs are no inheritance of behaviour.

    Nor are the API's verbs, which each client has over a transport of its own (decision 0025).
    """
    ours: dict[str, list[Class]] = {}
    for each in read().classes:
        ours.setdefault(each.name, []).append(each)
    heirs = [
        f"{each.path}: {each.name}({base})"
        for each in read().classes
        for base in each.bases
        if base in ours
        and base not in INHERITED
        and not is_error(base, ours)
        and not any(parent.is_protocol for parent in ours[base])
    ]
    assert not heirs


def classes(tree: ast.Module, path: Path) -> Iterator[Class]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            names = tuple(base.id for base in node.bases if isinstance(base, ast.Name))
            yield Class(path, node.name, names, any("Protocol" in ast.unparse(base) for base in node.bases))


def is_error(name: str, ours: dict[str, list[Class]]) -> bool:
    if name in ("Exception", "BaseException"):
        return True
    return any(is_error(base, ours) for each in ours.get(name, ()) for base in each.bases)

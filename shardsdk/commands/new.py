"""`shardsdk new`: a project that works as it is.  Its files are in the folder `project`, with names between `@`."""

from __future__ import annotations

import ast
import keyword
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.machinery import PathFinder
from importlib.resources import files
from pathlib import Path
from typing import Final

from shardsdk.errors import ConfigurationError
from shardsdk.protocol.names import is_dns_label, is_dns_subdomain
from shardsdk.version import VERSION

#: Longer names cannot name the pods of a StatefulSet.
MAX_NAME_CHARACTERS: Final = 52
#: What becomes of each file.
FILES: Final[Mapping[str, str]] = {
    "operator.py.txt": "@module@.py",
    "test_operator.py.txt": "test_@module@.py",
    "example.yaml.txt": "example.yaml",
    "pyproject.toml.txt": "pyproject.toml",
    "Makefile.txt": "Makefile",
    "Dockerfile.txt": "Dockerfile",
    "dockerignore.txt": ".dockerignore",
    "gitignore.txt": ".gitignore",
    "ci.yaml.txt": ".github/workflows/ci.yaml",
    "README.md.txt": "README.md",
}
_KIND: Final = re.compile(r"[A-Z][A-Za-z0-9]*")
#: The kind of its lists has `List` behind, and 63 at most.
MAX_KIND_CHARACTERS: Final = 59
#: Kubernetes' own: an API server refuses definitions of such groups that its community has not approved.
_PROTECTED: Final = (".k8s.io", ".kubernetes.io")


@dataclass(frozen=True, slots=True)
class Project:
    """What is asked for: the operator's name, and the kind of its objects."""

    name: str
    kind: str
    group: str

    @classmethod
    def of(cls, name: str, kind: str | None, group: str) -> Project:
        """`kind` is guessed from the name when it is not given.  Raises: ConfigurationError."""
        if not is_dns_label(name, MAX_NAME_CHARACTERS) or not name[0].isalpha():
            raise ConfigurationError(
                f"{name!r} cannot be the name of an operator: use up to {MAX_NAME_CHARACTERS} lower-case letters,"
                " digits and '-', beginning with a letter"
            )
        made = cls(name, kind or _guess_kind(name), group)
        if not _KIND.fullmatch(made.kind):
            raise ConfigurationError(f"--kind {made.kind!r} is no kind: begin with a capital letter, as in Website")
        if len(made.kind) > MAX_KIND_CHARACTERS:
            raise ConfigurationError(
                f"--kind {made.kind!r} has {len(made.kind)} characters: use up to {MAX_KIND_CHARACTERS}"
            )
        if made.kind == "List":
            raise ConfigurationError("--kind List is what kubectl calls any list: choose another kind")
        if not is_dns_subdomain(group) or "." not in group:
            raise ConfigurationError(
                f"--group {group!r} is no API group: use a domain that is yours, as in example.com"
            )
        if f".{group}".endswith(_PROTECTED):
            raise ConfigurationError(
                f"--group {group!r} is Kubernetes' own, and needs its approval: use a domain that is yours, as in"
                " example.com"
            )
        if (
            made.module in sys.stdlib_module_names
            or keyword.iskeyword(made.module)
            or _is_installed(made.module)  # ours, or what these or its test depend on
        ):
            raise ConfigurationError(
                f"{made.module}.py would hide what Python calls {made.module}: choose another name"
            )
        if keyword.iskeyword(made.kind):
            raise ConfigurationError(f"{made.kind} is a word of Python's: choose another kind, by --kind")
        for clash in sorted(made.models & made.imported()):
            raise ConfigurationError(
                f"{made.module}.py would have a class {clash}, and imports another of that name: choose another kind"
                f" than {made.kind}, by --kind"
            )
        return made

    @property
    def models(self) -> frozenset[str]:
        """The classes that its files define."""
        return frozenset({self.kind, f"{self.kind}Spec", f"{self.kind}Status"})

    def imported(self) -> frozenset[str]:
        """The names that its files import from others than each other."""
        read = (self.render(_template(name)) for name, target in FILES.items() if target.endswith(".py"))
        imports = (node for text in read for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom))
        return frozenset(each.name for node in imports if node.module != self.module for each in node.names)

    @property
    def module(self) -> str:
        """The operator's file, without its ending."""
        return self.name.replace("-", "_")

    @property
    def words(self) -> Mapping[str, str]:
        """What stands for each name between `@`."""
        from shardsdk.kinds.custom import plural_of  # which brings msgspec

        singular = self.kind.lower()
        return {
            "name": self.name,
            "module": self.module,
            "kind": self.kind,
            "singular": singular,
            "plural": plural_of(singular),
            "group": self.group,
            "version": VERSION,
        }

    def render(self, text: str) -> str:
        """`text` with the project's names in it."""
        for word, value in self.words.items():
            text = text.replace(f"@{word}@", value)
        return text

    def write(self, folder: Path) -> list[Path]:
        """Write the project; gives its files.

        Raises: ConfigurationError when the folder has something in it, OSError when it cannot be written.
        """
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ConfigurationError(f"{folder} is there already, and not empty: choose another name, or --folder")
        written = []
        for name, target in FILES.items():
            path = folder / self.render(target)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.render(_template(name)), encoding="utf-8")
            written.append(path)
        return written


def _template(name: str) -> str:
    return (files("shardsdk.commands") / "project" / name).read_text(encoding="utf-8")


def _is_installed(module: str) -> bool:
    found = PathFinder.find_spec(module)
    return found is not None and found.loader is not None  # a folder of that name has none


def _guess_kind(name: str) -> str:
    """`web-sites` is about a `WebSite`."""
    words = name.removesuffix("-operator").removesuffix("-controller").split("-")
    last = words[-1]
    if last.endswith("ies") and len(last) > 4:
        words[-1] = f"{last[:-3]}y"
    elif last.endswith("s") and not last.endswith("ss"):
        words[-1] = last[:-1]
    return "".join(word.capitalize() for word in words)


def told(project: Project, folder: Path) -> str:
    """What to do next."""
    return (
        f"wrote {folder}/: {project.module}.py is the operator, test_{project.module}.py its test\n\n"
        f"  cd {folder}\n"
        "  python -m pip install --editable '.[dev]'      # what its test takes\n"
        "  python -m pytest                               # needs no cluster\n"
        f"  shardsdk run {project.module}.py --dev --install-crds   # on the cluster of your kubeconfig\n"
        "  kubectl apply -f example.yaml\n"
    )

"""The Helm program, as tests call it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from localcluster.components import go_environment

SHARDER: Final = Path("charts/sharder")
CONTROLLER: Final = Path("charts/sharded-controller")
NAMESPACE: Final = "sharding-system"

Document = dict[str, Any]
Documents = list[Document]


class HelmFailed(Exception):
    """Helm refused; the message is what it said."""


@dataclass(frozen=True, slots=True)
class Helm:
    """Runs one program; `home` is where it keeps its own files."""

    program: Path
    home: Path
    _rendered: dict[str, str] = field(default_factory=dict)

    def render(
        self,
        values: Mapping[str, Any] | None = None,
        *,
        chart: Path = SHARDER,
        namespace: str = NAMESPACE,
        release: str = "sharder",
    ) -> Documents:
        """What `helm template` prints, parsed.  Raises: HelmFailed."""
        key = json.dumps([values or {}, str(chart), namespace, release], sort_keys=True)
        if key not in self._rendered:
            command = ("template", release, str(chart), "--namespace", namespace)
            self._rendered[key] = self.run(*command, values=values)
        return parse(self._rendered[key])

    def lint(self, chart: Path, values: Mapping[str, Any] | None = None) -> str:
        """Lint strictly.  Raises: HelmFailed."""
        return self.run("lint", "--strict", str(chart), values=values)

    def run(self, *arguments: str, values: Mapping[str, Any] | None = None) -> str:
        """Run Helm without a cluster, and return what it printed.  Raises: HelmFailed."""
        command = [str(self.program), *arguments, *_values(values, self.home)]
        done = subprocess.run(command, capture_output=True, text=True, env=self._environment(), check=False)
        if done.returncode:
            raise HelmFailed(done.stdout + done.stderr)
        return done.stdout

    async def on(self, kubeconfig: Path, *arguments: str, values: Mapping[str, Any] | None = None) -> str:
        """Run Helm on a cluster, and return what it printed.  Raises: HelmFailed."""
        process = await asyncio.create_subprocess_exec(
            self.program, *arguments, *_values(values, self.home),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env=self._environment() | {"KUBECONFIG": str(kubeconfig)},
        )  # fmt: skip
        output, errors = await process.communicate()
        if process.returncode:
            raise HelmFailed(output.decode() + errors.decode())
        return output.decode()

    def _environment(self) -> dict[str, str]:
        # Nothing of the user's: no plugins, no repositories, no other cluster.
        return {"HOME": str(self.home), **go_environment()}


def parse(text: str) -> Documents:
    """The documents of a manifest, each as the API server would read it."""
    return [document for document in yaml.load_all(text, Loader=yaml.CSafeLoader) if document]


def find(documents: Documents, kind: str, name: str | None = None) -> Document:
    """The one document of that kind (and name)."""
    [found] = select(documents, kind, name)
    return found


def select(documents: Documents, kind: str, name: str | None = None) -> Documents:
    """All documents of that kind (and name)."""
    return [each for each in documents if each["kind"] == kind and name in (None, each["metadata"]["name"])]


def is_hook(document: Document) -> bool:
    """Whether Helm makes it for a moment only."""
    return "helm.sh/hook" in (document["metadata"].get("annotations") or {})


def set_in(path: str, value: Any) -> dict[str, Any]:
    """Values with one at a dotted path."""
    head, _, rest = path.partition(".")
    return {head: set_in(rest, value) if rest else value}


def merge(*many: Mapping[str, Any]) -> dict[str, Any]:
    """Values on top of one another, as Helm merges files."""
    merged: dict[str, Any] = {}
    for values in many:
        for key, value in values.items():
            known = merged.get(key)
            deep = isinstance(known, Mapping) and isinstance(value, Mapping)
            merged[key] = merge(known or {}, value) if deep else value
    return merged


def _values(values: Mapping[str, Any] | None, home: Path) -> list[str]:
    if not values:
        return []
    with tempfile.NamedTemporaryFile("w", suffix=".json", dir=home, delete=False) as file:
        json.dump(values, file)
    return ["--values", file.name]

"""Build Kubernetes programs from Go modules, once.

It takes a few minutes on two cores, so it says what it does: the disk it needs,
the sources it loads, the packages it has compiled.  Sources and compiler cache
go when it is done; an interrupted build leaves nothing but a folder that the
next one deletes.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from localcluster.drafts import draft_folder, one_at_a_time
from localcluster.errors import BinariesMissing
from localcluster.golang import RUNTIME_SETTINGS, find_go

_GIB: Final = 1 << 30
#: Compiler cache and work folder.  Source: measured, 5.8 GiB before the link, which adds some 0.5.
_BUILD_BYTES: Final = 7 * _GIB
#: Downloaded and unpacked sources.  Source: measured, 0.6 GiB.
_SOURCES_BYTES: Final = 1 * _GIB
#: A terminal is told more often than a log.
_PROGRESS_SECONDS: Final = 1.0 if sys.stderr.isatty() else 15.0
_DRAFT_PREFIX: Final = ".build-"
#: Variables that builds do not inherit.  How garbage is collected in programs that run for seconds would have the
#: compiler do little else; and it has a use for all cores, which a control plane among many does not.
_NOT_OURS: Final = ("GOFLAGS", *RUNTIME_SETTINGS)

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Product:
    """A Go module, and the file that its program becomes: `<cache>/<folder>/<program>`."""

    module: Path
    target: Path


@dataclass(frozen=True, slots=True)
class _Workshop:
    """A folder for builds, and how Go is called in it."""

    folder: Path
    compiler: Path
    environment: Mapping[str, str]
    tell: Say


def build_controlplane(module: Path, version: str, target: Path, environment: Mapping[str, str], tell: Say) -> None:
    """Build `module` to the file `target`; of two at once, one builds and the other waits.

    `version` is what the program says it is.  Raises: BinariesMissing.
    """
    build_products([Product(module, target)], version, environment, tell)


def build_products(products: Sequence[Product], version: str, environment: Mapping[str, str], tell: Say) -> None:
    """Build several at a time, which costs little more than one: they share sources and compiled packages.

    Raises: BinariesMissing.
    """
    cache = products[0].target.parent.parent
    cache.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(cache / "build.lock", tell):
        missing = [product for product in products if not product.target.exists()]
        if not missing:
            return
        compiler = find_go(missing[0].module / "go.mod", cache, environment, tell)
        with draft_folder(cache, _DRAFT_PREFIX) as draft:
            workshop = _prepare(draft, compiler, environment, tell)
            for product in missing:
                program = _compile(workshop, product, version)
                product.target.parent.mkdir(parents=True, exist_ok=True)
                program.replace(product.target)


def _prepare(draft: Path, compiler: Path, environment: Mapping[str, str], tell: Say) -> _Workshop:
    """Choose where sources and caches go, and check that there is room for them."""
    variables = go_variables(compiler, draft, environment)
    needed = _BUILD_BYTES
    if not Path(variables["GOMODCACHE"], "k8s.io").is_dir():
        needed += _SOURCES_BYTES
    free = shutil.disk_usage(draft).free
    room = f"needs {needed / _GIB:.0f} GiB of disk for a while, {free / _GIB:.1f} GiB are free in {draft.parent}"
    if free < needed:
        raise BinariesMissing(f"building Kubernetes {room}; make room, or set XDG_CACHE_HOME to another disk")
    tell(f"localcluster: building Kubernetes from Go modules, once; this takes some minutes and {room}")
    return _Workshop(draft, compiler, variables, tell)


def _compile(workshop: _Workshop, product: Product, version: str) -> Path:
    """Load the sources, then compile and link them."""
    packages = _run(workshop, product, ["list", "-deps", "-f", "{{.ImportPath}}", "."], "sources: {line}")
    count = len(packages.split())
    major, minor, _ = version.removeprefix("v").split(".", 2)
    stamp = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    stamps = " ".join(f"-X k8s.io/component-base/version.{key}={value}" for key, value in stamp.items())
    program = workshop.folder / product.target.name
    flags = ["-v", "-trimpath", "-ldflags", f"-s -w {stamps}", "-o", str(program)]
    _run(workshop, product, ["build", *flags, "."], "compiled {done} of {count} packages", count)
    return program


class _Progress:
    """What is told while Go works; it prints one line a package or module."""

    def __init__(self, text: str, count: int) -> None:
        self._text = text
        self._count = count
        self._done = 0
        self._line = "…"
        self.last: deque[str] = deque(maxlen=15)

    def saw(self, line: str) -> None:
        self.last.append(line)
        self._line = line.removeprefix("go: ")
        self._done += 1

    def __str__(self) -> str:
        return self._text.format(line=self._line, done=min(self._done, self._count), count=self._count)


def _run(workshop: _Workshop, product: Product, arguments: list[str], text: str, count: int = 0) -> str:
    """Run Go and tell now and then, by `text`, how far it is; returns its standard output."""
    progress = _Progress(text, count)
    output = workshop.folder / "output"
    with open(output, "w+", encoding="utf-8") as stdout:
        process = subprocess.Popen(
            [str(workshop.compiler), *arguments],
            cwd=product.module,
            env=dict(workshop.environment),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
        )
        finished = threading.Event()
        teller = threading.Thread(target=_tell_progress, args=(progress, workshop.tell, finished))
        teller.start()
        try:
            assert process.stderr is not None
            with process.stderr:
                for line in process.stderr:
                    progress.saw(line.strip())
            code = process.wait()
        finally:
            finished.set()
            teller.join()
            if process.poll() is None:
                process.kill()
                process.wait()
        if code:
            last = "\n    ".join(progress.last)
            raise BinariesMissing(
                f"go {arguments[0]} failed ({code}):\n    {last}\nMend that (a proxy? GOPROXY?), or give etcd,"
                " kube-apiserver, kube-controller-manager and kubectl by KUBEBUILDER_ASSETS or PATH"
            )
        stdout.seek(0)
        return stdout.read()


def _tell_progress(progress: _Progress, tell: Say, finished: threading.Event) -> None:
    began = time.monotonic()
    while not finished.wait(_PROGRESS_SECONDS):
        tell(f"localcluster: {progress} ({time.monotonic() - began:.0f} s)")


def go_variables(compiler: Path, draft: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """What Go is run with, so that of its own it leaves nothing outside of `draft`."""
    ours = {"GOTOOLCHAIN": "local", "GOWORK": "off", "CGO_ENABLED": "0", "GOTMPDIR": str(draft)}
    asked = subprocess.run(
        [compiler, "env", "GOMODCACHE"], capture_output=True, text=True,
        env={**environment, "GOTOOLCHAIN": "local"}, check=True,
    )  # fmt: skip
    sources = Path(asked.stdout.strip())
    if not sources.is_dir():
        sources = draft / "sources"  # nobody here programs in Go: they shall not stay either
    others = {name: value for name, value in environment.items() if name not in _NOT_OURS}
    return {**others, **ours, "GOCACHE": str(draft / "cache"), "GOMODCACHE": str(sources)}

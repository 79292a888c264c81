"""Plants one fault into the product: its module is compiled from changed source, whoever imports it.

Import this before anything of the product; the environment names the fault.
Refuses, loudly, a fault whose place is not there exactly once, and one that
comes too late because its module is loaded already.  As a plugin of pytest:
`PLANTED_FAULT=NAME python -m pytest -p tests.mutants.planting`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final

from tests.mutants.fault import Fault
from tests.mutants.faults import FAULTS

#: Environment variable with the name of the fault.
ENVIRONMENT: Final = "PLANTED_FAULT"
ROOT: Final = Path(__file__).parents[2]


class Misplaced(Exception):
    """The fault cannot be planted; its entry in the list has to be mended."""


def source_of(fault: Fault) -> str:
    """The source of its module, changed.  Raises: Misplaced."""
    path = ROOT / f"{fault.module.replace('.', '/')}.py"
    if not path.exists():
        raise Misplaced(f"{fault.module} does not exist")
    source = path.read_text()
    if (count := source.count(fault.old)) != 1:
        raise Misplaced(f"{fault.module} has {count} places that read {fault.old!r}, not one")
    return source.replace(fault.old, fault.new)


def plant(fault: Fault) -> None:
    """Have whoever imports its module from now on get the wrong one.  Raises: Misplaced."""
    if fault.module in sys.modules:
        raise Misplaced(f"{fault.module} is loaded already")
    sys.meta_path.insert(0, _Finder(fault, source_of(fault)))


class _Finder(MetaPathFinder):
    """Inherited because importing offers nothing else."""

    def __init__(self, fault: Fault, source: str) -> None:
        self._fault = fault
        self._source = source

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._fault.module:
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is None or spec.origin is None:
            raise Misplaced(f"{fullname} is not found")
        spec.loader = _Loader(fullname, spec.origin, self._source)
        return spec


class _Loader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, source: str) -> None:
        super().__init__(fullname, path)
        self._source = source

    def get_code(self, fullname: str) -> CodeType:
        """Compiled anew each time: what is cached is the right one."""
        return compile(self._source, self.path, "exec", dont_inherit=True)


if ENVIRONMENT in os.environ:
    plant(FAULTS[os.environ[ENVIRONMENT]])

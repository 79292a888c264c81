"""The program that a command is about: found in a file (`websites.py`) or a module (`websites`, `websites:operator`).

The file is run as an import runs it, so that what stands under `if __name__ == "__main__":` is left alone.  What is
wrong with it is said with its line.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final

from shardsdk.commands.program import Program
from shardsdk.errors import ConfigurationError, ShardingError
from shardsdk.operator.operator import Operator
from shardsdk.process.beginning import loading
from shardsdk.process.manager import Manager

#: What a command can work with, for messages.
WANTED: Final = "an Operator (or a Manager)"
_NO_PYTHON: Final = "is no file of Python; name the file with the Operator, as in websites.py"


class Unloadable(ConfigurationError):
    """The program itself is wrong, not what it runs with: whoever wrote it has to change it."""


def load(source: str) -> Program:
    """Find the program in `FILE.py`, `module`, `FILE.py:name` or `module:name`.

    Raises: ConfigurationError with what to write instead.
    """
    place, _, variable = source.partition(":")
    with loading(place):
        module = _import(place)
    found = {name: value for name, value in vars(module).items() if isinstance(value, Operator | Manager)}
    if variable:
        if variable not in found:
            raise ConfigurationError(f"{place}: {variable!r} is {_what(module, variable)}; {_offer(place, found)}")
        return Program(source, variable, found[variable])
    if not found:
        raise ConfigurationError(
            f"{place} has no Operator: it needs a line at its top level such as"
            f' `operator = Operator("{_stem(place)}")` (one that is made in a function, or under'
            ' `if __name__ == "__main__":`, is not found)'
        )
    different = {id(value) for value in found.values()}
    if len(different) > 1:
        raise ConfigurationError(f"{place} has several: {_offer(place, found)}")
    name, value = next(iter(found.items()))
    return Program(source, name, value)


def _import(place: str) -> ModuleType:
    """Raises: ConfigurationError."""
    path = Path(place)
    if place.endswith(".py") or path.is_file():
        if not path.is_file():
            raise ConfigurationError(f"there is no file {place}; the current directory is {Path.cwd()}")
        return _run_file(path)
    if path.is_dir() or "/" in place:
        raise ConfigurationError(f"{place} {_NO_PYTHON}")
    # As `python -m` has it.
    sys.path.insert(0, str(Path.cwd()))
    try:
        return import_module(place)
    except ModuleNotFoundError as error:
        if error.name and (place == error.name or place.startswith(f"{error.name}.")):
            raise ConfigurationError(
                f"there is no module {place!r}, nor a file of that name: name a file (websites.py), or a"
                f" module that can be imported from {Path.cwd()}"
            ) from error
        raise _worded(place, error) from error
    except Exception as error:
        raise _worded(place, error) from error


def _run_file(path: Path) -> ModuleType:
    """Import a file from where it is: its neighbours can be imported as well."""
    resolved = path.resolve()
    if resolved.stem in sys.stdlib_module_names:
        raise ConfigurationError(
            f"{path} would hide what Python calls {resolved.stem}: rename it, as in my_{resolved.stem}.py"
        )
    spec = importlib.util.spec_from_file_location(resolved.stem, resolved)
    if spec is None or spec.loader is None:
        raise ConfigurationError(f"{path} {_NO_PYTHON}")
    sys.path.insert(0, str(resolved.parent))
    module = importlib.util.module_from_spec(spec)
    # Decorators and annotations look their module up by its name.
    sys.modules[resolved.stem] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[resolved.stem]
        raise _worded(str(path), error) from error
    return module


def _worded(place: str, error: Exception) -> ConfigurationError:
    """What went wrong, and at which line of the user's."""
    if isinstance(error, SyntaxError):
        line = (error.text or "").strip()
        return ConfigurationError(
            f"{error.filename or place}, line {error.lineno}: {error.msg}" + (f": `{line}`" if line else "")
        )
    frames = [each for each in traceback.extract_tb(error.__traceback__) if not _is_ours(each.filename)]
    where = f"{frames[-1].filename}, line {frames[-1].lineno}" if frames else place
    shown = f": `{frames[-1].line}`" if frames and frames[-1].line else ""
    # Ours say in their message what to do.
    said = str(error) if isinstance(error, ShardingError) else f"{type(error).__name__}: {error}"
    return ConfigurationError(f"{where}: {said}{shown}")


def _is_ours(filename: str) -> bool:
    """Whether a line is the importing machinery's, this library's, or in no file, as a dataclass's `__init__`."""
    return filename.startswith("<") or Path(filename).is_relative_to(Path(__file__).parents[1])


def _what(module: ModuleType, variable: str) -> str:
    missing = not hasattr(module, variable)
    return "not there" if missing else f"of type {type(getattr(module, variable)).__name__}, not {WANTED}"


def _offer(place: str, found: Mapping[str, object]) -> str:
    if not found:
        return f"and nothing in there is {WANTED}"
    return f"name one: {', '.join(f'{place}:{name}' for name in found)}"


def _stem(place: str) -> str:
    return Path(place).stem.rpartition(".")[2].replace("_", "-") or "websites"

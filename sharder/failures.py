"""What the commands `sharder` and `kubectl sharding` say when they fail, a line for each problem."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TextIO

from shardsdk.errors import ConfigurationError, NotFound, ShardingError
from shardsdk.logs import one_line

#: What the extras of the package bring along, and the package alone does not.
_EXTRAS: Final = frozenset({"cryptography", "fastapi", "httptools", "pydantic", "uvicorn", "uvloop", "xxhash", "yaml"})


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong; `misused`: arguments, configuration or installation, and nothing else."""

    lines: tuple[str, ...]
    misused: bool

    def tell(self, program: str, to: TextIO) -> None:
        """Write the lines, each once."""
        to.writelines(f"{program}: {one_line(' '.join(line.split()))}\n" for line in dict.fromkeys(self.lines))


def explain_failure(error: Exception, extra: str) -> Failure | None:
    """An error for people, who have to install `extra` for the command; None: a fault of the program."""
    lines: list[str] = []
    misused = True
    for leaf in leaves(error):
        explained = list(_explain(leaf, extra))
        if not explained:
            return None
        lines += explained
        misused = misused and isinstance(leaf, ConfigurationError | ModuleNotFoundError)
    return Failure(tuple(lines), misused)


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors of a group, or the error itself."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def _explain(error: BaseException, extra: str) -> Iterator[str]:
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in _EXTRAS:
        yield f"{error.name} is not installed; install `pip install 'controller-sharding[{extra}]'`"
    elif isinstance(error, ConfigurationError):
        problems = getattr(error, "problems", ())
        source = getattr(error, "source", "")
        yield from (f"{source}: {problem}" if source else str(problem) for problem in problems)
        if not problems:
            yield str(error)
    elif isinstance(error, ShardingError):
        yield str(error) or type(error).__name__
    elif isinstance(error, OSError) and error.strerror:
        yield f"{error.strerror}: {error.filename}" if error.filename else error.strerror


def no_ring(error: NotFound, ring: str | None, host: str, remedy: str) -> ConfigurationError:
    """What a 404 for a ClusterRing, or (`ring` None) for all of them, means: there is none, or no such type."""
    if "CustomResourceDefinition" in str(error):
        return ConfigurationError(
            f"{host} does not serve ClusterRings; install them: `sharder crds --apply`, or the Helm chart"
        )
    return ConfigurationError(f"there is no ClusterRing {ring!r} at {host}; {remedy}")

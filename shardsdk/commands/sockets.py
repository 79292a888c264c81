"""Where the processes of this machine answer that were started by `shardsdk run`: one Unix socket for each, no ports.

The directory is the user's alone ($XDG_RUNTIME_DIR/shardsdk, else one under the directory for temporary files), so
nobody else can ask.  A socket's name is the program's, and the process's id.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from shardsdk.errors import ConfigurationError

#: A socket's whole path may have 107 bytes on Linux, 103 elsewhere, which leaves so much for the program's name.
MAX_PATH_BYTES: Final = 103
MAX_NAME_CHARACTERS: Final = 40
MIN_NAME_CHARACTERS: Final = 8
_ENDING: Final = "-4194304.sock"  # the largest process id
_SOCKET: Final = re.compile(r"(?P<name>.+)-(?P<pid>[0-9]+)\.sock")


def socket_of(name: str, pid: int, environ: Mapping[str, str]) -> Path:
    """Where the process `pid` of the program called `name` answers; its directory is there afterwards.

    Raises: ConfigurationError when somebody else could listen in there.
    """
    directory = _directory(environ)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = directory.stat(follow_symlinks=False)
    except OSError as error:
        raise ConfigurationError(
            f"{directory} cannot be made: {error}; name another directory by XDG_RUNTIME_DIR"
        ) from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise ConfigurationError(
            f"{directory} belongs to somebody else, or lets others in: remove it, or name another directory by"
            " XDG_RUNTIME_DIR"
        )
    if _room(directory) < MIN_NAME_CHARACTERS:
        raise ConfigurationError(f"{directory} is too long for a socket in it: name a shorter one by XDG_RUNTIME_DIR")
    return directory / f"{name[: _room(directory)]}-{pid}.sock"


def sockets(name: str | None, environ: Mapping[str, str]) -> list[Path]:
    """The sockets of the program called `name` (`None`: of all), in the order of their names."""
    directory = _directory(environ)
    found = [(path, _SOCKET.fullmatch(path.name)) for path in sorted(directory.glob("*.sock"))]
    wanted = None if name is None else name[: _room(directory)]
    return [path for path, match in found if match and wanted in (None, match["name"])]


def _room(directory: Path) -> int:
    """How many characters of a program's name a socket's name has."""
    return min(MAX_PATH_BYTES - len(os.fsencode(directory)) - len(f"/{_ENDING}"), MAX_NAME_CHARACTERS)


def _directory(environ: Mapping[str, str]) -> Path:
    if runtime := environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime, "shardsdk")
    return Path(tempfile.gettempdir(), f"shardsdk-{os.getuid()}")

"""As what a program introduces itself with each request: logs, metrics and audit logs of API servers name it.

    checksum/1.4 shardsdk/0.1.0 (ring checksum; shard checksum-0)

The first name is a field manager, too: of writes that name none, an API server takes it from the user agent, up to the
slash.  So it is the same for all shards, and `metadata.managedFields` does not grow with them.
Source: Kubernetes, managerOrUserAgent in apiserver/pkg/endpoints/handlers.
"""

from __future__ import annotations

import re
from typing import Final

from shardsdk.errors import ConfigurationError
from shardsdk.version import SDK_AGENT

#: As client-go calls it.
_UNKNOWN: Final = "unknown"
#: A field manager has no more characters.
_MOST: Final = 128
#: Source: RFC 9110, product.
_TOKEN: Final = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
_PROGRAM: Final = re.compile(f"({_TOKEN})(?:/({_TOKEN}))?")


def agent_of(program: str) -> str:
    """The user agent of a program, NAME/VERSION or NAME alone.

    >>> agent_of("checksum/1.4").partition(" ")[0]
    'checksum/1.4'
    >>> agent_of("checksum").partition(" ")[0]
    'checksum/unknown'

    Raises: ConfigurationError for what can stand in no header.
    """
    found = _PROGRAM.fullmatch(program)
    if found is None or max(map(len, found.groups(""))) > _MOST:
        raise ConfigurationError(
            f"a program cannot be called {program!r} in its user agent: write NAME/VERSION, as in my-operator/1.4, each"
            f" of up to {_MOST} letters, digits, '-', '.' and '_'"
        )
    name, version = found.groups(_UNKNOWN)
    return f"{name}/{version} {SDK_AGENT}"


def agent_of_shard(agent: str, ring: str, shard: str) -> str:
    """What says which shard it is, too.

    >>> agent_of_shard("checksum/1.4", "checksum", "checksum-0")
    'checksum/1.4 (ring checksum; shard checksum-0)'
    """
    return f"{agent} (ring {ring}; shard {shard})"

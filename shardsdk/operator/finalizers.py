"""The finalizers of an operator's functions: one for each, the same in all processes.

    example.com/websites          of the function without a name of the operator `websites`
    example.com/websites_sweep    of its function `sweep`

Whoever had another's would take it off before that one has cleaned up.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from shardsdk.errors import ConfigurationError
from shardsdk.kinds import Kind, resource_of

#: The domain of finalizers on kinds that have no group of their own.
DEFAULT_DOMAIN: Final = "sharding.timebertt.dev"
#: Source: apimachinery, validation.IsQualifiedName.
_CHARACTERS: Final = 63
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")


def finalizer_of(kind: type[Kind], operator: str, name: str) -> str:
    """The finalizer of the function called `name` (empty: the one without a name)."""
    own = f"{operator}_{name}" if name else operator  # no operator's name has the underscore
    if len(own) > _CHARACTERS:
        digest = hashlib.sha256(own.encode()).hexdigest()[:8]
        own = f"{own[: _CHARACTERS - len(digest) - 1]}-{digest}"
    return f"{_domain_of(kind)}/{own}"


def former_finalizer_of(kind: type[Kind], operator: str, name: str) -> str:
    """What it was before it told the operator as well; objects may still have that.

    It may be the finalizer of another operator, one that is called like the function.
    """
    return f"{_domain_of(kind)}/{name or operator}"


def check_name(kind: type[Kind], name: str) -> None:
    """Raises: ConfigurationError for the name of a function that no API server takes in a finalizer."""
    if name and (len(name) > _CHARACTERS or not _NAME.fullmatch(name)):
        raise ConfigurationError(
            f"reconcile({kind.__qualname__}, name={name!r}): that cannot be in a finalizer; use up to {_CHARACTERS}"
            " letters, digits, '-', '_' and '.', with a letter or a digit at both ends"
        )


def _domain_of(kind: type[Kind]) -> str:
    return resource_of(kind).group or DEFAULT_DOMAIN

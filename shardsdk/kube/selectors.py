"""Label, field and shard selectors as the API server reads them.

Keys are not checked; the API server answers 400 to a malformed one.  Values are written so that it reads back each
as it was given: some names (those of Roles) have characters that mean something in a selector.

>>> Selector(labels=join(exists("team"), not_in("tier", ["a", "b"]))).labels
'team,tier notin (a,b)'
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

__all__ = [
    "Selector",
    "absent",
    "differs",
    "equals",
    "exists",
    "join",
    "not_in",
    "within",
]

_ESCAPES: Final = str.maketrans({each: f"\\{each}" for each in "\\,="})


@dataclass(frozen=True, slots=True)
class Selector:
    """What a list or watch selects; an empty string selects everything.

    `shards` is a `shardSelector` (KEP-5866), as `HashRanges.selector` writes it: API servers
    that do not know it, or have it switched off, ignore it without a word.

    >>> print(Selector(labels=equals("team", "a"), fields=equals("metadata.name", "b")))
    team=a and metadata.name=b
    """

    labels: str = ""
    fields: str = ""
    shards: str = ""

    def __str__(self) -> str:
        return " and ".join(part for part in (self.labels, self.fields, self.shards) if part) or "everything"


def join(*terms: str) -> str:
    """All of `terms` must hold; empty ones are left out.

    >>> join(exists("team"), "", equals("tier", "web"))
    'team,tier=web'
    """
    return ",".join(term for term in terms if term)


def exists(key: str) -> str:
    """The object carries `key`, whatever its value.

    >>> exists("team")
    'team'
    """
    return key


def absent(key: str) -> str:
    """The object does not carry `key`.

    >>> absent("team")
    '!team'
    """
    return f"!{key}"


def equals(key: str, value: str) -> str:
    """`key` has exactly this value (labels and fields).

    >>> equals("metadata.name", "home")
    'metadata.name=home'
    """
    return f"{key}={_escaped(value)}"


def differs(key: str, value: str) -> str:
    """`key` has another value; objects without the label match too (labels and fields).

    >>> differs("metadata.namespace", "kube-system")
    'metadata.namespace!=kube-system'
    """
    return f"{key}!={_escaped(value)}"


def within(key: str, values: Iterable[str]) -> str:
    """`key` has one of `values`.

    Raises: ValueError for no values at all, which the API server would refuse.

    >>> within("tier", {"web", "api"})
    'tier in (api,web)'
    """
    return f"{key} in ({_listed(values)})"


def not_in(key: str, values: Iterable[str]) -> str:
    """`key` has none of `values`; objects without the key match too, so join with `exists` if they must not.

    Raises: ValueError for no values at all, which the API server would refuse.

    >>> join(exists("tier"), not_in("tier", ["web"]))
    'tier,tier notin (web)'
    """
    return f"{key} notin ({_listed(values)})"


def _escaped(value: str) -> str:
    """As Go's `fields.EscapeValue`; a label's value has none of these."""
    return value.translate(_ESCAPES)


def _listed(values: Iterable[str]) -> str:
    ordered = sorted(set(values))
    if not ordered:
        raise ValueError("a set-based selector needs at least one value; use exists() or absent() instead")
    return ",".join(ordered)

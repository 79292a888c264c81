"""What is said about a field, or a class, beside its type; the API server holds objects to it.

    replicas: Annotated[int, Range(1, 5)] = 1
    ready: Annotated[int, Column("Ready")] = 0

They go into the CRD.  Reading does not look at them: an object that was stored
before a rule was made is still read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

#: What a printer column holds.
ColumnType = Literal["string", "integer", "number", "boolean", "date"]


@dataclass(frozen=True, slots=True)
class Rule:
    """A CEL expression that has to be true; `self` is the value of the field, or of the class.

    `message` is what the user is told otherwise.  One that names `oldSelf` is
    asked of changes alone.

        class Limits(Model, rules=[Rule("self.low <= self.high", "low is above high")]): ...
    """

    expression: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Range:
    """A number is at least `low` and at most `high`; `None`: no limit on that side."""

    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Length:
    """How many characters a string has, bytes, entries a list, keys a dict; `None`: no limit there."""

    low: int | None = None
    high: int | None = None


@dataclass(frozen=True, slots=True)
class Pattern:
    """A string matches this regular expression (RE2, as in Go); anchor it with `^` and `$`."""

    expression: str


@dataclass(frozen=True, slots=True)
class OneOf:
    """A value is one of these; `Literal` and Enum say the same by type."""

    values: tuple[str | int | float | bool | None, ...]

    def __init__(self, *values: str | int | float | bool | None) -> None:
        object.__setattr__(self, "values", values)


@dataclass(frozen=True, slots=True)
class Format:
    """A format that the API server knows, such as `uri`, `ipv4`, `cidr`, `hostname`."""

    name: str


@dataclass(frozen=True, slots=True)
class Doc:
    """What `kubectl explain` says of a field."""

    text: str


@dataclass(frozen=True, slots=True)
class ListType:
    """How server-side apply merges a list: `set`, or `map` by the fields `keys` of its entries (as on the wire)."""

    kind: Literal["atomic", "set", "map"]
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Column:
    """A column of `kubectl get`.  On a field it needs no `path` and no `type`.

    `priority` above 0 is shown with `-o wide` alone.  In a class's `columns`,
    `path` is one such as `.metadata.creationTimestamp`.
    """

    name: str
    path: str = ""
    type: ColumnType | None = None
    priority: int = 0
    description: str = ""
    format: str = ""


@dataclass(frozen=True, slots=True)
class Scale:
    """The paths by which `kubectl scale` and a HorizontalPodAutoscaler read and set the number of replicas."""

    spec_replicas: str = ".spec.replicas"
    status_replicas: str = ".status.replicas"
    selector: str | None = None


#: An amount as Kubernetes writes them: `3`, `"100m"`, `"1.5Gi"`.
Quantity: TypeAlias = Annotated[
    int | str,
    Pattern(
        r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
    ),
]

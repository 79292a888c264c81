"""Which namespaces a ring covers, told by their names alone.

A shard of a ring by ranges asks that of each object, and does not watch Namespaces for it: selectors that look at
other labels than the one that holds the name are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from shardsdk.errors import ConfigurationError

#: The label that every namespace carries, with its name.  Source: Kubernetes, well-known labels.
NAME_LABEL: Final = "kubernetes.io/metadata.name"
#: What a ring does not cover of which neither spec nor status says.  Source: ClusterRing, spec.namespaceSelector.
LEFT_OUT: Final = frozenset({"kube-system", "sharding-system"})


@dataclass(frozen=True, slots=True)
class CoveredNamespaces:
    """Those of `only` (`None`: all) that are not in `without`; objects of no namespace are covered.

    >>> CoveredNamespaces().covers("default"), CoveredNamespaces().covers("kube-system")
    (True, False)
    """

    only: frozenset[str] | None = None
    without: frozenset[str] = LEFT_OUT

    @classmethod
    def parse(cls, selector: Mapping[str, Any] | None) -> CoveredNamespaces:
        """Read what a ring by ranges covers: its own namespaceSelector, or its sharder's default; `None`: nobody says.

        Raises: ConfigurationError when names do not tell.
        """
        if selector is None:
            return cls()
        only: frozenset[str] | None = None
        without: frozenset[str] = frozenset()
        if (why := unnamed(selector)) is not None:
            raise ConfigurationError(f"the ring's namespaceSelector, or its sharder's default, {why}")
        for _, operator, values in _terms(selector):
            if operator == "In":
                only = values if only is None else only & values
            else:
                without |= values
        return cls(only, without)

    def covers(self, namespace: str) -> bool:
        """Whether objects of `namespace` belong to the ring; cluster-scoped ones (empty) do."""
        return not namespace or (namespace not in self.without and (self.only is None or namespace in self.only))

    def within(self, namespaces: Iterable[str]) -> bool:
        """Whether no other namespace is covered than these.

        >>> CoveredNamespaces().within(["default"]), CoveredNamespaces(frozenset({"default"})).within(["default"])
        (False, True)
        """
        return self.only is not None and self.only - self.without <= frozenset(namespaces)


def unnamed(selector: Mapping[str, Any]) -> str | None:
    """Why names alone do not tell which namespaces `selector` selects, and behind "; " what to do; `None`: they do."""
    for key, operator, _ in _terms(selector):
        if key != NAME_LABEL or operator not in ("In", "NotIn"):
            return (
                f"looks at {key!r} ({operator}), and shards of a ring by ranges know namespaces by their names alone;"
                f" use {NAME_LABEL} with In or NotIn in spec.namespaceSelector, or a ring by labels"
            )
    return None


def select_by_name(namespaces: Iterable[str]) -> dict[str, Any]:
    """The LabelSelector of these namespaces and no other."""
    return {"matchExpressions": [{"key": NAME_LABEL, "operator": "In", "values": sorted(namespaces)}]}


def _terms(selector: Mapping[str, Any]) -> list[tuple[str, str, frozenset[str]]]:
    terms = [(key, "In", frozenset({str(value)})) for key, value in (selector.get("matchLabels") or {}).items()]
    expressions = selector.get("matchExpressions") or ()
    return terms + [
        (str(each.get("key")), str(each.get("operator")), frozenset(map(str, each.get("values") or ())))
        for each in expressions
    ]

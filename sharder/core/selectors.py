"""Label selectors as `metav1.LabelSelector` defines them, evaluated here.

Does: parse one, say whether labels match it, write it back.  Refuses: to guess
at a malformed term; each is a problem with a path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeGuard, assert_never

from sharder.core.problems import Problem, quoted
from shardsdk.protocol.labels import is_label_key, is_label_value

#: Label that the API server keeps on every namespace: its own name.
#: Source: Kubernetes, "Well-Known Labels, Annotations and Taints".
NAMESPACE_NAME_LABEL: Final = "kubernetes.io/metadata.name"
#: Terms of one selector. The CRD has the same bound.
MAX_TERMS: Final = 64
#: Values of one term. The CRD has the same bound.
MAX_VALUES: Final = 256
#: Source: Kubernetes, "Labels and Selectors", syntax and character set.
_VALUE_SYNTAX: Final = "use at most 63 letters, digits, '-', '_' and '.', beginning and ending in a letter or digit"
_NAME_SYNTAX: Final = f"{_VALUE_SYNTAX}; a DNS name and '/' may stand before them"


class Operator(StrEnum):
    """What a term asks of a label."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


_OPERATORS: Final = frozenset(each.value for each in Operator)


@dataclass(frozen=True, slots=True)
class Requirement:
    """One term; `values` is empty for EXISTS and DOES_NOT_EXIST."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether `labels` satisfy this term; like the API server, NOT_IN holds when the label is absent."""
        match self.operator:
            case Operator.IN:
                return labels.get(self.key) in self.values
            case Operator.NOT_IN:
                return labels.get(self.key) not in self.values
            case Operator.EXISTS:
                return self.key in labels
            case Operator.DOES_NOT_EXIST:
                return self.key not in labels
            case _:
                assert_never(self.operator)


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """All terms must hold; no terms match everything.

    `match_labels` and `match_expressions` are kept apart, so that what was read
    is written back unchanged.
    """

    match_labels: tuple[tuple[str, str], ...] = ()
    match_expressions: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with `labels` is selected."""
        return all(labels.get(key) == value for key, value in self.match_labels) and all(
            requirement.matches(labels) for requirement in self.match_expressions
        )

    def render(self) -> dict[str, Any]:
        """The selector as the API server takes it."""
        rendered: dict[str, Any] = {}
        if self.match_labels:
            rendered["matchLabels"] = dict(self.match_labels)
        if self.match_expressions:
            rendered["matchExpressions"] = [_render_requirement(term) for term in self.match_expressions]
        return rendered


def as_terms(selector: LabelSelector) -> LabelSelector:
    """The same by terms alone, as a merge patch replaces it whole: labels would be merged with those of before."""
    equalities = tuple(Requirement(key, Operator.IN, (value,)) for key, value in selector.match_labels)
    return LabelSelector(match_expressions=equalities + selector.match_expressions)


def all_namespaces_except(*names: str) -> LabelSelector:
    """Every namespace but `names`."""
    return LabelSelector(match_expressions=(Requirement(NAMESPACE_NAME_LABEL, Operator.NOT_IN, names),))


def parse_selector(raw: object, path: str) -> tuple[LabelSelector, tuple[Problem, ...]]:
    """Read a LabelSelector found at `path`; what is malformed is left out and told.

    A selector with problems must not be used: it would select more than was meant.
    """
    if not isinstance(raw, Mapping):
        return LabelSelector(), (Problem(path, "is not an object", "write a LabelSelector, or leave it out"),)
    problems: list[Problem] = []
    unknown = sorted(str(key) for key in raw if key not in ("matchLabels", "matchExpressions"))
    if unknown:
        problems.append(
            Problem(path, f"has unknown fields {', '.join(unknown)}", "use matchLabels and matchExpressions")
        )
    labels = _parse_match_labels(raw.get("matchLabels"), f"{path}.matchLabels", problems)
    expressions = _parse_match_expressions(raw.get("matchExpressions"), f"{path}.matchExpressions", problems)
    return LabelSelector(labels, expressions), tuple(problems)


def _parse_match_labels(raw: object, path: str, problems: list[Problem]) -> tuple[tuple[str, str], ...]:
    if raw is None:
        return ()
    if not isinstance(raw, Mapping) or not all(isinstance(k, str) and isinstance(v, str) for k, v in raw.items()):
        problems.append(Problem(path, "is not a map of strings", "write it as `label: value`"))
        return ()
    if len(raw) > MAX_TERMS:
        problems.append(Problem(path, f"has {len(raw)} terms", f"use at most {MAX_TERMS}"))
        return ()
    for key, value in raw.items():
        _check_key(key, path, problems)
        _check_values((value,), f"{path}[{quoted(key)}]", problems)
    return tuple(sorted(raw.items()))


def _parse_match_expressions(raw: object, path: str, problems: list[Problem]) -> tuple[Requirement, ...]:
    if raw is None:
        return ()
    if not _is_list(raw):
        problems.append(Problem(path, "is not a list", "write a list of key, operator, values"))
        return ()
    if len(raw) > MAX_TERMS:
        problems.append(Problem(path, f"has {len(raw)} terms", f"use at most {MAX_TERMS}"))
        return ()
    terms = [_parse_requirement(term, f"{path}[{index}]", problems) for index, term in enumerate(raw)]
    return tuple(term for term in terms if term is not None)


def _parse_requirement(raw: object, path: str, problems: list[Problem]) -> Requirement | None:
    if not isinstance(raw, Mapping):
        problems.append(Problem(path, "is not an object", "write key, operator and values"))
        return None
    key, operator, values = raw.get("key"), raw.get("operator"), raw.get("values") or ()
    if not isinstance(key, str) or not key:
        problems.append(Problem(f"{path}.key", "is missing", "name the label"))
        return None
    _check_key(key, f"{path}.key", problems)
    if not isinstance(operator, str) or operator not in _OPERATORS:
        problems.append(
            Problem(f"{path}.operator", f"{quoted(operator)} is unknown", "use In, NotIn, Exists or DoesNotExist")
        )
        return None
    if not (_is_list(values) and all(isinstance(value, str) for value in values)):
        problems.append(Problem(f"{path}.values", "is not a list of strings", "write the label's values"))
        return None
    takes_values = operator in (Operator.IN, Operator.NOT_IN)
    if takes_values != bool(values) or len(values) > MAX_VALUES:
        wanted = f"1 to {MAX_VALUES} values" if takes_values else "no values"
        problems.append(Problem(f"{path}.values", f"has {len(values)} values", f"{operator} takes {wanted}"))
        return None
    _check_values(values, f"{path}.values", problems)
    return Requirement(key, Operator(operator), tuple(values))


def _check_key(key: str, path: str, problems: list[Problem]) -> None:
    """No namespace has another label, and the API server takes no selector that asks for one."""
    if not is_label_key(key):
        problems.append(Problem(path, f"{quoted(key)} cannot be the name of a label", _NAME_SYNTAX))


def _check_values(values: Sequence[str], path: str, problems: list[Problem]) -> None:
    wrong = next((value for value in values if not is_label_value(value)), None)
    if wrong is not None:
        problems.append(Problem(path, f"{quoted(wrong)} cannot be the value of a label", _VALUE_SYNTAX))


def _is_list(raw: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(raw, (list, tuple))


def _render_requirement(term: Requirement) -> dict[str, Any]:
    rendered: dict[str, Any] = {"key": term.key, "operator": term.operator.value}
    if term.values:
        rendered["values"] = list(term.values)
    return rendered

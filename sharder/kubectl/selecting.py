"""A ring's namespace selector, for people."""

from __future__ import annotations

from sharder.core.selectors import NAMESPACE_NAME_LABEL, LabelSelector, Operator


def describe_selector(selector: LabelSelector) -> str:
    """A selector as kubectl takes it; empty for one that selects everything."""
    terms = [f"{key}={value}" for key, value in selector.match_labels]
    for each in selector.match_expressions:
        match each.operator:
            case Operator.IN:
                terms.append(f"{each.key} in ({', '.join(each.values)})")
            case Operator.NOT_IN:
                terms.append(f"{each.key} notin ({', '.join(each.values)})")
            case Operator.EXISTS:
                terms.append(each.key)
            case Operator.DOES_NOT_EXIST:
                terms.append(f"!{each.key}")
    return ",".join(terms)


def by_name_alone(selector: LabelSelector) -> bool:
    """Whether names decide, so that no labels of namespaces have to be read."""
    keys = [key for key, _ in selector.match_labels] + [each.key for each in selector.match_expressions]
    return all(key == NAMESPACE_NAME_LABEL for key in keys)

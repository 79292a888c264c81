"""Whether an operator that is driven does only what its rights allow: those that `shardsdk manifests` grants it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from shardsdk import kinds
from shardsdk.kube.api import ACCESS_REVIEWS
from shardsdk.operator.operator import Operator
from shardsdk.protocol.objects import GroupResource
from shardsdk.rbac import Right, Rule, grants, render_rules, ring_rules

#: What everybody may ask, without a role.  Source: Kubernetes, the ClusterRole system:basic-user.
_FOR_EVERYBODY: Final = (ACCESS_REVIEWS.group_resource,)


class RightsLack(AssertionError):
    """An operator did what its rights do not allow; `rights` says what, in order."""

    def __init__(self, operator: str, rights: Sequence[Right]) -> None:
        rules, remedies = "\n".join(render_rules(rights)), "\n".join(_remedies(rights))
        super().__init__(
            f"on a cluster {operator} would be refused what it did here; say that it needs this:\n{remedies}\n"
            f"or, where its role is written by hand:\n{rules}"
        )
        self.rights: list[Right] = list(rights)

    def __reduce__(self) -> tuple[Any, ...]:
        """How it is copied and pickled, as by workers of a test run: not by another call, which would lack `rights`."""
        return type(self).__new__, (type(self), *self.args), vars(self)


class RightsCheck:
    """Compares what `operator` does with what it may: its objects are where it says, its leases in `own_namespace`."""

    def __init__(self, operator: Operator, own_namespace: str, ring: str) -> None:
        allowed = operator.permissions()
        watched = operator.watch_namespace
        self._operator = operator.name
        self._namespaces = [watched] if isinstance(watched, str) else list(watched or ())
        self._own_namespace = own_namespace
        self._objects: Sequence[Rule] = allowed.objects
        self._own: Sequence[Rule] = allowed.own
        self._cluster: Sequence[Rule] = (*allowed.cluster, *ring_rules(ring))
        self._lacking: dict[Right, None] = {}

    def note(self, right: Right) -> None:
        """The operator does this."""
        if right.resource in _FOR_EVERYBODY or any(grants(rule, right) for rule in self._rules(right.namespace)):
            return
        # By name and place there would be one for each object.
        self._lacking[Right(right.verb, right.resource, right.subresource)] = None

    @property
    def lacking(self) -> list[Right]:
        """What it did and may not, each once."""
        return list(self._lacking)

    def check(self) -> None:
        """Raises: RightsLack."""
        if self._lacking:
            raise RightsLack(self._operator, self.lacking)

    def _rules(self, namespace: str | None) -> Sequence[Rule]:
        """Those that hold there: roles in its namespaces if it has some, else one for the cluster."""
        objects = self._objects if not self._namespaces or namespace in self._namespaces else ()
        return (*self._cluster, *objects, *(self._own if namespace == self._own_namespace else ()))


def _remedies(rights: Sequence[Right]) -> list[str]:
    verbs: dict[tuple[GroupResource, str], list[str]] = {}
    for each in rights:
        verbs.setdefault((each.resource, each.part), []).append(each.verb)
    return [
        f"operator.needs({_named(resource, part)}, {', '.join(map(_quoted, needed))})"
        for (resource, part), needed in verbs.items()
    ]


def _named(resource: GroupResource, part: str) -> str:
    """A built-in kind by its class; anything else as it is called."""
    if part == resource.resource and (kind := _built_in(resource)):
        return kind
    return f"GroupResource({_quoted(resource.group)}, {_quoted(part)})"


def _built_in(resource: GroupResource) -> str | None:
    """The name of the class in `shardsdk.kinds`; `None`: it has none."""
    named = (getattr(kinds, name) for name in kinds.builtin.__all__)
    classes = (each for each in named if isinstance(each, type) and issubclass(each, kinds.Kind))
    return next((each.__name__ for each in classes if kinds.resource_of(each).group_resource == resource), None)


def _quoted(text: str) -> str:
    return f'"{text}"'

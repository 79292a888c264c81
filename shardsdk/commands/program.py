"""A program that a command is about: an Operator, or a Manager that somebody has put together by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from shardsdk.admission.settings import Serving
from shardsdk.commands.preflight import Grant, Needs
from shardsdk.errors import ConfigurationError
from shardsdk.operator.operator import Operator
from shardsdk.process.manager import Manager
from shardsdk.rbac import CONTROLLED_VERBS, MAIN_VERBS, lease_rules, ring_rules, rules_for
from shardsdk.reconcile.spec import Scope


@dataclass(frozen=True, slots=True)
class Program:
    """What was found: `source` is how it was asked for, `variable` where it is in there."""

    source: str
    variable: str
    found: Operator | Manager

    @property
    def operator(self) -> Operator:
        """Raises: ConfigurationError when it is a Manager."""
        if isinstance(self.found, Manager):
            raise ConfigurationError(
                f"{self.source}: {self.variable} is a Manager, of which nobody knows what it is to do; this takes an"
                " Operator"
            )
        return self.found

    @property
    def name(self) -> str:
        """What it is called on a cluster: its own name, its ring's, or its election's."""
        if not isinstance(self.found, Manager):
            return self.found.name
        election = self.found.election
        return self.found.ring or (election.name if election else "controller")

    def manager_with(self, settings: Mapping[str, Any]) -> Manager:
        """A manager that runs it, with these settings of a `Manager`.

        Raises: ConfigurationError when it is one that says otherwise.
        """
        if not isinstance(self.found, Manager):
            return self.found.manager(**settings)
        for name, value in settings.items():
            if name == "health_address":
                self.found.addresses = (value, self.found.addresses[1])
            elif name == "metrics_address":
                self.found.addresses = (self.found.addresses[0], value)
            elif name in ("kubeconfig", "context"):
                setattr(self.found, name, value)
            else:
                raise ConfigurationError(
                    f"{self.source}: {self.variable} is a Manager, which is told its {name} where it is made"
                )
        return self.found

    def definitions(self) -> list[dict[str, Any]]:
        """The CustomResourceDefinitions that come with it.  Raises: ConfigurationError."""
        from shardsdk.kinds import crds_of

        return crds_of(self.operator.kinds())

    def short_names(self) -> dict[str, list[str]]:
        """What people call its own kinds besides their names, by resource (`websites.example.com`)."""
        if isinstance(self.found, Manager):
            return {}
        names = {each["metadata"]["name"]: each["spec"]["names"] for each in self.definitions()}
        return {resource: [each["singular"], *each.get("shortNames", ())] for resource, each in names.items()}

    def needs(
        self, manager: Manager, own_namespace: str, webhooks: Serving | None = None, *, by_ranges: bool = False
    ) -> Needs:
        """What it takes for `manager` to run; leases are in `own_namespace`.

        `webhooks` says how they are served here (`None`: they are not); `by_ranges`: its ring assigns so.
        """
        needs = Needs(
            self.source,
            [source.resource for spec in manager.controllers for source in spec.resources],
            ring=manager.ring,
            namespace=own_namespace if manager.ring is not None or manager.election is not None else "",
            grants=_grants_of(manager, own_namespace, by_ranges=by_ranges),
        )
        if isinstance(self.found, Manager):
            return needs
        from shardsdk.kinds import resource_of

        granted = self.found.permissions(webhooks=webhooks, by_ranges=by_ranges)
        unserved = self.found.permissions(webhooks=None, by_ranges=by_ranges)
        own: list[Grant] = [(own_namespace, rule) for rule in granted.own]
        cluster: list[Grant] = [(None, rule) for rule in granted.cluster]
        serving = [each for each in own if each[1] not in unserved.own]
        serving += [each for each in cluster if each[1] not in unserved.cluster]
        return replace(
            needs,
            own=frozenset(resource_of(kind).group_resource for kind in self.found.kinds()),
            grants=[*needs.grants, *serving],
            perhaps=[
                *((space or None, rule) for space in manager.watch_namespaces or ("",) for rule in granted.objects),
                *own,
                *cluster,
            ],
        )


def _grants_of(manager: Manager, own_namespace: str, *, by_ranges: bool) -> list[Grant]:
    """What a manager is certain to do; what its functions do, nobody knows."""
    read = {source.resource for spec in manager.controllers for source in spec.resources}
    sharded = manager.ring is not None and not by_ranges  # it lets go of an object by a patch of its labels
    let_go = {spec.main.resource for spec in manager.controllers if sharded and spec.scope in (None, Scope.SHARDED)}
    grants: list[Grant] = []
    for namespaced, spaces in ((True, manager.watch_namespaces or ("",)), (False, ("",))):
        rules = [
            *rules_for((each.group_resource for each in let_go if each.namespaced is namespaced), MAIN_VERBS),
            *rules_for(
                (each.group_resource for each in read - let_go if each.namespaced is namespaced), CONTROLLED_VERBS
            ),
        ]
        grants += [(space or None, rule) for space in spaces for rule in rules]
    if manager.ring is not None or manager.election is not None:
        grants += [(own_namespace, rule) for rule in lease_rules(by_ranges=by_ranges)]
    if manager.ring is not None:
        grants += [(None, rule) for rule in ring_rules(manager.ring, by_ranges=by_ranges)]
    return grants

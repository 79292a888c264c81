"""A program that a command is about: an Operator, or a Manager that somebody has put together by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from shardsdk.admission.settings import Serving
from shardsdk.commands.preflight import Needs
from shardsdk.errors import ConfigurationError
from shardsdk.operator.operator import Operator
from shardsdk.process.manager import Manager
from shardsdk.rbac import CONTROLLED_VERBS, MAIN_VERBS, Rule, lease_rules, ring_rules, rules_for


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

    def needs(self, manager: Manager, own_namespace: str, webhooks: Serving | None = None) -> Needs:
        """What it takes for `manager` to run; leases are in `own_namespace`.

        `webhooks` says how they are served here (`None`: they are not).
        """
        needs = Needs(
            self.source,
            [source.resource for spec in manager.controllers for source in spec.resources],
            ring=manager.ring,
            namespace=own_namespace if manager.ring is not None or manager.election is not None else "",
        )
        if isinstance(self.found, Manager):
            return replace(needs, grants=_grants_of(manager, own_namespace))
        from shardsdk.kinds import resource_of

        granted = self.found.permissions(webhooks=webhooks)
        return replace(
            needs,
            own=frozenset(resource_of(kind).group_resource for kind in self.found.kinds()),
            grants=[
                *((space or None, rule) for space in manager.watch_namespaces or ("",) for rule in granted.objects),
                *((own_namespace, rule) for rule in granted.own),
                *((None, rule) for rule in granted.cluster),
            ],
        )


def _grants_of(manager: Manager, own_namespace: str) -> list[tuple[str | None, Rule]]:
    """What a manager is certain to do; what its functions do, nobody knows."""
    main = {spec.main.resource for spec in manager.controllers}
    others = {source.resource for spec in manager.controllers for source in spec.resources[1:]} - main
    verbs = MAIN_VERBS if manager.ring is not None else CONTROLLED_VERBS
    grants: list[tuple[str | None, Rule]] = []
    for namespaced, spaces in ((True, manager.watch_namespaces or ("",)), (False, ("",))):
        rules = [
            *rules_for((each.group_resource for each in main if each.namespaced is namespaced), verbs),
            *rules_for((each.group_resource for each in others if each.namespaced is namespaced), CONTROLLED_VERBS),
        ]
        grants += [(space or None, rule) for space in spaces for rule in rules]
    if manager.ring is not None or manager.election is not None:
        grants += [(own_namespace, rule) for rule in lease_rules()]
    if manager.ring is not None:
        grants += [(None, rule) for rule in ring_rules(manager.ring)]
    return grants

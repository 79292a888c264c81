"""Rights that the sharder may lack."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from sharder.core.problems import some
from shardsdk.protocol.labels import SHARDER_SERVICE_ACCOUNT, SYSTEM_NAMESPACE
from shardsdk.protocol.objects import LEASES, NAMESPACES, RBAC_GROUP, GroupResource
from shardsdk.protocol.ranges import RING_ASSIGNMENTS


class MissingRule(msgspec.Struct, frozen=True, cache_hash=True):
    """A right that the sharder lacks."""

    verb: str
    resource: GroupResource
    subresource: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}" + (f"/{self.subresource}" if self.subresource else "")

    @property
    def is_of_sharder(self) -> bool:
        """Whether the sharder's own role is to grant it, rather than the ring's."""
        return self in OWN_RULES or self.resource == RING_ASSIGNMENTS.group_resource

    @property
    def is_to_grant(self) -> bool:
        """Whether it is one of `rights_to_grant`: without it some objects of a resource can be placed, and some not."""
        return self.verb in ("escalate", "bind")


#: What the sharder needs whatever a ring lists: to know which namespaces are in its scope, and to notice shards that
#: are gone and take over their leases.
OWN_RULES: Final = (
    *(MissingRule(verb, NAMESPACES.group_resource) for verb in ("list", "watch")),
    *(MissingRule(verb, LEASES.group_resource) for verb in ("list", "watch", "create", "patch")),
)


def _rbac(plural: str) -> GroupResource:
    return GroupResource(RBAC_GROUP, plural)


_ESCALATE_ROLES: Final = MissingRule("escalate", _rbac("roles"))
_ESCALATE_CLUSTER_ROLES: Final = MissingRule("escalate", _rbac("clusterroles"))
_BIND_ROLES: Final = MissingRule("bind", _rbac("roles"))
_BIND_CLUSTER_ROLES: Final = MissingRule("bind", _rbac("clusterroles"))
#: Source: Kubernetes, pkg/registry/rbac, policybased.Storage.Update of each.
_TO_GRANT: Final[Mapping[GroupResource, tuple[MissingRule, ...]]] = {
    _rbac("roles"): (_ESCALATE_ROLES,),
    _rbac("clusterroles"): (_ESCALATE_CLUSTER_ROLES,),
    _rbac("rolebindings"): (_BIND_ROLES, _BIND_CLUSTER_ROLES),
    _rbac("clusterrolebindings"): (_BIND_CLUSTER_ROLES,),
}


def rights_to_grant(resources: Iterable[GroupResource]) -> tuple[MissingRule, ...]:
    """What it takes, beside `patch`, to label those of `resources` that grant rights; of others nothing.

    The API server has whoever changes one, be it a label, hold every right that it grants, or one of these.
    """
    return tuple(dict.fromkeys(rule for resource in resources for rule in _TO_GRANT.get(resource, ())))


def remedy_to_grant(command: str) -> str:
    """What people can do about the lack of `rights_to_grant`; `command` prints the ring's role."""
    return (
        "what grants rights that the sharder does not have cannot be placed, nor the owners of that: take these"
        f" resources off the ring, or grant it what `{command}` prints as a comment, with what that costs"
    )


def render_denied(denied: Sequence[MissingRule]) -> str:
    """What the sharder may not, and what people can do about it."""
    remedies = []
    if any(rule.is_of_sharder for rule in denied):
        remedies.append(
            "its own ClusterRole lacks that: apply rbac/sharder.yaml of this version, or upgrade the Helm chart"
        )
    if not all(rule.is_of_sharder or rule.is_to_grant for rule in denied):
        remedies.append(
            "`sharder rbac RING` prints the ClusterRole and the binding that grant it (with --service-account, where"
            f" the sharder's is not {SYSTEM_NAMESPACE}/{SHARDER_SERVICE_ACCOUNT})"
        )
    if any(rule.is_to_grant for rule in denied):
        remedies.append(remedy_to_grant("sharder rbac RING"))
    return f"the sharder may not {some(map(str, denied))}; {'; '.join(remedies)}"

"""Whether an object is gone of which a write was answered with 404."""

from __future__ import annotations

from typing import Final

from shardsdk.errors import Forbidden, NotFound, NotServed, ShardingError
from shardsdk.kube.answers import NO_ROLE
from shardsdk.kube.api import Api
from shardsdk.protocol.objects import RBAC_GROUP, GroupResource, Resource

#: Whoever changes one, be it a label, and may not bind any role, needs what the role grants that it names.  If that is
#: not there, the API server says that a *binding* of the role's name is not: mostly both are called the same.
#: Source: Kubernetes, pkg/registry/rbac/rolebinding/policybased, and Store.Get of apiserver/pkg/registry/generic.
_BINDINGS: Final = (GroupResource(RBAC_GROUP, "rolebindings"), GroupResource(RBAC_GROUP, "clusterrolebindings"))


async def judge_absence(
    api: Api, resource: Resource, name: str, namespace: str | None, uid: str, error: NotFound
) -> ShardingError:
    """What `error`, the answer to a write, means: the same where the object is gone, or its type is not served.

    Forbidden where it is there; where that cannot be read, why.
    """
    if resource.group_resource not in _BINDINGS or isinstance(error, NotServed):
        return error
    try:
        found = await api.find(resource, name, namespace)
    except ShardingError as unread:
        return unread
    if found is None or found.metadata.uid != uid:
        return error
    return Forbidden(f"{error} — it is there; {NO_ROLE}", status=error.status, reason=error.reason)

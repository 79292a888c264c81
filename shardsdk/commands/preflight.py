"""Before anything runs: what is missing on the cluster, and what to do about it.

A process that may read nothing would hold its lease and be given objects all the same, so this comes before the lease.
Asking changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

import msgspec

from shardsdk.errors import ApiError, ConnectionFailed, Forbidden, NotFound
from shardsdk.kube.api import Api
from shardsdk.kube.discovery import Served, served_by
from shardsdk.kube.served import explain_unserved
from shardsdk.lease.claim import describe_holder, is_overdue
from shardsdk.logs import logger_of
from shardsdk.protocol.labels import API_GROUP, SHARDER_HOLDER, SYSTEM_NAMESPACE
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES, NAMESPACES, GroupResource, Resource
from shardsdk.protocol.rings import Ring
from shardsdk.rbac import Right, Rule, render_rules, rights_of

log: Final = logger_of(__name__)

#: A rule as in a Role, and the namespace where it is to hold (`None`: in all).
Grant = tuple[str | None, Rule]

_REVIEWS: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


@dataclass(frozen=True, slots=True)
class Needs:
    """What a program needs of a cluster; `source` is what it is called at a prompt.

    `namespace` (empty: none) has to be there.  `resources` have to be served, of which `own` are those whose
    definitions come with the program.  `grants` are what it is certain to do, `perhaps` what its functions may do
    besides.  `ring` has to be there (`None`: none).
    """

    source: str
    resources: Sequence[Resource]
    own: frozenset[GroupResource] = frozenset()
    grants: Sequence[Grant] = ()
    perhaps: Sequence[Grant] = ()
    ring: str | None = None
    namespace: str = ""


async def find_problems(api: Api, needs: Needs) -> list[str]:
    """What keeps the program from working, each with what to do; nothing: it can begin.

    If it can, and may not do what its functions may want to do, a warning says so.

    Raises: ApiError, ConnectionFailed when the API server does not say.
    """
    served = served_by(api)
    found = []
    if needs.namespace and (problem := await _find_missing_namespace(api, needs.namespace)):
        found.append(problem)
    for each in dict.fromkeys(needs.resources):
        install = _install(needs) if each.group_resource in needs.own else ""
        if problem := await explain_unserved(served, each, install):
            found.append(problem)
    if needs.ring is not None and (problem := await _find_missing_ring(api, served, needs.ring, needs)):
        found.append(problem)
    missing = await _find_missing_rights(api, [*needs.grants, *needs.perhaps])
    rules = list(_render_places(_without_covered(missing)))
    if not {each for space, rule in needs.grants for each in rights_of(space, rule)}.isdisjoint(missing):
        found.append(
            f"{await _who(api)} lacks rights that {needs.source} needs; grant it\n"
            + "\n".join(rules)
            + f"\n(all that it needs: `shardsdk manifests {needs.source} --image IMAGE`)"
        )
    elif rules and not found:
        log.warning(
            "Rights are missing that a function may need; where it does, it fails until they are granted",
            extra={"identity": await _who(api), "missing": " ".join(rules)},
        )
    return found


def _install(needs: Needs) -> str:
    by_hand = f"shardsdk crd {needs.source} | kubectl apply --server-side -f -"
    return f"`shardsdk run {needs.source} --install-crds`, or `{by_hand}`"


async def _find_missing_namespace(api: Api, namespace: str) -> str | None:
    try:
        await api.get(NAMESPACES, namespace)
    except NotFound:
        return (
            f"there is no namespace {namespace!r}, where its Lease belongs; create it by `kubectl create namespace"
            f" {namespace}`, or name another by -n"
        )
    except ApiError:
        pass  # a shard need not be allowed to read it
    return None


# -- the ring ---------------------------------------------------------------------


async def _find_missing_ring(api: Api, served: Served, ring: str, needs: Needs) -> str | None:
    make = f"`shardsdk manifests {needs.source} --ring-only | kubectl apply --server-side -f -` makes it"
    if await served.resources(API_GROUP, CLUSTERRINGS.version) is None:
        return (
            "the API server does not know ClusterRings, so nobody would give this shard objects; install the sharder:"
            " `sharder chart sharder-chart` writes its chart, which `helm install sharder ./sharder-chart"
            f" -n {SYSTEM_NAMESPACE} --create-namespace` installs"
        )
    try:
        await api.get(CLUSTERRINGS, ring)
    except NotFound:
        return f"there is no ClusterRing {ring!r}, so nobody would give this shard objects; {make}"
    except ApiError:
        pass  # among the rights, if it may not be read
    return None


async def assigns_ranges(api: Api, ring: str) -> bool:
    """Whether the ring assigns ranges of hashes, as far as it can be read.

    Raises: ConfigurationError for a ring that this version cannot work in, ApiError, ConnectionFailed when the API
        server does not say.
    """
    try:
        return (await api.get(CLUSTERRINGS, ring, model=Ring)).hash_by is not None
    except (NotFound, Forbidden):
        return False  # told among what is missing


async def find_namesake(api: Api, name: str, namespace: str, ring: str, now: datetime) -> str | None:
    """For whom a shard of `ring` called `name` has to wait at the moment `now`; `None`: for nobody, as it seems."""
    try:
        lease = await api.get(LEASES, name, namespace, model=Lease)
    except ApiError:
        return None
    if lease.ring not in (None, ring) and lease.holder != SHARDER_HOLDER:
        return None  # it never becomes this one's, which whoever seeks it says
    if not lease.holder or lease.left or is_overdue(lease, now):
        return None
    return describe_holder(lease)


# -- rights ------------------------------------------------------------------------


async def _find_missing_rights(api: Api, grants: Iterable[Grant]) -> list[Right]:
    """The rights that this identity lacks; none when the API server does not say."""
    rights = list(dict.fromkeys(each for namespace, rule in grants for each in rights_of(namespace, rule)))
    allowed = await asyncio.gather(*(_allowed(api, right) for right in rights))
    return [right for right, has in zip(rights, allowed, strict=True) if not has]


def _without_covered(missing: Sequence[Right]) -> list[Right]:
    """Those that a ClusterRole for the others would not grant as well: it holds in all namespaces."""
    everywhere = {replace(each, namespace=None) for each in missing if each.namespace is None}
    return [each for each in missing if each.namespace is None or replace(each, namespace=None) not in everywhere]


async def _allowed(api: Api, right: Right) -> bool:
    try:
        return await api.allowed(
            right.verb,
            right.resource,
            namespace=right.namespace,
            name=right.name or None,
            subresource=right.subresource,
        )
    except ConnectionFailed:
        raise
    except ApiError:
        return True  # whoever may not even ask finds out by what is refused later


def _render_places(missing: Sequence[Right]) -> Iterator[str]:
    """The rules to grant, line by line, ready to be pasted, one place after the other."""
    for namespace in dict.fromkeys(right.namespace for right in missing):
        yield "by a ClusterRole:" if namespace is None else f"by a Role in namespace {namespace}:"
        yield from render_rules([right for right in missing if right.namespace == namespace])


async def _who(api: Api) -> str:
    """The identity's name, as the API server knows it."""
    body = b'{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}'
    headers = {"Content-Type": "application/json"}
    try:
        answer = msgspec.json.decode(await api.raw("POST", _REVIEWS, body=body, headers=headers), type=dict[str, Any])
        return str(answer["status"]["userInfo"]["username"])
    except (ApiError, KeyError, msgspec.DecodeError):
        return "this identity"

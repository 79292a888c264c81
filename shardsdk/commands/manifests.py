"""`shardsdk manifests`: what an operator needs on a cluster, as manifests or as a chart.

definitions of its custom resources
ServiceAccount, roles and their bindings: what it may do, and no more
its ring, and what the sharder may do with the ring's objects          (only when it is sharded; nothing, by ranges)
its pods, and how many of them may be away at once
the Service and the configurations of its webhooks                     (only when it has some)
what has cert-manager make their certificate                           (only when it shall)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shardsdk.admission.certmanager import (
    Issuer,
    inject_annotations,
    mounted_secret_name,
    render_authority,
    render_certificate,
)
from shardsdk.admission.configuration import labels_of
from shardsdk.admission.settings import Serving, stop_seconds
from shardsdk.commands.program import Program
from shardsdk.commands.workload import ELECTED_REPLICAS, END_SECONDS, GRACE_SECONDS, SHARDS, Pods, workload
from shardsdk.errors import ConfigurationError
from shardsdk.operator.operator import Operator
from shardsdk.protocol.labels import API_GROUP, API_VERSION, RING_KIND
from shardsdk.protocol.names import LABEL_CHARACTERS, is_dns_label
from shardsdk.protocol.namespaces import select_by_name
from shardsdk.protocol.objects import GroupResource
from shardsdk.protocol.ranges import BY_RANGES, HashBy
from shardsdk.rbac import Manifest, Rule, account_with, grant, rules_for
from shardsdk.reconcile.spec import ControllerSpec, Scope

#: What the sharder does with a ring's objects.  Source: rbac/ring.yaml.
SHARDER_VERBS: Final = ("list", "watch", "patch")
#: A StatefulSet's pods, and what they are labelled with, are named after it.
MAX_NAME_CHARACTERS: Final = 52
#: Longer than a pod takes to be replaced.
RESTART_GRACE_SECONDS: Final = 60


@dataclass(frozen=True, slots=True)
class Wanted:
    """How it is to be installed; `None`: as the operator says, or by default."""

    #: What its pods run; nothing where they are not asked for.
    image: str | None = None
    #: Its ring, and what the sharder may do with that, are all that is asked for.
    ring_only: bool = False
    namespace: str = "default"
    watch_namespaces: Sequence[str] = ()
    replicas: int | None = None
    stateful: bool = False
    args: Sequence[str] = ()
    sharder: tuple[str, str] = ("sharding-system", "sharder")
    #: What its ring lists no more, and has labelled: the sharder may take the labels off.
    former: Sequence[GroupResource] = ()
    #: What of an object its ring hashes, to name shards for ranges of that; `None`: objects carry their shard's label.
    hash_by: HashBy | None = None
    #: Have cert-manager make the webhooks' certificate, by an authority of the operator's own; or by `issuer`.
    cert_manager: bool = False
    issuer: str | None = None


@dataclass(frozen=True, slots=True)
class Deployed:
    """What it consists of; a chart leaves places open in it."""

    definitions: Sequence[Manifest]
    own: Sequence[Rule]
    objects: Sequence[Rule]
    cluster: Sequence[Rule]
    namespaces: Sequence[str]
    ring: str | None
    ring_resources: Sequence[Mapping[str, Any]]
    sharder: tuple[str, str]
    #: The Service and the configurations of its webhooks, for a namespace.
    webhooks: Callable[[str], Sequence[Manifest]]
    pods: Pods
    #: What the ring lists no more, and has labelled.
    former: Sequence[GroupResource] = ()
    #: What the ring hashes, if it assigns ranges: then the sharder touches none of its objects.
    hash_by: HashBy | None = None
    #: Who signs the webhooks' certificate, when cert-manager makes it.
    issuer: Issuer | None = None
    #: The ring is all that was asked for.
    ring_only: bool = False

    def manifests(self) -> list[Manifest]:
        """What was asked for, in the order in which it is best applied."""
        if self.ring_only:
            return self.sharding()
        access = [*self.access(), *self.sharding()]
        return [*self.definitions, *access, *self.certificates(), *workload(self.pods), *self.admission()]

    def certificates(self) -> list[Manifest]:
        """What has cert-manager make the webhooks' certificate, for which the pods wait."""
        if self.issuer is None:
            return []
        made = self.authority() if self.issuer == Issuer.of_its_own(self.pods.name) else []
        return [*made, render_certificate(self.pods.name, self.pods.namespace, self.issuer.reference())]

    def authority(self) -> list[Manifest]:
        """An authority of the operator's own, by cert-manager."""
        return render_authority(self.pods.name, self.pods.namespace)

    def admission(self) -> list[Manifest]:
        """What has API servers ask its webhooks: last, since from then on somebody has to answer."""
        return list(self.webhooks(self.pods.namespace))

    def access(self) -> list[Manifest]:
        """Its ServiceAccount, and what that may do."""
        made = account_with(
            self.pods.namespace,
            self.pods.name,
            own=self.own,
            objects=self.objects,
            cluster=self.cluster,
            namespaces=self.namespaces,
        )
        return [_labelled(each, self.pods.name) for each in made]

    def sharding(self) -> list[Manifest]:
        """Its ring, and what the sharder may do with the objects of that."""
        if self.ring is None:
            return []
        how: dict[str, Any] = {} if self.hash_by is None else {"assignment": BY_RANGES, "hashBy": str(self.hash_by)}
        if self.namespaces:
            # Objects of others would be given to shards that do not see them, and never be taken from them again.
            how["namespaceSelector"] = select_by_name(self.namespaces)
        ring = {
            "apiVersion": f"{API_GROUP}/{API_VERSION}",
            "kind": RING_KIND,
            "metadata": {"name": self.ring},
            "spec": {**how, "resources": list(self.ring_resources)},
        }
        if self.hash_by is not None:
            return [_labelled(ring, self.pods.name)]
        rules = rules_for(self.labelled(), SHARDER_VERBS)
        role = grant("ClusterRole", {"name": f"sharding:clusterring:{self.ring}"}, rules, self.sharder)
        return [_labelled(each, self.pods.name) for each in (ring, *role)]

    def labelled(self) -> set[GroupResource]:
        """What carries the ring's labels, as far as it is known here; nothing, by ranges."""
        if self.ring is None or self.hash_by is not None:
            return set()
        return {*_listed(self.ring_resources), *self.former}


def deployed(program: Program, wanted: Wanted) -> Deployed:
    """What `program` takes on a cluster.  Raises: ConfigurationError, with what to write instead."""
    operator = program.operator
    name = operator.name
    if not is_dns_label(name, MAX_NAME_CHARACTERS):
        raise ConfigurationError(
            f"operator {name!r} cannot name pods: use up to {MAX_NAME_CHARACTERS} lower-case letters, digits and '-'"
        )
    for each in (wanted.namespace, *wanted.watch_namespaces):
        if not is_dns_label(each):
            raise ConfigurationError(
                f"{each!r} cannot be the name of a namespace: use up to {LABEL_CHARACTERS} lower-case letters, digits"
                " and '-'"
            )
    manager = operator.manager(watch_namespace=list(wanted.watch_namespaces) or operator.watch_namespace)
    issuer = _issuer(operator, wanted)
    by_ranges = wanted.hash_by is not None
    serving = Serving(cert_dir=mounted_secret_name(name)) if issuer else Serving()
    permissions = operator.permissions(webhooks=serving, by_ranges=by_ranges)
    sharded = operator.ring is not None
    if wanted.ring_only and not sharded:
        raise ConfigurationError(f"operator {name!r} is not sharded; --ring-only is for the ring of one that is")
    if wanted.image is None and not wanted.ring_only:
        raise ConfigurationError("name what its pods run: --image IMAGE, as in registry.example.com/websites:1")
    if wanted.stateful and not sharded:
        raise ConfigurationError(
            f"operator {name!r} is not sharded; a StatefulSet is for shards, which keep their names"
        )
    _check_former(wanted, sharded)
    if wanted.hash_by is not None:
        _check_hashing(name, sharded, wanted.hash_by, manager.controllers)
    told = [f"--watch-namespace={each}" for each in wanted.watch_namespaces]
    # A pod that comes back under its name finds its objects; without, they would move away and back.
    told += [f"--restart-grace={RESTART_GRACE_SECONDS}"] if wanted.stateful else []
    replicas = wanted.replicas if wanted.replicas is not None else SHARDS if sharded else ELECTED_REPLICAS
    watched = [each for each in manager.watch_namespaces if each]

    def webhooks(namespace: str) -> Sequence[Manifest]:
        service = operator.webhook_service(namespace)
        annotations = inject_annotations(name, namespace) if issuer else None
        made = operator.webhook_configurations(namespace, annotations=annotations, namespaces=watched)
        return [service, *made] if service else []

    return Deployed(
        definitions=program.definitions(),
        own=permissions.own,
        objects=permissions.objects,
        cluster=permissions.cluster,
        namespaces=watched,
        ring=operator.ring,
        ring_resources=ring_resources(manager.controllers),
        sharder=wanted.sharder,
        former=wanted.former,
        hash_by=wanted.hash_by,
        webhooks=webhooks,
        pods=Pods(
            name,
            wanted.namespace,
            wanted.image or "",
            replicas,
            args=[*wanted.args, *told],
            sharded=sharded,
            stateful=wanted.stateful,
            webhooks=bool(operator.webhooks()),
            grace_seconds=max(GRACE_SECONDS, stop_seconds(operator.webhooks()) + END_SECONDS),
            certificate=mounted_secret_name(name) if issuer else "",
        ),
        issuer=issuer,
        ring_only=wanted.ring_only,
    )


def describe_limit(whole: Deployed, wanted: Wanted) -> str:
    """A line to whoever limits a ring to namespaces, which is one for the whole cluster; empty: nobody does."""
    if whole.ring is None or not wanted.watch_namespaces:
        return ""
    return (
        f"ring {whole.ring!r} covers {', '.join(sorted(whole.namespaces))} and no other namespace, wherever its shards"
        " run; the same operator for other namespaces takes a ring of its own: Operator(…, ring=…)\n"
    )


def _issuer(operator: Operator, wanted: Wanted) -> Issuer | None:
    """Who signs the certificate of its webhooks; `None`: its replicas do.  Raises: ConfigurationError."""
    if not wanted.cert_manager and wanted.issuer is None:
        return None
    if wanted.cert_manager and wanted.issuer is not None:
        raise ConfigurationError(
            "--cert-manager is for an authority of the operator's own, --issuer for another one: leave one of them out"
        )
    if not operator.webhooks():
        raise ConfigurationError(
            f"operator {operator.name!r} has no webhooks, which are all that it would take a certificate for: leave"
            f" {'--cert-manager' if wanted.issuer is None else '--issuer'} away"
        )
    return Issuer.of_its_own(operator.name) if wanted.issuer is None else Issuer.parse(wanted.issuer)


def _check_former(wanted: Wanted, sharded: bool) -> None:
    """Raises: ConfigurationError where nothing has labels of a ring."""
    if wanted.former and (not sharded or wanted.hash_by is not None):
        raise ConfigurationError("--former is for a ring that labels objects; leave it away")


def _sharded(specs: Iterable[ControllerSpec[Any]]) -> Iterable[ControllerSpec[Any]]:
    """Those whose objects the ring spreads."""
    return (spec for spec in specs if spec.scope in (None, Scope.SHARDED))


def _check_hashing(name: str, sharded: bool, by: HashBy, specs: Iterable[ControllerSpec[Any]]) -> None:
    """Whether a ring of its can hash this.  Raises: ConfigurationError.  Source: crds/clusterrings.yaml."""
    if not sharded:
        raise ConfigurationError(f"operator {name!r} is not sharded; --hash-by is for the ring of one that is")
    for spec in _sharded(specs):
        main = spec.main.resource
        if by is HashBy.UID and spec.children:
            raise ConfigurationError(
                f"with --hash-by UID {main.kind} and what it owns lie apart: write --hash-by Namespace, so that all"
                " objects of a namespace are on one shard"
            )
        if by is HashBy.NAMESPACE and not main.namespaced:
            raise ConfigurationError(f"{main.kind} is in no namespace: write --hash-by UID")


def ring_resources(specs: Iterable[ControllerSpec[Any]]) -> list[dict[str, Any]]:
    """What a ring has to list for shards that run these: main resources, each with what its objects own."""
    owned: dict[GroupResource, dict[GroupResource, None]] = {}
    for spec in _sharded(specs):
        mine = owned.setdefault(spec.main.resource.group_resource, {})
        mine.update(dict.fromkeys(child.resource.group_resource for child in spec.children))
    return [
        {**_entry(main), **({"controlledResources": [_entry(each) for each in sorted(children)]} if children else {})}
        for main, children in sorted(owned.items())
    ]


def _entry(resource: GroupResource) -> dict[str, Any]:
    return {"group": resource.group, "resource": resource.resource}


def _listed(resources: Iterable[Mapping[str, Any]]) -> set[GroupResource]:
    entries = [each for main in resources for each in (main, *main.get("controlledResources", ()))]
    return {GroupResource(each["group"], each["resource"]) for each in entries}


def _labelled(manifest: Manifest, name: str) -> Manifest:
    return {**manifest, "metadata": {**manifest["metadata"], "labels": labels_of(name)}}

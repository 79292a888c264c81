"""Operator: the program that somebody writes, from which a manager is made.

    operator = Operator("websites")

    @operator.reconcile(Website, owns=[ConfigMap])
    async def website(ctx: Context[Website]) -> WebsiteStatus: ...

    operator.run()

Of its replicas one leads and reconciles all objects; with `sharded=True` each
is a shard, and has the objects that the sharder gives it.  The functions stay as
they are.  Neither form begins while processes of the other one are at work.

Refuses: to do anything itself.  What runs is `Manager`, with a `ControllerSpec`
for each function; whoever needs more of them takes `manager()`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NoReturn, TypeVar

from shardsdk.admission.configuration import labels_of, render_configurations, render_service, service_name
from shardsdk.admission.settings import Serving
from shardsdk.admission.webhook import FailurePolicy, Review, Sort, Webhook
from shardsdk.errors import ConfigurationError
from shardsdk.kinds import CustomResource, Kind, resource_of
from shardsdk.kinds.declaration import declaration_of
from shardsdk.lease.timings import LeaseTimings
from shardsdk.logs import setup_logging_unless_done
from shardsdk.operator.declared import Declared, Settings, check_kinds
from shardsdk.operator.declaring import Declaring, does_nothing
from shardsdk.operator.indexes import Indexes, add_index, indexes_of
from shardsdk.operator.permissions import Permissions, permissions_of, serving_rules
from shardsdk.operator.reconciler import Function, Reconciler, check_unique
from shardsdk.operator.returns import status_of
from shardsdk.operator.scopes import check_scopes, elected
from shardsdk.operator.webhooks import TIMEOUT_SECONDS, Declarations, Mutated, On, Validated
from shardsdk.process.beginning import check_may_run
from shardsdk.process.changeover import OtherForm
from shardsdk.process.manager import Manager
from shardsdk.process.process import exit_code_for
from shardsdk.protocol.labels import parse_ring_name
from shardsdk.protocol.names import is_dns_subdomain
from shardsdk.protocol.objects import GroupResource, Resource
from shardsdk.queueing.predicates import Predicate, always
from shardsdk.queueing.queue import RateLimit
from shardsdk.rbac import check_verbs
from shardsdk.reconcile.spec import ControllerSpec, Scope, Task, TaskSpec, check_scope

K = TypeVar("K", bound=Kind)
F = TypeVar("F", bound=Task)
V = TypeVar("V", bound=Iterable[str])

#: How pods serve webhooks, with certificates of their own.
_BY_DEFAULT: Final = Serving()


class Operator:
    """What reconciles objects of some kinds, under one name.

    Unsharded, one replica of those with this `name` leads and reconciles everything.  `sharded`, each replica is a
    shard of the ring `ring` (by default the name).  Objects are watched in `watch_namespace` (`None`: in all; several
    may be given).

    Raises: ConfigurationError for a name that can be no Lease's, or no ring's.
    """

    def __init__(
        self,
        name: str,
        *,
        sharded: bool = False,
        ring: str = "",
        watch_namespace: str | Sequence[str] | None = None,
        timings: LeaseTimings | None = None,
    ) -> None:
        if not is_dns_subdomain(name, 63):
            raise ConfigurationError(
                f"{name!r} cannot be an operator's name, which names its Lease: use up to 63 lower-case letters, digits"
                " and '-'"
            )
        self.name = name
        self.sharded = sharded
        self._check(ring)
        #: The ring that it is a shard of; `None`: of none.
        self.ring: str | None = (ring or name) if sharded else None
        self.watch_namespace = watch_namespace
        self._timings = timings
        self._reconcilers: list[Reconciler[Any]] = []
        self._tasks: list[TaskSpec] = []
        self._indexes: dict[Resource, Indexes] = {}
        self._needed: dict[Resource | GroupResource, list[str]] = {}
        self._defined: list[type[Kind]] = []
        #: Refuses what is declared once it has begun.
        self.declaring: Final = Declaring(name)
        self._webhooks = Declarations(name, self.declaring)

    # -- what it does ----------------------------------------------------------------

    def reconcile(
        self,
        kind: type[K],
        *,
        owns: Iterable[type[Kind]] = (),
        prune: bool = False,
        name: str = "",
        scope: Scope | None = None,
        when: Predicate[K] = always,
        concurrency: int = 1,
        timeout_seconds: float | None = None,
        drain_timeout_seconds: float | None = None,
        rate_limit: RateLimit | None = None,
        max_writes: int | None = None,
    ) -> Callable[[Function[K]], Reconciler[K]]:
        """Have the decorated function called for each object of `kind` that has changed, or a child of which has.

        It makes objects of the kinds `owns`, by `ctx.apply`; with `prune` those that it has applied before and does
        not now are deleted.  What it returns is the object's status.  `scope` says where it runs, if not where the
        operator's others do; a second function for one kind needs a `name`.  The rest is as in
        `ControllerSpec.options`.

        Raises: ConfigurationError.
        """
        declared = Declared(
            kind,
            self.name,
            name,
            check_kinds(kind, owns),
            prune,
            scope,
            when,
            Settings(concurrency, timeout_seconds, drain_timeout_seconds, rate_limit, max_writes),
            self.declaring.check,
        )
        check_scope(scope, f"reconcile({kind.__name__})")

        def add(function: Function[K]) -> Reconciler[K]:
            self.declaring.check(f"reconcile({kind.__name__})")
            made: Reconciler[K] = Reconciler(function, declared)
            functions = [*self._reconcilers, made]
            check_unique(functions)
            if self.sharded:
                from shardsdk.operator.ringparts import check_parts  # of sharded ones alone

                check_parts(each.declared for each in functions)
            self._reconcilers.append(made)
            return made

        return add

    def validate(
        self,
        kind: type[K],
        *,
        on: Iterable[On] = ("create", "update"),
        on_failure: FailurePolicy = "Fail",
        timeout_seconds: int = TIMEOUT_SECONDS,
        namespace_selector: Mapping[str, Any] | None = None,
        object_selector: Mapping[str, Any] | None = None,
        match_conditions: Sequence[str] | Mapping[str, str] = (),
        name: str = "",
    ) -> Callable[[Callable[[Review[K]], Validated]], Callable[[Review[K]], Validated]]:
        """Have API servers ask the decorated function before an object of `kind` is stored, or gone.

        It raises `Denied` to refuse, and may return warnings.  `on_failure` says what becomes of a request when the
        function fails, or no replica answers in `timeout_seconds`: by default it is refused, so that nothing is
        stored that the function has not seen.  It is called for objects with labels of `object_selector`, in
        namespaces with labels of `namespace_selector` (both LabelSelectors), if all `match_conditions` (CEL) hold.

            @operator.validate(Website)
            def check(review: Review[Website]) -> None: ...

        Raises: ConfigurationError.
        """
        return self._webhooks.add(
            Sort.VALIDATE,
            kind,
            on=on,
            on_failure=on_failure,
            timeout_seconds=timeout_seconds,
            namespace_selector=namespace_selector,
            object_selector=object_selector,
            match_conditions=match_conditions,
            name=name,
        )

    def mutate(
        self,
        kind: type[K],
        *,
        on: Iterable[On] = ("create", "update"),
        on_failure: FailurePolicy = "Fail",
        timeout_seconds: int = TIMEOUT_SECONDS,
        namespace_selector: Mapping[str, Any] | None = None,
        object_selector: Mapping[str, Any] | None = None,
        match_conditions: Sequence[str] | Mapping[str, str] = (),
        name: str = "",
    ) -> Callable[[Callable[[Review[K]], Mutated]], Callable[[Review[K]], Mutated]]:
        """Have the decorated function change objects of `kind` before they are stored, and validated.

        It changes `review.object`, or returns another object; what its class does not know stays.  It may be called
        twice for one request, so it leaves alone what is as it should be.  The rest is as in `validate`.

            @operator.mutate(Website)
            def fill_in(review: Review[Website]) -> None: ...

        Raises: ConfigurationError.
        """
        return self._webhooks.add(
            Sort.MUTATE,
            kind,
            on=on,
            on_failure=on_failure,
            timeout_seconds=timeout_seconds,
            namespace_selector=namespace_selector,
            object_selector=object_selector,
            match_conditions=match_conditions,
            name=name,
        )

    def task(self, *, scope: Scope | None = None, name: str = "") -> Callable[[F], F]:
        """Have the decorated function run as long as the reconciles of `scope` do; it is handed a fenced `Api`.

        @operator.task()
        async def report(api: Api) -> None: ...
        """

        def add(function: F) -> F:
            self.declaring.check("a task")
            spec = TaskSpec(name or getattr(function, "__name__", "task"), function, scope)
            self._tasks.append(spec)
            return function

        return add

    def on_every_replica(self, function: F) -> F:
        """Have the decorated function run on every replica, leader or not, as long as the process does.

        @operator.on_every_replica
        async def serve(api: Api) -> None: ...
        """
        return self.task(scope=Scope.EVERYWHERE)(function)

    def index(self, kind: type[K], name: str) -> Callable[[Callable[[K], V]], Callable[[K], V]]:
        """Have `ctx.cache(kind).by_index(name, value)` find the objects for which the decorated function gives `value`.

        For a kind that is owned or watched; the reconciler of a kind has `index` itself.
        """

        def add(function: Callable[[K], V]) -> Callable[[K], V]:
            self.declaring.check(f"index({name!r})")
            add_index(self._indexes.setdefault(resource_of(kind), {}), kind, name, function)
            return function

        return add

    def needs(self, kind: type[Kind] | Resource | GroupResource, *verbs: str) -> None:
        """Say that its functions do this with objects that they neither own nor watch; it shows in `permissions`.

        A GroupResource is taken for one in namespaces, unless a kind that it owns or watches says otherwise.

            operator.needs(Namespace, "get")

        Raises: ConfigurationError for none, and for what is no verb.
        """
        if not verbs:
            raise ConfigurationError('needs(…) names no verbs: write needs(Namespace, "get")')
        check_verbs(verbs, "needs(…)")
        resource = kind if isinstance(kind, Resource | GroupResource) else resource_of(kind)
        self._needed.setdefault(resource, []).extend(verbs)

    def defines(self, *kinds: type[Kind]) -> None:
        """Have its CustomResourceDefinitions say these as well, such as versions of which it works with another."""
        for kind in kinds:
            declaration_of(kind)  # refuses what the API server brings along
            self._defined.append(kind)

    # -- what it is ------------------------------------------------------------------

    def kinds(self) -> list[type[Kind]]:
        """The custom resources among the kinds that it has to do with, and what it `defines`."""
        models = [source.model for spec in self.controllers() for source in spec.resources]
        models += [each.kind for each in self._webhooks.all]
        return list(dict.fromkeys([*(each for each in models if issubclass(each, CustomResource)), *self._defined]))

    def controllers(self) -> list[ControllerSpec[Any]]:
        """What it reconciles, described; for a manager.  Raises: ConfigurationError."""
        check_unique(self._reconcilers)  # who cleans up is known by now
        return [spec for each in self._reconcilers for spec in each.specs()]

    def webhooks(self) -> list[Webhook]:
        """What API servers ask it."""
        return list(self._webhooks.all)

    def webhook_configurations(
        self,
        namespace: str,
        *,
        client_config: Mapping[str, Any] | None = None,
        annotations: Mapping[str, str] | None = None,
        ca_bundle: bytes | None = None,
        namespaces: Sequence[str] | None = None,
        ring: str = "",
        name: str = "",
    ) -> list[dict[str, Any]]:
        """The webhook configurations of an operator that runs in `namespace`: none, one, or two.

        API servers call its Service, unless `client_config` says otherwise (as a WebhookClientConfig).  The
        authority to trust is filled in by its replicas, unless it is given (`ca_bundle`, PEM) or injected by
        cert-manager (`annotations`).  `namespaces` are those that it watches, `ring` is its ring, if not what the
        operator says.
        """
        watched = self.watch_namespace if namespaces is None else namespaces
        service = {"service": {"name": service_name(self.name), "namespace": namespace}}
        return render_configurations(
            self._webhooks.all,
            name or self.name,
            client_config or service,
            labels=labels_of(self.name),
            annotations=annotations,
            ca_bundle=ca_bundle,
            namespaces=[watched] if isinstance(watched, str) else list(watched or ()),
            ring=ring or self.ring,
        )

    def webhook_service(self, namespace: str) -> dict[str, Any] | None:
        """The Service by which API servers call it; `None`: it has no webhooks."""
        return render_service(self.name, namespace) if self._webhooks.all else None

    def permissions(self, *, webhooks: Serving | None = _BY_DEFAULT, by_ranges: bool = False) -> Permissions:
        """What it may need to do; `webhooks`: how they are served (`None`: not); `by_ranges`: its ring assigns so."""
        own_rules, cluster_rules = serving_rules(self.name, self._webhooks.all, webhooks)
        main = {each.declared.kind for each in self._reconcilers}
        return permissions_of(
            self.controllers(),
            with_status=(resource_of(kind) for kind in main if status_of(kind) is not None),
            further=self._needed,
            ring=self.ring,
            by_ranges=by_ranges,
            own_rules=own_rules,
            cluster_rules=cluster_rules,
        )

    def manager(self, *, ring: str = "", webhooks: Serving | None = None, **settings: Any) -> Manager:
        """A manager that runs it; `settings` are `Manager`'s, and come before what the operator was told.

        A sharded one is a shard of `ring`, if not of its own.  `webhooks` says how they are served; outside of a pod
        they are not, unless it has an address.

        Raises: ConfigurationError.
        """
        self._check(ring)
        given = {"watch_namespace": self.watch_namespace, "timings": self._timings, "program": self.name, **settings}
        if not self._reconcilers and not self._tasks and not self._webhooks.all:
            raise does_nothing(self.name)
        if not self.sharded:
            check_scopes(self.name, self.controllers(), self._tasks)
        scopes = [*(spec.scope for spec in self.controllers()), *(task.scope for task in self._tasks)]
        manager = Manager(ring or self.ring, **elected(self.name, scopes, given, sharded=self.sharded))
        # One that is a shard and stands for election as well has both forms' leases: nobody can tell whose they are.
        if (manager.ring is None) is not (manager.election is None):
            manager.other_form = OtherForm(self.name, elected=self.sharded)
        for spec in self.controllers():
            manager.add(spec)
        for resource, indexes in indexes_of(self._indexes, self._reconcilers).items():
            manager.cache(resource, indexes=indexes)
        for task in self._tasks:
            manager.run_task(task.function, name=task.name, scope=task.scope)
        if self._webhooks.all:
            render = partial(self.webhook_configurations, ring=ring)
            self._webhooks.serve_by(manager, webhooks or Serving(), given.get("namespace"), render)
        self.declaring.end()
        return manager

    def run(self, *, ring: str = "", webhooks: Serving | None = None, **settings: Any) -> NoReturn:
        """Be the process: run until a signal, a lost lease or a failure; see `manager`.

        Raises: SystemExit with an `ExitCode`; ConfigurationError where it is not to run, as `Manager.run`.
        """
        check_may_run()
        try:
            manager = self.manager(ring=ring, webhooks=webhooks, **settings)
        except ConfigurationError as error:
            setup_logging_unless_done()
            raise SystemExit(int(exit_code_for(error))) from None
        manager.run()

    # -- inside ----------------------------------------------------------------------

    def _check(self, ring: str) -> None:
        """Raises: ConfigurationError."""
        if ring and not self.sharded:
            raise ConfigurationError(f"operator {self.name!r} has a ring but is not sharded: pass sharded=True")
        if ring or self.sharded:
            parse_ring_name(ring or self.name)

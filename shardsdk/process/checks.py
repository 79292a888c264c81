"""What a manager was told, checked as a whole before anything starts, with what to change in each message."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

from shardsdk.errors import ConfigurationError
from shardsdk.lease.leadership import Candidate, Election
from shardsdk.lease.shardlease import ShardLease
from shardsdk.process.beginning import check_not_loading
from shardsdk.process.health import Check
from shardsdk.protocol.names import is_dns_label
from shardsdk.protocol.objects import GroupResource
from shardsdk.queueing.functions import is_async
from shardsdk.queueing.queue import RateLimit
from shardsdk.queueing.workers import MAX_CONCURRENCY
from shardsdk.reconcile.caches import CacheSettings
from shardsdk.reconcile.spec import ControllerSpec, Scope, Source, TaskSpec, Work

if TYPE_CHECKING:
    from shardsdk.process.manager import Manager


def listed(watch_namespace: str | Sequence[str] | None) -> tuple[str, ...]:
    """The namespaces that a manager is told to watch; what is no list is one of them, which `check_told` looks at."""
    if isinstance(watch_namespace, Iterable) and not isinstance(watch_namespace, str | bytes):
        return tuple(watch_namespace)
    return () if watch_namespace is None else (watch_namespace,)


def check_told(manager: Manager) -> None:
    """Raises: ConfigurationError for what is no text, no name of a namespace, or no election, where it should be."""
    for name in ("ring", "shard", "namespace", "context", "program"):
        if not isinstance(said := getattr(manager, name), str | None):
            raise ConfigurationError(f"{name}={said!r} is no text")
    if not isinstance(manager.election, Election | None):
        raise ConfigurationError(f"election={manager.election!r} is none: write Election(name)")
    _check_namespaces(manager.watch_namespaces)


def check_grace(seconds: object) -> None:
    """Raises: ConfigurationError."""
    if not isinstance(seconds, int | float):
        raise ConfigurationError(f"grace_seconds={seconds!r} is no number of seconds")
    if not seconds >= 0:
        raise ConfigurationError(f"grace_seconds is {seconds:g}, but reconciles cannot end in the past: use 0 or more")


def usable(name: str, check: Check, own: Collection[str]) -> Check:
    """A check for health or readiness, as it is.

    Raises: ConfigurationError for one that would have to be awaited, or is called as one of the manager's `own`, some
    of which it has only where it serves, or in a ring.
    """
    if name in own:
        raise ConfigurationError(f"the manager has a check called {name!r}: give yours another name")
    if is_async(check):
        raise ConfigurationError(
            f"the check {name!r} is an async function, but checks are called in threads: write a plain one (`def`), and"
            " let a task keep what it tells"
        )
    return check


def check_specs(specs: Sequence[ControllerSpec[Any]]) -> None:
    """Raises: ConfigurationError when the controllers cannot run together."""
    titles = [spec.title for spec in specs]
    seen: dict[GroupResource, Source] = {}
    limits: dict[GroupResource, float | None] = {}
    for spec in specs:
        _check_spec(spec)
        if titles.count(spec.title) > 1:
            raise ConfigurationError(f"two controllers are called {spec.title!r}: name one by .options(name=…)")
        limit = limits.setdefault(spec.main.resource.group_resource, spec.drain_timeout_seconds)
        if limit != spec.drain_timeout_seconds:
            raise ConfigurationError(
                f"controllers of {spec.main.resource.group_resource} differ in drain_timeout_seconds: a drain waits for"
                " all of them, so give them the same"
            )
        for source in spec.resources:
            other = seen.setdefault(source.resource.group_resource, source)
            if (source.resource, source.model, source.metadata_only) != (
                other.resource,
                other.model,
                other.metadata_only,
            ):
                raise ConfigurationError(
                    f"{source.resource.group_resource} is used with two versions or models: one resource has one cache,"
                    " so all controllers must use the same"
                )


def _check_spec(spec: ControllerSpec[Any]) -> None:
    if spec.function is None:
        raise ConfigurationError(f"controller {spec.title!r} has no function: call .reconcile(function)")
    numbers = {name: getattr(spec, name) for name in ("timeout_seconds", "drain_timeout_seconds", "max_writes")}
    for name, value in {"concurrency": spec.concurrency, **numbers}.items():
        if not isinstance(value, Real | None):
            raise ConfigurationError(
                f"controller {spec.title!r} has {name}={value!r}, which is no number: of a text, as in os.environ, that"
                " is int(…) or float(…)"
            )
    concurrency: object = spec.concurrency
    if not isinstance(concurrency, int) or not 1 <= concurrency <= MAX_CONCURRENCY:
        raise ConfigurationError(
            f"controller {spec.title!r} is to reconcile {concurrency} objects at once: use 1 to {MAX_CONCURRENCY}"
        )
    if not isinstance(spec.rate_limit, RateLimit | None):
        raise ConfigurationError(
            f"controller {spec.title!r} has rate_limit={spec.rate_limit!r}: write RateLimit(per_second=…)"
        )
    for name, value in numbers.items():
        if value is not None and not value > 0:
            raise ConfigurationError(f"controller {spec.title!r} has {name} {value:g}: use more than zero, or none")


def check_work(
    specs: Sequence[ControllerSpec[Any]],
    tasks: Sequence[TaskSpec],
    *,
    ring: str | None,
    election: Election | None,
) -> dict[Scope, Work]:
    """What runs where.  Raises: ConfigurationError when something can run nowhere, or nothing runs where it should."""
    default = Scope.SHARDED if ring is not None else Scope.LEADER if election is not None else Scope.EVERYWHERE
    work = {
        scope: Work(
            [spec for spec in specs if (spec.scope or default) is scope],
            [task for task in tasks if (task.scope or default) is scope],
        )
        for scope in Scope
    }
    if not specs and not tasks:
        raise ConfigurationError("the manager has nothing to run: add a controller")
    if ring is None and work[Scope.SHARDED]:
        raise ConfigurationError(
            f"{_first_of(work[Scope.SHARDED])} is to run under a shard's lease, but the manager has no ring: pass"
            " Manager(ring), or give it another scope"
        )
    if ring is not None and not work[Scope.SHARDED]:
        raise ConfigurationError(
            f"the shard of ring {ring!r} would be given objects that nobody reconciles: add a controller that runs"
            " sharded, or leave the ring out"
        )
    if election is None and work[Scope.LEADER]:
        raise ConfigurationError(
            f"{_first_of(work[Scope.LEADER])} is to run on the leader, but the manager has no election: pass"
            " Manager(election=Election(name))"
        )
    if election is not None and not work[Scope.LEADER]:
        raise ConfigurationError(
            f"the election {election.name!r} would make a leader that has nothing to do: mark a controller by"
            " .on_leader(), or leave the election out"
        )
    return work


def _first_of(work: Work) -> str:
    """The first of what runs in one scope."""
    return f"controller {work.specs[0].title!r}" if work.specs else f"task {work.tasks[0].name!r}"


def check_leases(lease: ShardLease | None, candidate: Candidate | None, operator: str = "") -> None:
    """Raises: ConfigurationError when the shard's lease would be the election's, its own or that of its `operator`."""
    if lease is not None and lease.name == operator:
        raise ConfigurationError(
            f"the shard is called {operator!r} as its operator is, whose Lease in its elected form would be this"
            f" shard's: give the shard another name (`--shard {operator}-0`)"
        )
    if lease is None or candidate is None:
        return
    if (lease.namespace, lease.name) == (candidate.namespace, candidate.election.name):
        raise ConfigurationError(
            f"the election is called {lease.name!r} as the shard is, so that both would hold the same Lease: give the"
            " election another name"
        )


def check_settings(settings: Mapping[GroupResource, CacheSettings], sharded: Work) -> None:
    """Raises: ConfigurationError when a shard would not see all objects that it is given, or nobody any."""
    _check_namespaces(*(each.namespaces for each in settings.values()))
    for spec in sharded.specs:
        resource = spec.main.resource.group_resource
        if resource in settings and settings[resource].selector is not None:
            raise ConfigurationError(
                f"the cache of {resource} has a selector, but a shard must see each of its objects to give it away:"
                " choose by a predicate (when=…), or in the reconcile"
            )


def check_indexes(specs: Sequence[ControllerSpec[Any]], settings: Mapping[GroupResource, CacheSettings]) -> None:
    """Raises: ConfigurationError when a watch would ask an index that its main objects' cache does not have."""
    for spec in specs:
        resource = spec.main.resource.group_resource
        known = settings[resource].indexes if resource in settings else {}
        for watch in spec.watched:
            if watch.index and watch.index not in known:
                raise ConfigurationError(
                    f"controller {spec.title!r} watches {watch.source.resource.plural} by the index {watch.index!r},"
                    f" which the cache of {resource} does not have: run its operator by operator.manager(), or give the"
                    f" manager the function by cache(…, indexes={{{watch.index!r}: function}})"
                )


def _check_namespaces(*lists: Sequence[Any] | None) -> None:
    """The empty name means all of them.  Raises: ConfigurationError."""
    for name in (name for names in lists for name in names or ()):
        if name != "" and not (isinstance(name, str) and is_dns_label(name)):
            raise ConfigurationError(
                f"{name!r} cannot be the name of a namespace, so nothing would ever be found there: give several as a"
                " list, ['a', 'b'], and all of them as None"
            )


def check_first(begun: bool) -> None:
    """Raises: ConfigurationError for a manager that has `begun` to run before, or while a command loads its program."""
    check_not_loading()
    if begun:
        raise ConfigurationError("this Manager has run already: make a new one for each run")


def check_in_time(begun: bool, method: str) -> None:
    """Raises: ConfigurationError for what a manager that has `begun` is told by `method`, and would never look at."""
    if begun:
        raise ConfigurationError(
            f"{method}() comes too late: this Manager has begun to run with what it was told before; say all of it"
            " before run() or run_async()"
        )

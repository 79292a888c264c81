"""Reconciler: a reconcile function of an operator, with all that belongs to it.

    @operator.reconcile(Website, owns=[ConfigMap])
    async def website(ctx: Context[Website]) -> WebsiteStatus: ...

    @website.finalize
    async def gone(ctx: Context[Website]) -> None: ...

    website.resync(every=600)

    @website.index("theme")
    def theme_of(site: Website) -> list[str]:
        return [site.spec.theme]

    website.watches(ConfigMap, to="theme")

Refuses what cannot work, where it is written.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Generic, TypeVar, cast, overload

from shardsdk.cache.objects import Request
from shardsdk.errors import ConfigurationError
from shardsdk.kinds import CustomResource, Kind, resource_of
from shardsdk.operator.attempt import Attempts
from shardsdk.operator.declared import Declared, Settings, check_function, check_takes_context
from shardsdk.operator.finalizers import check_name, finalizer_of, former_finalizer_of
from shardsdk.operator.returns import check_returns, no_requests, requests_of, status_of
from shardsdk.queueing.functions import check_plain, is_async
from shardsdk.queueing.predicates import Predicate, always
from shardsdk.queueing.sources import Every, RequestSource
from shardsdk.reconcile.context import Context
from shardsdk.reconcile.serverside import field_owner_of
from shardsdk.reconcile.spec import ControllerSpec, Source, WatchSpec, check_mapping

K = TypeVar("K", bound=Kind)
W = TypeVar("W", bound=Kind)
T = TypeVar("T")
V = TypeVar("V", bound=Iterable[str])
M = TypeVar("M", bound=Iterable[str | Request | Kind])

#: A reconcile function of an operator: async, or plain; a plain function runs in a thread.
#: What it returns is the object's status, when to come back, or nothing.
Function = Callable[[Context[K]], Awaitable[Any] | Any]
#: Which main objects a watched one matters to: names in its namespace, requests, or the objects themselves.
MapTo = Callable[[W], Iterable[str | Request | Kind]]


@dataclass(frozen=True, slots=True)
class _Timer:
    """A function of its own that is called for each object every now and then."""

    name: str
    seconds: float
    function: Callable[[Context[Any]], Any]


class Reconciler(Generic[K]):
    """A reconcile function and what belongs to it; what `Operator.reconcile` makes of the function.

    Called, it is the function.
    """

    def __init__(self, function: Function[K], declared: Declared) -> None:
        check_function(function, declared)
        self.function: Function[K] = function
        self.declared: Final = declared
        self._clean_up: Function[K] | None = None
        self._status = status_of(declared.kind)
        self._watched: list[WatchSpec] = []
        self._sources: list[RequestSource] = []
        self._timers: list[_Timer] = []
        self._indexes: dict[str, Callable[[K], Iterable[str]]] = {}
        #: Declarations that decorate a function, and have not been given one.
        self._bare: set[str] = set()

    def __call__(self, context: Context[K]) -> Any:
        """Call the function, as a test may do."""
        return self.function(context)

    # -- what belongs to it ------------------------------------------------------

    def finalize(self, function: Callable[[Context[K]], T]) -> Callable[[Context[K]], T]:
        """Have `function` called, with a `Context`, before an object goes: it cleans up what Kubernetes has not made.

        The object has a finalizer from before its first reconcile until `function` has succeeded; it may be called
        again, so that it must not mind what is gone already.  It calls `ctx.requeue(after=…)` to be called again,
        unless it returns `Done()`.

            @website.finalize
            async def gone(ctx: Context[Website]) -> None: ...
        """
        self.declared.check("finalize")
        if self._clean_up is not None:
            raise ConfigurationError(f"{self.title!r} has a function for finalize already: call both from one")
        self._same_sort(function, "finalize")
        check_name(self.declared.kind, self.declared.name)
        self._clean_up = function
        return function

    @overload
    def watches(self, kind: type[W], *, to: MapTo[W] | str, when: Predicate[W] = always) -> MapTo[W] | str: ...

    @overload
    def watches(
        self, kind: type[W], *, when: Predicate[W] = always
    ) -> Callable[[Callable[[W], M]], Callable[[W], M]]: ...

    def watches(self, kind: type[W], *, to: MapTo[W] | str | None = None, when: Predicate[W] = always) -> Any:
        """Have a change of an object of `kind` wake the main objects that it matters to.

        `to` says which: a function of the object, or the name of an index of the main objects under which the
        object's name is looked up, in the object's namespace.  Without `to` it decorates the function.

            @website.watches(Secret)
            def sites(secret: Secret) -> list[str]: ...
        """
        if to is None:
            return self._decorator(f"watches({kind.__name__})", partial(self._watch, kind, when))
        return self._watch(kind, when, to)

    def timer(
        self, *, every: float, name: str = ""
    ) -> Callable[[Callable[[Context[K]], T]], Callable[[Context[K]], T]]:
        """Have the decorated function called with each object every so many seconds; it may return a status as well.

        It applies under a field owner of its own, so that neither takes away what the other has applied: what it makes
        is not pruned, and stays until the object goes.  It may run at the same time as the reconcile.  To have the
        reconcile itself called again, see `resync`.

            @website.timer(every=60)
            async def measure(ctx: Context[Website]) -> None: ...
        """

        def add(function: Callable[[Context[K]], T]) -> Callable[[Context[K]], T]:
            self.declared.check("timer")
            self._same_sort(function, "timer")
            check_returns(function, self.declared.kind, self._status)
            called = name or getattr(function, "__name__", "timer")
            if any(timer.name == called for timer in self._timers):
                raise ConfigurationError(
                    f"{self.title!r} has two timers called {called!r}: pass timer(every=…, name=…)"
                )
            Every(every)  # refuses what would never pause
            self._timers.append(_Timer(called, every, function))
            return function

        return self._decorator(f"timer(every={every})", add)

    def resync(self, *, every: float) -> Reconciler[K]:
        """Have every object reconciled every so many seconds, though nothing has changed."""
        return self.source(Every(every))

    def source(self, source: RequestSource) -> Reconciler[K]:
        """Have objects reconciled that `source` asks for: a `Trigger`, or one of your own."""
        self.declared.check("source, or resync")
        self._sources.append(source)
        return self

    @overload
    def index(self, name: str) -> Callable[[Callable[[K], V]], Callable[[K], V]]: ...

    @overload
    def index(self, name: str, function: Callable[[K], V]) -> Callable[[K], V]: ...

    def index(self, name: str, function: Callable[[K], Iterable[str]] | None = None) -> Any:
        """Have `ctx.cache(Kind).by_index(name, value)` find the objects for which `function` gives `value`.

        It is a pure function of the object.
        """

        def add(function: Callable[[K], Iterable[str]]) -> Callable[[K], Iterable[str]]:
            self.declared.check(f"index({name!r})")
            if name in self._indexes:
                raise ConfigurationError(f"{self.title!r} has an index called {name!r} already")
            check_plain(function, f"the index {name!r}")
            self._indexes[name] = function
            return function

        return self._decorator(f"index({name!r})", add) if function is None else add(function)

    # -- what becomes of it --------------------------------------------------------

    @property
    def title(self) -> str:
        """The controller's name."""
        return self.declared.name or str(resource_of(self.declared.kind).group_resource)

    @property
    def indexes(self) -> dict[str, Callable[[Any], Iterable[str]]]:
        """Of the main objects, by name."""
        return dict(self._indexes)

    @property
    def watched(self) -> list[Source]:
        """What it watches besides its own objects and their children."""
        return [watch.source for watch in self._watched]

    @property
    def finalizers(self) -> list[str]:
        """What it takes off: its own, and if it cleans up that of an earlier version."""
        named = (finalizer_of, former_finalizer_of) if self._clean_up else (finalizer_of,)
        return [each(self.declared.kind, self.declared.operator, self.declared.name) for each in named]

    def specs(self) -> list[ControllerSpec[Any]]:
        """The controllers that it is: one, and one for each timer."""
        declared = self.declared
        for what in sorted(self._bare):
            raise ConfigurationError(
                f"{what} of {self.title!r} has no function, so nothing would come of it: write it with an @ above one"
            )
        for watch in self._watched:
            if watch.index and watch.index not in self._indexes:
                raise ConfigurationError(
                    f"{self.title!r} watches {watch.source.resource.plural} by the index {watch.index!r}, which it does"
                    f" not have: declare it by .index({watch.index!r}, function)"
                )
        main = Source(resource_of(declared.kind), declared.kind, predicate=declared.when)
        # The same for all of the operator's life.
        field_owner = field_owner_of("/".join(filter(None, (declared.operator, declared.name))))
        # A reconcile and a timer under one owner would each take away what only the other applies.
        owners = [field_owner_of(field_owner, f"/timer/{timer.name}") for timer in self._timers]
        spec: ControllerSpec[Any] = ControllerSpec(
            main,
            tuple(Source(resource_of(kind), kind) for kind in declared.owns),
            tuple(self._watched),
            tuple((source, always) for source in self._sources),
            declared.scope,
            cast("Any", self.function),
            self._around(owners),
            self.title,
            field_owner,
            **{name: getattr(declared.settings, name) for name in Settings.__dataclass_fields__},
        )
        return [spec, *map(partial(self._timer_spec, spec), self._timers, owners)]

    def _around(self, timers: Sequence[str]) -> Attempts[K]:
        declared = self.declared
        return Attempts(
            self.function,
            clean_up=self._clean_up,
            finalizer=self.finalizers[0],
            former_finalizer=self.finalizers[-1],
            status=self._status,
            # The status of other people's kinds tells what their own controller has seen.
            observes=issubclass(declared.kind, CustomResource),
            pruned=declared.owns if declared.pruned else (),
            timers=timers,
        )

    def _timer_spec(self, spec: ControllerSpec[Any], timer: _Timer, field_owner: str) -> ControllerSpec[Any]:
        """Nothing but the time wakes it; a clean-up is the reconciler's alone."""
        return replace(
            spec,
            main=replace(spec.main, predicate=_never),
            children=tuple(replace(child, predicate=_never) for child in spec.children),
            watched=(),
            sources=((Every(timer.seconds), always),),
            function=cast("Any", timer.function),
            around=Attempts(timer.function, status=self._status, observes=False, timed=True),
            name=f"{self.title}/{timer.name}",
            field_owner=field_owner,
        )

    # -- inside ----------------------------------------------------------------------

    def _decorator(self, what: str, add: Callable[[T], T]) -> Callable[[T], T]:
        """The same as `add`; if it is never called `specs` says so."""
        self._bare.add(what)

        def decorate(function: T) -> T:
            self._bare.discard(what)
            return add(function)

        return decorate

    def _watch(self, kind: type[W], when: Predicate, to: MapTo[W] | str) -> MapTo[W] | str:
        self.declared.check(f"watches({kind.__name__})")
        resource = resource_of(kind)
        if resource.group_resource in [watch.source.resource.group_resource for watch in self._watched]:
            raise ConfigurationError(f"{self.title!r} watches {resource.plural} twice: join the functions")
        check_mapping(to, self.title)
        index = to if isinstance(to, str) else ""
        mapping = no_requests if isinstance(to, str) else partial(requests_of, to, resource_of(self.declared.kind))
        self._watched.append(WatchSpec(Source(resource, kind, predicate=when), mapping, index))
        return to

    def _same_sort(self, function: Callable[..., Any], what: str) -> None:
        """Raises: ConfigurationError unless it takes a context, and is async just when the reconcile function is."""
        check_takes_context(function, self.declared.kind)
        if is_async(function) != is_async(self.function):
            one, other = ("async", "plain") if is_async(self.function) else ("plain", "async")
            raise ConfigurationError(
                f"{self.title!r} has {'an' if one == 'async' else 'a'} {one} reconcile and {other} {what}: write both"
                f" {one} (of a decorated function that counts which the decorator makes)"
            )


def check_unique(functions: Iterable[Reconciler[Any]]) -> None:
    """Raises: ConfigurationError when two functions of an operator have one name, or would share a finalizer."""
    titles, finalizers = set[str](), set[tuple[type[Kind], str]]()
    for each in functions:
        kind, operator = each.declared.kind, each.declared.operator
        remedy = f'as in reconcile({kind.__qualname__}, name="…")'
        if each.title in titles:
            raise ConfigurationError(f"operator {operator!r} has two functions for {each.title}: name one, {remedy}")
        mine = {(kind, finalizer) for finalizer in each.finalizers}
        if mine & finalizers:
            raise ConfigurationError(
                f"operator {operator!r} has two functions for {kind.__qualname__} that would take one another's"
                f" finalizer for theirs: give one of them another name, {remedy}"
            )
        titles.add(each.title)
        finalizers |= mine


def _never(delta: object) -> bool:
    return False

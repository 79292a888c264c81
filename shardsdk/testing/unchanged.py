"""Functions that are asked about the caches' own objects: a driven one that changes them is told so.

Predicates, mappings and indexes are not handed copies: one is asked at each event, and to copy a Pod takes twice as
long as all the rest that is done about it.  What they changed would be what every reconcile is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from shardsdk.cache.objects import request_of
from shardsdk.errors import ConfigurationError
from shardsdk.kinds.wire import encode
from shardsdk.kube.reflector import Delta
from shardsdk.kube.store import Index
from shardsdk.queueing.predicates import Predicate
from shardsdk.queueing.sources import MapFunc
from shardsdk.reconcile.caches import CacheSettings
from shardsdk.reconcile.spec import ControllerSpec, Source

#: Is told what is wrong where nobody hears what is raised.
Tell = Callable[[Exception], object]


def looking_only(spec: ControllerSpec[Any], tell: Tell) -> ControllerSpec[Any]:
    """The same controller; `tell` hears of predicates that change an object, and its mappings raise."""

    def asked(source: Source) -> Source:
        return replace(source, predicate=_predicate(source.predicate, spec.title, tell))

    return replace(
        spec,
        main=asked(spec.main),
        children=tuple(map(asked, spec.children)),
        watched=tuple(
            replace(each, source=asked(each.source), mapping=_mapping(each.mapping, spec.title))
            for each in spec.watched
        ),
        sources=tuple((source, _predicate(when, spec.title, tell)) for source, when in spec.sources),
    )


def indexing_only(settings: CacheSettings, tell: Tell) -> CacheSettings:
    """The same cache; `tell` hears of indexes that change an object."""
    return replace(settings, indexes={name: _index(name, index, tell) for name, index in settings.indexes.items()})


def _predicate(predicate: Predicate, controller: str, tell: Tell) -> Predicate:
    def call(delta: Delta[Any]) -> bool:
        things = [each for each in (delta.object, delta.old) if each is not None]
        before = list(map(encode, things))
        passes = predicate(delta)
        for thing, was in zip(things, before, strict=True):
            if wrong := _changed(thing, was, f"a predicate of {controller!r}"):
                tell(wrong)
        return passes

    return call


def _mapping(mapping: MapFunc, controller: str) -> MapFunc:
    def call(thing: Any) -> Iterator[Any]:
        before = encode(thing)
        yield from mapping(thing)
        if wrong := _changed(thing, before, f"a mapping of {controller!r}"):
            raise wrong

    return call


def _index(name: str, index: Index[Any], tell: Tell) -> Index[Any]:
    def call(thing: Any) -> Iterable[str]:
        before, given = encode(thing), index(thing)
        found = given if isinstance(given, str) else list(given)
        if wrong := _changed(thing, before, f"the index {name!r}"):
            tell(wrong)
        return found

    return call


def _changed(thing: Any, before: Any, what: str) -> ConfigurationError | None:
    if encode(thing) == before:
        return None
    return ConfigurationError(
        f"{what} changed the object {request_of(thing)} that it was asked about, which is the cache's own: every"
        " reconcile would be shown the change, so change a copy of it (copy.deepcopy)"
    )

"""What a reflector knows: objects by namespace and name, answered by key and by index.  Only its reflector writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

from shardsdk.kube.identity import describe_given

T = TypeVar("T")

#: The index values of one object, e.g. the uid of its owner.
Index = Callable[[T], Iterable[str]]


class Key(NamedTuple):
    """Names one object of a resource; the namespace of a cluster-scoped one is empty."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Store(Generic[T]):
    """Read-only to its users; `put` and `drop` are the reflector's.

    Indexes are kept up to date with every change, so reading one costs nothing.
    """

    __slots__ = ("_buckets", "_indexes", "_objects")

    def __init__(self, indexes: Mapping[str, Index[T]] | None = None) -> None:
        self._objects: dict[Key, T] = {}
        self._indexes: dict[str, Index[T]] = dict(indexes or {})
        self._buckets: dict[str, dict[str, dict[Key, None]]] = {name: {} for name in self._indexes}

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: tuple[str, str]) -> bool:
        return key in self._objects

    def __iter__(self) -> Iterator[T]:
        return iter(self._objects.values())

    @property
    def view(self) -> Mapping[Key, T]:
        """All objects by key; follows the store."""
        return MappingProxyType(self._objects)

    def get(self, namespace: str, name: str) -> T | None:
        """One object; `None`: not there."""
        return self._objects.get(Key(namespace, name))

    def at(self, key: Key) -> T | None:
        """The same, by its key."""
        return self._objects.get(key)

    def by_index(self, index: str, value: str) -> list[T]:
        """The objects for which `index` yields `value`.  Raises: KeyError for an index that was not declared."""
        if (buckets := self._buckets.get(index)) is None:
            raise KeyError(f"no index of these objects is called {index!r}, only {', '.join(self._buckets) or 'none'}")
        return [self._objects[key] for key in buckets.get(value, ())]

    def each(self, index: str, value: str) -> Iterator[T]:
        """Those of `by_index` one by one, however many there are, to be gone through before anything changes."""
        return (self._objects[key] for key in self._buckets[index].get(value, ()))

    def index_values(self, index: str) -> list[str]:
        """The values under which any object is found."""
        return list(self._buckets[index])

    def put(self, key: Key, thing: T) -> T | None:
        """Set an object; what was there before, or `None`.

        Raises: what an index raises about the object; then nothing has changed.
        """
        found = {name: dict.fromkeys(_values(name, index(thing))) for name, index in self._indexes.items()}
        old = self._objects.get(key)
        if old is not None:
            self._unindex(key, old)
        self._objects[key] = thing
        for name, values in found.items():
            for value in values:
                self._buckets[name].setdefault(value, {})[key] = None
        return old

    def drop(self, key: Key) -> T | None:
        """Remove an object; what was there, or `None`."""
        old = self._objects.pop(key, None)
        if old is not None:
            self._unindex(key, old)
        return old

    def _unindex(self, key: Key, thing: T) -> None:
        for name, index in self._indexes.items():
            buckets = self._buckets[name]
            try:
                values = list(index(thing))
            except Exception:  # it did not when the object was put: look everywhere
                values = list(buckets)
            for value in values:
                bucket = buckets.get(value)
                if bucket is not None:
                    bucket.pop(key, None)
                    if not bucket:
                        del buckets[value]


def _values(index: str, given: Iterable[str]) -> Iterable[str]:
    """Raises: TypeError for a text, whose letters nobody meant."""
    if isinstance(given, str):
        raise TypeError(f"index {index!r} gave {describe_given(given)}: return a list of values, [] for none")
    return given

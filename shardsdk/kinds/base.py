"""A Python class bound to a kind of Kubernetes object, and what such classes are made of.

Fields are snake_case in Python and camelCase on the wire.  What the API server
sends and a class does not have is skipped unread; what has its default value is
not sent, so that a field which was not set is left to whoever else sets it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeVar, overload

import msgspec
from typing_extensions import dataclass_transform

from shardsdk.errors import ConfigurationError
from shardsdk.kinds.markers import Rule
from shardsdk.protocol.objects import ObjectMeta, Resource

M = TypeVar("M", bound="ModelMeta")
T = TypeVar("T", bound=msgspec.Struct)

#: Of an object that nobody has named yet.
_UNNAMED: Final = ObjectMeta()


@dataclass_transform(field_specifiers=(msgspec.field,))
class ModelMeta(msgspec.StructMeta):
    """Makes the classes of `Model`; `rules` are those that the API server holds its values against.

    Of fields that are `hidden` a `repr` shows at most the keys: it comes into logs, and their values are secret.
    """

    __rules__: tuple[Rule, ...]
    __hidden__: frozenset[str]

    def __new__(
        mcls: type[M],
        name: str,
        bases: tuple[type[Any], ...],
        namespace: dict[str, Any],
        /,
        *,
        rules: Iterable[Rule] = (),
        hidden: Iterable[str] = (),
        **options: Any,
    ) -> M:
        """Take `rules` and `hidden`; msgspec has the other options of a class (`frozen`, `forbid_unknown_fields`, …).

        Raises: ConfigurationError when there is no field that is to be hidden.
        """
        if isinstance(hidden, str):
            raise ConfigurationError(f"{name}: hidden is a list of fields; write hidden=[{hidden!r}]")
        made: M = super().__new__(mcls, name, bases, namespace, **options)
        secret = frozenset(hidden).union(*(getattr(base, "__hidden__", ()) for base in bases))
        if unknown := secret.difference(made.__struct_fields__):
            raise ConfigurationError(f"{name} has no field {min(unknown)!r} to be hidden; {_has(made)}")
        made.__hidden__ = secret
        inherited = (rule for base in bases for rule in getattr(base, "__rules__", ()))
        made.__rules__ = tuple(dict.fromkeys((*inherited, *rules)))
        return made

    if not TYPE_CHECKING:

        def __call__(cls, *values: Any, **fields: Any) -> Any:  # noqa: N805
            """Make one; a field that there is not is refused, with what was probably meant."""
            try:
                return super().__call__(*values, **fields)
            except TypeError:
                if unknown := next((each for each in fields if each not in cls.__struct_fields__), None):
                    raise TypeError(_explain_unknown(cls, unknown)) from None
                raise


class Model(msgspec.Struct, rename="camel", omit_defaults=True, repr_omit_defaults=True, metaclass=ModelMeta):
    """A part of an object: a spec, a status, or what they are made of.

        class WebsiteSpec(Model):
            html: str
            replicas: int = 1

    Decoding is strict about types (`ValidationError`), fields that are not declared are skipped.
    """

    #: pytest would take one that is called TestRun for tests, wherever it is imported.
    __test__: ClassVar[bool] = False

    def __repr__(self) -> str:
        return super(Model, _masked(self)).__repr__()

    def __rich_repr__(self) -> Any:
        return super(Model, _masked(self)).__rich_repr__()


def _masked(thing: T) -> T:
    """The same, to be shown: of what is hidden and set with the keys at most."""
    hidden: frozenset[str] = getattr(type(thing), "__hidden__", frozenset())
    found = {name: getattr(thing, name) for name in hidden}
    if masked := {name: value for name, value in found.items() if value not in (None, "", [], {}, msgspec.UNSET)}:
        thing = copy.copy(thing)
        for name, value in masked.items():
            msgspec.structs.force_setattr(thing, name, dict.fromkeys(value, ...) if isinstance(value, dict) else ...)
    return thing


class KindMeta(ModelMeta):
    """Makes the classes of `Kind`, whose first argument may be a name."""

    if not TYPE_CHECKING:

        def __call__(cls, metadata: ObjectMeta | str = _UNNAMED, *values: Any, **fields: Any) -> Any:  # noqa: N805
            """Make an object; a name stands for the metadata that has it."""
            if isinstance(metadata, str):
                metadata = ObjectMeta(name=metadata)
            return super().__call__(metadata, *values, **fields)


class Metadata:
    """How type checkers see the field `metadata`: read as ObjectMeta, given as one or as a name."""

    @overload
    def __get__(self, thing: None, owner: type[Any]) -> Self: ...

    @overload
    def __get__(self, thing: object, owner: type[Any]) -> ObjectMeta: ...

    def __get__(self, thing: object, owner: type[Any]) -> Any:
        """The object's metadata."""
        raise NotImplementedError

    def __set__(self, thing: object, value: ObjectMeta | str) -> None:
        """Take the object's metadata, or its name."""
        raise NotImplementedError


class Kind(Model, metaclass=KindMeta):
    """A kind of object; `resource` says where the API server serves it.

        class Widget(Kind):
            resource = Resource("example.com", "v1", "widgets", "Widget")
            size: int = 0

    Made with a name, or with metadata: `Widget("a", size=3)`, `Widget(ObjectMeta(name="a", labels={…}))`; without
    either where somebody else fills that in.
    """

    if TYPE_CHECKING:
        metadata: Metadata = Metadata()
    else:
        metadata: ObjectMeta = _UNNAMED
    resource: ClassVar[Resource]


def _explain_unknown(cls: type[msgspec.Struct], name: str) -> str:
    """Of a keyword that is no field of `cls`."""
    import difflib

    known = cls.__struct_fields__
    said = f"{cls.__name__} has no field {name!r}"
    if name in cls.__struct_encode_fields__:  # as it is written in YAML
        return f"{said}; in Python it is {known[cls.__struct_encode_fields__.index(name)]!r}"
    if issubclass(cls, Kind) and name in ObjectMeta.__struct_fields__:
        more = "" if name == "name" else f" or {cls.__name__}(ObjectMeta(name=…, {name}=…), …)"
        return f"{said}: it is of its metadata; write {cls.__name__}(NAME, …){more}"
    if near := difflib.get_close_matches(name, known, 1):
        return f"{said}; did you mean {near[0]!r}?"
    return f"{said}; {_has(cls)}"


def _has(cls: Any) -> str:
    return f"it has {', '.join(cls.__struct_fields__) or 'none'}"


def resource_of(kind: type[Kind] | Kind) -> Resource:
    """Where the API server serves objects of this class.

    Raises: ConfigurationError when the class does not say so, or is no kind at all.
    """
    cls = kind if isinstance(kind, type) else type(kind)
    found = getattr(cls, "resource", None)
    if isinstance(found, Resource):
        return found
    if not issubclass(cls, Kind):
        raise ConfigurationError(
            f"{cls.__qualname__} is no kind: use a class of shardsdk.kinds, or one of your own (a dict is applied by"
            " server_side_apply, and of an object of the kubernetes package as_kind makes one of a kind)"
        )
    raise ConfigurationError(
        f"{cls.__qualname__} is bound to no resource: give it `resource = Resource(group, version, plural,"
        " kind)`, or make it a CustomResource with `group=` and `version=`"
    )

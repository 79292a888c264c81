"""Custom resources as classes.

    class Website(CustomResource[WebsiteSpec, WebsiteStatus], group="example.com", version="v1", short_names=["web"]):
        '''A page and the pods that serve it.'''

What cannot work is refused where the class is written: a spec that is no class
with fields, a status that an object without one could not have, a name that the
API server would not take.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Union, cast, get_args, get_origin

import msgspec
from typing_extensions import TypeVar, dataclass_transform

from shardsdk.errors import ConfigurationError
from shardsdk.kinds.base import Kind, KindMeta
from shardsdk.kinds.declaration import Declaration, Part
from shardsdk.kinds.markers import Column, Rule, Scale
from shardsdk.kinds.versions import version_schema
from shardsdk.protocol.objects import Resource

#: The classes of `spec` and `status`; `None`: objects have none.
SpecT = TypeVar("SpecT", default=None)
StatusT = TypeVar("StatusT", default=None)

M = TypeVar("M", bound="CustomResourceMeta")

_GROUP: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+")
_LABEL: Final = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_KIND: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,62}")


@dataclass_transform(field_specifiers=(msgspec.field,))
class CustomResourceMeta(KindMeta):
    """Makes the classes of `CustomResource` from what they say of themselves."""

    __declaration__: Declaration

    def __new__(
        mcls: type[M],
        name: str,
        bases: tuple[type[Any], ...],
        namespace: dict[str, Any],
        /,
        *,
        group: str = "",
        version: str = "",
        kind: str = "",
        plural: str = "",
        singular: str = "",
        scope: Literal["Namespaced", "Cluster"] = "Namespaced",
        short_names: Iterable[str] = (),
        categories: Iterable[str] = (),
        columns: Iterable[Column] = (),
        rules: Iterable[Rule] = (),
        hidden: Iterable[str] = (),
        scale: Scale | None = None,
        storage: bool | None = None,
        served: bool = True,
        deprecated: str | None = None,
    ) -> M:
        """Bind the class to `group`, `version`, `kind` (its name) and `plural` (the kind's, in English)."""
        if not bases or all(base is Kind for base in bases if base is not Generic):
            return super().__new__(mcls, name, bases, namespace)  # CustomResource itself
        kind = kind or name
        plural = plural or plural_of(kind)
        _check_names(name, group, version, kind, plural, scope)
        parts = _parts_of(name, namespace)
        _add_fields(name, namespace, parts)
        made = super().__new__(mcls, name, bases, namespace, rules=rules, hidden=hidden)
        resource = Resource(group, version, plural, kind, namespaced=scope == "Namespaced")
        made.resource = resource  # type: ignore[attr-defined]
        made.__declaration__ = Declaration(
            resource=resource,
            parts=parts,
            singular=singular or kind.lower(),
            short_names=_words(name, "short_names", short_names),
            categories=_words(name, "categories", categories),
            columns=tuple(columns),
            scale=scale,
            storage=storage,
            served=served,
            deprecated=deprecated,
        )
        version_schema(cast("type[Kind]", made))
        return made

    if not TYPE_CHECKING:

        def __call__(cls, *values: Any, **fields: Any) -> Any:  # noqa: N805
            """Make an object; one without the spec that it needs is refused."""
            part = cls.__declaration__.parts.get("spec")
            if part is not None and part.required and len(values) < 2 and "spec" not in fields:
                raise TypeError(f"{cls.__name__} takes a spec: {cls.__name__}(name, {part.model.__name__}(…))")
            return super().__call__(*values, **fields)


class CustomResource(Kind, Generic[SpecT, StatusT], metaclass=CustomResourceMeta):
    """An object of a kind of your own, with a spec and a status of these classes.

    Class keywords: `group` and `version`; `kind`, `plural` and `singular` where they do not follow from the class's
    name; `scope` ("Namespaced" or "Cluster"), `short_names`, `categories`, `columns` (of `kubectl get`, beside those
    on fields), `rules` (CEL), `hidden` (fields of which a `repr` shows no values), `scale`; of several versions
    `storage=True` on the one that is stored, `served=False` and `deprecated="what to use instead"`.

    An object that has no status yet shows one with all fields at their defaults; with `CustomResource[Spec, Status |
    None]` it shows `None`.
    """

    if TYPE_CHECKING:
        spec: SpecT = cast("SpecT", None)
        status: StatusT = cast("StatusT", None)


def plural_of(kind: str) -> str:
    """The name that a kind's objects have together, as people would write it.

    >>> [plural_of(kind) for kind in ("Website", "Policy", "Ingress", "Gateway")]
    ['websites', 'policies', 'ingresses', 'gateways']
    """
    word = kind.lower()
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return f"{word}es"
    return f"{word[:-1]}ies" if re.search("[^aeiou]y$", word) else f"{word}s"


def _check_names(name: str, group: str, version: str, kind: str, plural: str, scope: str) -> None:
    """Raises: ConfigurationError for what the API server would refuse."""
    checks = (
        ("group", group, _GROUP, 'a domain of yours, such as group="example.com"'),
        ("version", version, _LABEL, 'such as version="v1" or "v1alpha1"'),
        ("kind", kind, _KIND, 'a word in CamelCase, such as kind="Website"'),
        ("plural", plural, _LABEL, 'a word in lower case, such as plural="websites"'),
    )
    for keyword, value, pattern, remedy in checks:
        if not pattern.fullmatch(value):
            raise ConfigurationError(f"custom resource {name}: {keyword}={value!r} has to be {remedy}")
    if scope not in ("Namespaced", "Cluster"):
        raise ConfigurationError(f'custom resource {name}: scope={scope!r} has to be "Namespaced" or "Cluster"')


def _words(name: str, keyword: str, words: Iterable[str]) -> tuple[str, ...]:
    if isinstance(words, str):
        raise ConfigurationError(f"custom resource {name}: write {keyword}=[{words!r}], a list")
    taken = tuple(words)
    for word in taken:
        if not _LABEL.fullmatch(word):
            raise ConfigurationError(f"custom resource {name}: {keyword} has {word!r}, which is no word in lower case")
    return taken


def _parts_of(name: str, namespace: Mapping[str, Any]) -> dict[str, Part]:
    """Spec and status, as the brackets behind CustomResource have them."""
    given = next((base for base in namespace.get("__orig_bases__", ()) if get_origin(base) is CustomResource), None)
    if given is None:
        raise ConfigurationError(
            f"custom resource {name}: write `class {name}(CustomResource[Spec, Status], group=…, version=…)`;"
            " it cannot inherit from another one"
        )
    models = dict(zip(("spec", "status"), get_args(given), strict=False))
    return {part: _part_of(name, part, model) for part, model in models.items() if model not in (None, NoneType)}


def _part_of(name: str, part: str, model: Any) -> Part:
    if get_origin(model) in (Union, UnionType) and NoneType in get_args(model):
        choices = [choice for choice in get_args(model) if choice is not NoneType]
        if len(choices) == 1:
            _check_part(name, part, choices[0])
            return Part(model, required=False)
    _check_part(name, part, model)
    if part == "spec" and not _has_fields(model):
        raise ConfigurationError(
            f"custom resource {name}: {model.__name__} has no fields, so that the API server would keep nothing of what"
            " is written in a spec: give it some, as in `html: str`, or write `CustomResource[None, …]` if there is to"
            " be none"
        )
    required = not has_defaults(model)
    if required and part == "status":
        raise ConfigurationError(
            f"custom resource {name}: an object without a status could not be read: give each field of"
            f" {model.__name__} a default, or write `CustomResource[…, {model.__name__} | None]`"
        )
    return Part(model, required)


def _check_part(name: str, part: str, model: Any) -> None:
    if isinstance(model, type) and not issubclass(model, Kind):
        known = issubclass(model, msgspec.Struct) or is_dataclass(model) or hasattr(model, "model_validate")
    else:
        known = False
    if known:
        return
    raise ConfigurationError(
        f"custom resource {name}: its {part} is {getattr(model, '__name__', model)!s}, which is no class with fields:"
        " write it as `class …(Model)` with one line per field (a msgspec.Struct, a dataclass or a pydantic model"
        " will do as well)"
    )


def _has_fields(model: type[Any]) -> bool:
    if issubclass(model, msgspec.Struct):
        return bool(model.__struct_fields__)
    return bool(fields(model)) if is_dataclass(model) else bool(getattr(model, "model_fields", True))


def has_defaults(model: Callable[[], Any]) -> bool:
    """Whether one of this class can be made of nothing."""
    try:
        model()
    except (TypeError, ValueError):
        return False
    return True


def _add_fields(name: str, namespace: dict[str, Any], parts: Mapping[str, Part]) -> None:
    """`spec` and `status` as fields of this very class, with their own types and defaults."""
    own = namespace.get("__annotations__")
    if own is None:
        # Python 3.14 has a function instead; what it says and what is added here have to be one.
        evaluate = namespace.pop("__annotate_func__", None) or namespace.pop("__annotate__", None)
        own = evaluate(1) if evaluate else {}
    namespace["__annotations__"] = {part: declared.model for part, declared in parts.items()} | own
    for part, declared in parts.items():
        if part not in own:
            namespace[part] = _default_of(name, part, declared)


def _default_of(name: str, part: str, declared: Part) -> Any:
    if not isinstance(declared.model, type):
        return None
    if not declared.required:
        return msgspec.field(default_factory=declared.model)

    def refuse() -> Any:
        raise msgspec.ValidationError(f"{name} without `{part}`")

    return msgspec.field(default_factory=refuse)

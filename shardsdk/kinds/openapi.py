"""Classes from an API server's OpenAPI v3: what there is to write, before it is text.

An object with named fields is a class, wherever it stands; what is free (maps of
anything, fields without a type) is a dict or Any.  Values of enumerations are plain
strings, so that a newer server's objects are still read.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any, Final

from shardsdk.errors import ConfigurationError
from shardsdk.kinds.schema import PRESERVE
from shardsdk.protocol.objects import Resource

_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
#: Definitions that are no classes of their own.
_KNOWN: Final = {
    f"{_META}Time": "datetime",
    f"{_META}MicroTime": "str",  # six digits of a second, which `datetime` would leave out
    f"{_META}ObjectMeta": "ObjectMeta",
    f"{_META}OwnerReference": "OwnerReference",
    f"{_META}Condition": "Condition",
    f"{_META}FieldsV1": "dict[str, Any]",
    "io.k8s.apimachinery.pkg.runtime.RawExtension": "dict[str, Any]",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "int | str",
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "str",
}
#: Where the modules of this package have names from that are no classes of their own.
INSIDE: Final = {
    "Condition": "shardsdk.kinds.conditions",
    "Kind": "shardsdk.kinds.base",
    "Model": "shardsdk.kinds.base",
    "ObjectMeta": "shardsdk.protocol.objects",
    "OwnerReference": "shardsdk.protocol.objects",
    "Resource": "shardsdk.protocol.objects",
}
#: A class of that name would hide what the module needs under it.
_TAKEN_BY_IMPORTS: Final = {*INSIDE, "Any", "ClassVar"}
_SCALARS: Final = {"integer": "int", "number": "float", "boolean": "bool"}
_STRINGS: Final = {"byte": "bytes", "date-time": "datetime"}
#: What annotations are made of; a field of that name would hide it from those below.
_TAKEN: Final = {"bool", "bytes", "datetime", "dict", "float", "int", "list", "msgspec", "str"}
#: What msgspec has in no field's name on the wire.
_UNNAMEABLE: Final = re.compile(r'[\x00-\x1f"\\]')
#: What a kind has besides; `resource` says which one it is.
_OF_KINDS: Final = {"metadata", "resource"}
#: What an object without a status shows.
_EMPTY: Final = {"list[": "[]", "dict[": "{}"}
_ZEROS: Final = {"int": "0", "float": "0.0", "bool": "False", "str": '""'}


@dataclass(frozen=True, slots=True)
class FieldText:
    """A field, as it is to be written; `filled`: the API server gives it a value where nobody does."""

    name: str
    sent: str
    annotation: str
    required: bool
    filled: bool
    doc: str


@dataclass(slots=True)
class ClassText:
    """A class, as it is to be written; `resource` when it is a kind's."""

    name: str
    doc: str
    resource: Resource | None = None
    fields: list[FieldText] = field(default_factory=list)

    @property
    def uses(self) -> set[str]:
        """The names in its annotations."""
        return {name for each in self.fields for name in re.findall(r"[A-Za-z_]\w*", each.annotation)}


class Definitions:
    """The classes of one or several OpenAPI documents, made as they are asked for.

    Raises: ConfigurationError for two definitions that would have one name.
    """

    def __init__(self, documents: list[Mapping[str, Any]]) -> None:
        self._schemas: dict[str, Any] = {}
        self._paths: dict[str, Any] = {}
        self._homes: dict[str, str] = {}
        self.classes: dict[str, ClassText] = {}
        for document in documents:
            self._schemas |= document.get("components", {}).get("schemas", {})
            self._paths |= document.get("paths", {})

    def add_kind(self, group: str, version: str, kind: str) -> ClassText:
        """The class of a kind, and with it those of what it is made of.

        Raises: ConfigurationError when the server has no such kind.
        """
        for name, schema in self._schemas.items():
            for each in schema.get("x-kubernetes-group-version-kind", ()):
                if (each["group"], each["version"], each["kind"]) == (group, version, kind):
                    return self._add(name, kind, schema, resource=self._resource(group, version, kind))
        served = ", ".join(sorted(self.kinds(group, version))) or "none"
        title = f"{group}/{version}" if group else version
        raise ConfigurationError(f"the API server has no kind {kind} in {title}; there are: {served}")

    def kinds(self, group: str, version: str) -> Iterator[str]:
        """The kinds that objects of this version have."""
        yield from (each.kind for each in self._served() if (each.group, each.version) == (group, version))

    def _resource(self, group: str, version: str, kind: str) -> Resource:
        for each in self._served():
            if (each.group, each.version, each.kind) == (group, version, kind):
                return each
        raise ConfigurationError(f"the API server serves no objects of {group}/{version} {kind}")

    def _served(self) -> Iterator[Resource]:
        """What objects are served of; no subresources."""
        for path, verbs in self._paths.items():
            action = verbs.get("get", {})
            given = action.get("x-kubernetes-group-version-kind", {})
            if action.get("x-kubernetes-action") == "get" and path.endswith("/{name}"):
                plural, namespaced = path.split("/")[-2], "{namespace}" in path
                yield Resource(given["group"], given["version"], plural, given["kind"], namespaced=namespaced)

    def _add(self, home: str, name: str, schema: Any, *, resource: Resource | None = None) -> ClassText:
        name = f"{name}_" if name in _TAKEN_BY_IMPORTS else name
        if name in self.classes:
            if self._homes[name] != home:
                raise ConfigurationError(f"{home} and {self._homes[name]} would both be the class {name}")
            return self.classes[name]
        made = self.classes[name] = ClassText(name, _first(schema.get("description", "")), resource)
        self._homes[name] = home
        required = schema.get("required", ())
        taken = set(_OF_KINDS if resource is not None else ())
        for sent, each in schema.get("properties", {}).items():
            if resource is not None and sent in ("apiVersion", "kind", "metadata"):
                continue
            annotation = self._annotation(each, f"{home}.{sent}", f"{name}{_capital(sent)}")
            text = _first(each.get("description", ""))
            own = name_of(sent)
            while own in taken:  # the last of a name would be the only one
                own += "_"
            taken.add(own)
            # A new object has no status yet, whatever its definition requires.
            needed = sent in required and not (resource is not None and sent == "status")
            made.fields.append(FieldText(own, sent, annotation, needed, "default" in each, text))
        return made

    def _free(self, home: str, *names: str) -> str:
        """The first of these names, or of further ones with a number, that no class from elsewhere has."""
        further = (f"{names[-1]}{number}" for number in count(2))
        return next(each for each in chain(names, further) if self._homes.get(each, home) == home)

    def _annotation(self, schema: Any, home: str, *names: str) -> str:
        """What a field holds, None included; `names` are those that a class may have that stands in its place."""
        annotation = self._bare(schema, home, *names)
        return f"{annotation} | None" if schema.get("nullable") and annotation != "Any" else annotation

    def _bare(self, schema: Any, home: str, *names: str) -> str:
        """The same without None."""
        if len(schema.get("allOf", ())) == 1 and "properties" not in schema:
            return self._bare(schema["allOf"][0], home, *names)
        if reference := schema.get("$ref"):
            return self._refer(reference.rpartition("/")[2])
        if schema.get("x-kubernetes-int-or-string") or schema.get("format") == "int-or-string":
            return "int | str"
        match schema.get("type"):
            case "array":
                return f"list[{self._entry(schema.get('items', {}), f'{home}[]', *names)}]"
            case "object" if schema.get(PRESERVE) or any(map(_UNNAMEABLE.search, schema.get("properties", ()))):
                return "dict[str, Any]"  # a class would drop what it does not know, or cannot have
            case "object" if schema.get("properties"):
                return self._add(home, self._free(home, *names), schema).name
            case "object":
                entries = schema.get("additionalProperties")
                if not isinstance(entries, dict):
                    return "dict[str, Any]"
                return f"dict[str, {self._entry(entries, f'{home}[…]', *names)}]"
            case "string":
                return _STRINGS.get(schema.get("format", ""), "str")
            case other:
                return _SCALARS.get(other, "Any")

    def _entry(self, schema: Any, home: str, *names: str) -> str:
        """What each entry of a list or a map holds."""
        return self._annotation(schema, home, *map(_singular, names), *names)

    def _refer(self, definition: str) -> str:
        if known := _KNOWN.get(definition):
            return known
        schema = self._schemas[definition]
        if not schema.get("properties"):
            return "Any" if schema.get("type") != "object" else "dict[str, Any]"
        return self._add(definition, definition.rpartition(".")[2], schema).name


def name_of(sent: str) -> str:
    """A field's name in Python.

    >>> [name_of(sent) for sent in ("clusterIP", "podIPs", "nonResourceURLs", "from", "x-y", "list")]
    ['cluster_ip', 'pod_ips', 'non_resource_urls', 'from_', 'x_y', 'list_']
    """
    name = re.sub(r"([A-Z]{2,})s(?![a-z])", lambda match: match[1].capitalize() + "s", sent)
    name = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    name = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()
    name = re.sub(r"\W+", "_", name).strip("_") or "value"
    name = f"_{name}" if name[0].isdigit() else name
    return f"{name}_" if keyword.iskeyword(name) or name in _TAKEN else name


def sent_as(name: str) -> str:
    """What `rename="camel"` makes of a field's name; empty where that is not to be relied on."""
    if name.startswith("_"):
        return ""
    first, *rest = name.strip("_").split("_")
    return first + "".join(word.capitalize() for word in rest)


def zero_of(annotation: str) -> str | None:
    """What a field shows that nobody has written; `None`: nothing that its type has.

    Null only where there is nothing else: a merge patch cannot write it into a field that is required.

    >>> zero_of("int"), zero_of("int | None"), zero_of("datetime | None"), zero_of("datetime")
    ('0', '0', 'None', None)
    """
    bare = annotation.removesuffix(" | None")
    return _ZEROS.get(bare) or _EMPTY.get(bare[:5]) or (None if bare == annotation else "None")


def _capital(sent: str) -> str:
    word = re.sub(r"\W+", "", sent)
    return word[:1].upper() + word[1:]


def _singular(name: str) -> str:
    if name.endswith("ies"):
        return f"{name[:-3]}y"
    return name[:-1] if name.endswith("s") and not name.endswith(("ss", "us")) else name


def _first(description: str) -> str:
    """The first sentence."""
    text = " ".join(description.split())
    sentence = re.split(r"(?<=[.!?])\s+(?=[A-Z\"'`])", text, maxsplit=1)[0]
    return sentence.replace("\\", "").replace('"""', "'''").strip()

"""Modules of typed kinds, written from an API server's OpenAPI v3.

document = …  # the JSON at openapi_path("gateway.networking.k8s.io", "v1")
text = generate([document], "gateway.networking.k8s.io", "v1", ["Gateway"])
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from shardsdk.kinds.openapi import ClassText, Definitions, FieldText, sent_as, zero_of
from shardsdk.protocol.objects import Resource

_WIDTH: Final = 116
#: Where users' modules have names from that are no classes of their own: the front.
OUTSIDE: Final = {
    "Condition": "shardsdk",
    "Kind": "shardsdk.kinds",
    "Model": "shardsdk",
    "ObjectMeta": "shardsdk",
    "OwnerReference": "shardsdk",
    "Resource": "shardsdk",
}

#: Fields that are secret, by group and kind: no OpenAPI tells.
_HIDDEN: Final = {("", "Secret"): {"data", "string_data"}}


def openapi_path(group: str, version: str) -> str:
    """Where an API server has the OpenAPI v3 of a group and version; the core group is empty."""
    return f"/openapi/v3/apis/{group}/{version}" if group else f"/openapi/v3/api/{version}"


def generate(documents: Sequence[Mapping[str, Any]], group: str, version: str, kinds: Iterable[str] = ()) -> str:
    """A module with the classes of these kinds of one group and version; without kinds, of all that it has.

    Raises: ConfigurationError when the documents have no such kind.
    """
    definitions = Definitions(list(documents))
    for kind in kinds or sorted(definitions.kinds(group, version)):
        definitions.add_kind(group, version, kind)
    title = f"{group}/{version}" if group else version
    classes = definitions.classes
    return render_module(f"Kinds of {title}, from an API server's OpenAPI.", classes.values(), OUTSIDE, classes)


def render_module(
    doc: str, classes: Iterable[ClassText], homes: Mapping[str, str], known: Mapping[str, ClassText]
) -> str:
    """The text of a module with some of the `known` classes; `homes` says where other names come from."""
    own = sorted(classes, key=lambda each: each.name)
    text = "\n\n".join(render_class(each, known) for each in own)
    used = set(re.findall(r"[A-Za-z_]\w*", re.sub(r'""".*?"""', "", text, flags=re.DOTALL)))
    used -= {each.name for each in own}
    imports: dict[str, list[str]] = {}
    for name in sorted(used & set(homes)):
        imports.setdefault(homes[name], []).append(name)
    lines = [f'"""{doc}"""', "", "from __future__ import annotations", ""]
    lines += ["from datetime import datetime"] if "datetime" in used else []
    typed = [name for name in ("Any", "ClassVar") if name in used]
    lines += [f"from typing import {', '.join(typed)}"] if typed else []
    lines += [""] if lines[-1] else []
    lines += ["import msgspec", ""] if "msgspec" in used else []
    lines += [_import_line(module, names) for module, names in sorted(imports.items())]
    return "\n".join(lines) + "\n\n\n" + text


def render_class(made: ClassText, known: Mapping[str, ClassText]) -> str:
    """The text of a class."""
    base = "Kind" if made.resource else "Model"
    secret = _HIDDEN.get((made.resource.group, made.resource.kind), set()) if made.resource else set()
    hidden = ", ".join(f'"{each.name}"' for each in made.fields if each.name in secret)
    options = f"kw_only=True, hidden=[{hidden}]" if hidden else "kw_only=True"
    lines = [f"class {made.name}({base}, {options}):", _docstring(made.doc or f"{made.name} of the API.")]
    if made.resource:
        lines += ["", f"    resource: ClassVar[Resource] = {_resource(made.resource)}"]
    lines += [""] if made.fields else []
    for each in made.fields:
        lines.append(_field(made, each, known))
        lines += [_docstring(each.doc)] if each.doc else []
    return "\n".join(lines) + "\n"


def _field(made: ClassText, each: FieldText, known: Mapping[str, ClassText]) -> str:
    renamed = f'name="{each.sent}"' if sent_as(each.name) != each.sent else ""
    annotation, default = each.annotation, None
    of_kind = made.resource is not None
    part = known.get(annotation) if of_kind and each.name in ("spec", "status") else None
    if part is not None and (each.filled or not each.required) and _can_be_empty(part, known):
        default = f"default_factory=lambda: {annotation}()"
    elif part is not None and each.filled and each.name == "spec":
        pass  # what Kubernetes' own kinds need is not all said to be required
    elif of_kind and each.name == "spec" and each.required and not each.filled:
        pass  # with a default it would not be sent where it is empty
    elif of_kind and annotation.startswith(("list[", "dict[")):
        annotation = annotation.removesuffix(" | None")  # null is read as an empty one
        default = f"default={zero_of(annotation)}"
    elif not each.required:
        annotation, default = _optional(annotation), "default=None"
    elif _is_status(made, known) and (zero := zero_of(annotation)) is not None:
        default = f"default={zero}"
    head = f"    {each.name}: {annotation}"
    if default is None:
        return f"{head} = msgspec.field({renamed})" if renamed else head
    if default.startswith("default=") and not renamed:
        return f"{head} = {default.removeprefix('default=')}"
    return f"{head} = msgspec.field({', '.join(filter(None, (default, renamed)))})"


def _can_be_empty(part: ClassText, known: Mapping[str, ClassText]) -> bool:
    """Whether one can be made of nothing."""
    zeros = _is_status(part, known)
    return all(not each.required or (zeros and zero_of(each.annotation) is not None) for each in part.fields)


def _is_status(made: ClassText, known: Mapping[str, ClassText]) -> bool:
    """Whether it is one's status, of which everything shows its zero until it is written."""
    return made.name.endswith("Status") and made.name.removesuffix("Status") in known


def _optional(annotation: str) -> str:
    return annotation if annotation == "Any" or annotation.endswith(" | None") else f"{annotation} | None"


def _docstring(text: str) -> str:
    """Indented for a class's body."""
    text = text if not text.endswith('"') else f"{text} "
    if len(text) <= _WIDTH - 10:
        return f'    """{text}"""'
    inside = textwrap.wrap(text, _WIDTH - 4, break_long_words=False, break_on_hyphens=False)
    return "\n".join([f'    """{inside[0]}', *(f"    {line}" for line in inside[1:]), '    """'])


def _resource(resource: Resource) -> str:
    given = [f'"{each}"' for each in (resource.group, resource.version, resource.plural, resource.kind)]
    return f"Resource({', '.join(given + ([] if resource.namespaced else ['namespaced=False']))})"


def _import_line(module: str, names: Sequence[str]) -> str:
    line = f"from {module} import {', '.join(names)}"
    if len(line) <= _WIDTH + 4:
        return line
    return f"from {module} import (\n" + "".join(f"    {name},\n" for name in names) + ")"

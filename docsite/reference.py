"""The API reference: a page for each public module of shardsdk, made of its signatures and docstrings.

It is made while the site is built and stands nowhere in docs/, so that a docstring is written once.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

#: Public modules, in the order of the navigation, and what is in them.
MODULES: Final[Mapping[str, str]] = {
    "shardsdk": "what programs are written with",
    "shardsdk.kinds": "typed objects, and custom resources as classes",
    "shardsdk.errors": "what calls raise",
    "shardsdk.testing": "driving a program without a cluster, and with one",
    "shardsdk.types": "what signatures are made of",
    "shardsdk.logs": "log lines for people and for machines",
    "shardsdk.contrib.kopf": "an operator written with kopf becomes a shard",
    "shardsdk.contrib.kubernetes": "the prescribed client, under a shard's lease, and its objects as kinds",
}
#: Kubernetes' own kinds are documented by Kubernetes.
NOT_SHOWN: Final = "shardsdk.kinds.builtin"
#: A signature that is longer gets a line for each parameter.
MAX_SIGNATURE: Final = 100

_DOCTEST: Final = re.compile(r"(?:^[ ]*>>> .*\n?)(?:^[ ]*(?!$).*\n?)*", re.MULTILINE)
_SECTION: Final = re.compile(r"^(Raises|Guarantees|Refuses|Does|Source)\b([^:\n]*):", re.MULTILINE)


def render_module(name: str) -> str:
    """One page."""
    module = importlib.import_module(name)
    shown: list[tuple[str, Any]] = []
    hidden: list[tuple[str, Any]] = []
    for each in sorted(module.__all__, key=str.lower):
        thing = getattr(module, each)
        (hidden if getattr(thing, "__module__", "").startswith(NOT_SHOWN) else shown).append((each, thing))
    parts = [f"# {name}", _markdown(inspect.getdoc(module) or MODULES[name])]
    for each, thing in shown:
        parts += _render(each, thing)
    if hidden:
        parts += ["## Kubernetes' own kinds", ", ".join(f"`{each}`" for each, _ in hidden)]
    return "\n\n".join(parts) + "\n"


def _render(name: str, thing: Any) -> Iterator[str]:
    if inspect.ismodule(thing):
        yield f"## {name}"
        yield _markdown(inspect.getdoc(thing) or "")
        for each, function in inspect.getmembers(thing, inspect.isfunction):
            if function.__module__ == thing.__name__ and not each.startswith("_"):
                yield from _callable(f"{name}.{each}", function, "###")
    elif inspect.isclass(thing):
        yield from _class(name, thing)
    elif callable(thing) and inspect.isfunction(thing):
        yield from _callable(name, thing, "##")
    else:
        yield f"## {name}"
        yield _code(f"{name} = {thing!r}" if isinstance(thing, str | int | float) else name)


def _class(name: str, thing: type) -> Iterator[str]:
    yield f"## {name}"
    if issubclass(thing, enum.Enum):
        yield _documented(thing)
        yield "\n".join(f"- `{name}.{each.name}`: {each.value}" for each in thing)
    else:
        yield _code(_signature(f"class {name}", thing))
        yield _documented(thing)
    for each, member in _members(thing):
        yield from _member(f"{name}.{each}", member)


def _members(thing: type) -> Iterator[tuple[str, Any]]:
    """What a class says of itself, in its order, without what it inherits."""
    for each, member in vars(thing).items():
        if not each.startswith("_") and (_unbound(member) is not None or isinstance(member, property)):
            yield each, member


def _member(name: str, member: Any) -> Iterator[str]:
    if isinstance(member, property):
        words = inspect.getdoc(member)
        if words:
            yield f"### {name}"
            yield _markdown(words)
        return
    function = _unbound(member)
    if function is not None and inspect.getdoc(function):
        yield from _callable(name, function, "###")


def _unbound(member: Any) -> Callable[..., Any] | None:
    function = getattr(member, "__func__", member)
    return function if inspect.isfunction(function) else None


def _callable(name: str, function: Callable[..., Any], level: str) -> Iterator[str]:
    yield f"{level} {name}"
    prefix = "async def " if inspect.iscoroutinefunction(function) else "def "
    yield _code(_signature(prefix + name.rpartition(".")[2], function))
    yield _documented(function)


def _documented(thing: Any) -> str:
    # Not inspect.getdoc: a class without words of its own does not speak with its parent's.
    return _markdown(inspect.cleandoc(thing.__doc__ or ""))


def _signature(name: str, thing: Any) -> str:
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return name
    parameters = [each for each in signature.parameters.values() if each.name not in ("self", "cls")]
    returns = "" if inspect.isclass(thing) else _returns(signature)
    whole = f"{name}{signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty)}{returns}"
    whole = _plain(whole)
    if len(whole) <= MAX_SIGNATURE:
        return whole
    lines, star = [], False
    for each in parameters:
        if each.kind is each.KEYWORD_ONLY and not star:
            lines.append("*")
            star = True
        star = star or each.kind is each.VAR_POSITIONAL
        lines.append(_plain(str(each)))
    return f"{name}(\n" + "".join(f"    {line},\n" for line in lines) + f"){returns}"


def _plain(text: str) -> str:
    """A signature as it is written: no quotes around types, defaults by their names."""
    text = re.sub(r"(?<=: )'([^']*)'", r"\1", text)
    text = re.sub(r"<class '(?:[\w]+\.)*(\w+)'>", r"\1", text)
    text = re.sub(r"<(\w+\.\w+): [^>]*>", r"\1", text)
    return re.sub(r"<[^>]*(?:<[^>]*>)?[^>]*at 0x[0-9a-f]+>", "...", text)


def _returns(signature: inspect.Signature) -> str:
    said = signature.return_annotation
    if said is inspect.Signature.empty:
        return ""
    return f" -> {said if isinstance(said, str) else getattr(said, '__name__', said)}"


def _code(text: str) -> str:
    return f"```python\n{text}\n```"


def _markdown(words: str) -> str:
    """A docstring as Markdown: examples in fences, its sections set off."""
    words = _DOCTEST.sub(lambda found: "\n" + _code(textwrap.dedent(found[0]).rstrip()) + "\n", words)
    return _SECTION.sub(r"**\1\2:**", words)

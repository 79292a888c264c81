"""Reads a configuration file, YAML or JSON.

Everything that is wrong with it is reported at once, a typo in a field's name
included, and nothing starts with half of a file.  Settings that do nothing here
are told.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import yaml
from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from sharder.config.contradictions import find_contradictions
from sharder.config.reference import entries, section_at
from sharder.config.schema import SharderConfig
from sharder.core.problems import NOT_YAML_EITHER, Problem, quoted, reason_of, render_problems
from shardsdk.errors import ConfigurationError

API_VERSION: Final = "config.sharding.timebertt.dev/v1alpha1"
KIND: Final = "SharderConfig"
#: A configuration file has a few kilobytes; more is some other file.
MAX_FILE_BYTES: Final = 1024 * 1024
#: More problems than this are counted, not listed.
MAX_PROBLEMS: Final = 50

#: Settings of the Go sharder's schema that do nothing here, and what to do instead.
WITHOUT_EFFECT: Final = {
    "clientConnection.kubeconfig": "use --kubeconfig or $KUBECONFIG",
    "clientConnection.acceptContentTypes": "answers are always JSON",
    "clientConnection.contentType": "requests are always JSON",
    "debugging.enableProfiling": "there is no Go profiler here",
    "debugging.enableContentionProfiling": "there is no Go profiler here",
}

_SCHEMA: Final = TypeAdapter(SharderConfig)
_FROM_FILE: Final = {"file": True}


class InvalidConfig(ConfigurationError):
    """A configuration file that cannot be used; `problems` has everything that is wrong with it."""

    def __init__(self, source: str, problems: tuple[Problem, ...]) -> None:
        super().__init__(f"{source}: {render_problems(problems)}")
        self.source = source
        self.problems = problems


@dataclass(frozen=True, slots=True)
class WithoutEffect:
    """A setting at `path` that is accepted and does nothing here; `why` says what does."""

    path: str
    why: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration, and what its file said in vain."""

    config: SharderConfig
    without_effect: tuple[WithoutEffect, ...] = ()


def load_config(path: str | None) -> Loaded:
    """Read the file at `path`; `None`: no file, every setting has its default.

    Raises: ConfigurationError when it cannot be read, InvalidConfig when it is wrong.
    """
    if path is None:
        return Loaded(SharderConfig())
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(
            f"cannot read the configuration file {path}: {error.strerror}; check --config"
        ) from error
    if len(content) > MAX_FILE_BYTES:
        raise ConfigurationError(f"{path} has more than {MAX_FILE_BYTES} bytes, so it is no configuration file")
    try:
        return parse_config(content.decode("utf-8-sig"), source=path)
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from error


def parse_config(text: str, source: str = "configuration") -> Loaded:
    """Read a configuration from YAML or JSON.

    Raises: InvalidConfig with every problem, each with its path and remedy.
    """
    raw, problems = _read_mapping(text)
    if raw is not None:
        problems += _check_header(raw)
        body = {name: value for name, value in raw.items() if name not in ("apiVersion", "kind")}
        config, more = _validate(body)
        problems += more
        if not problems:
            return Loaded(config, tuple(_find_without_effect(raw)))
    raise InvalidConfig(source, tuple(problems))


# -- YAML and JSON ---------------------------------------------------------


def _read_mapping(text: str) -> tuple[dict[Any, Any] | None, list[Problem]]:
    try:
        raw, problems = _read_json(text) if text.lstrip().startswith("{") else _read_yaml(text)
    except (yaml.YAMLError, *NOT_YAML_EITHER) as error:
        return None, [Problem("(file)", f"is neither YAML nor JSON: {reason_of(error)}", "mend its syntax")]
    if problems or isinstance(raw, dict):
        return raw if isinstance(raw, dict) else None, problems
    what = "is empty" if raw is None else "is not a mapping"
    return None, [Problem("(file)", what, f"begin with `apiVersion: {API_VERSION}` and `kind: {KIND}`")]


def _read_json(text: str) -> tuple[Any, list[Problem]]:
    problems: list[Problem] = []

    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        seen: dict[str, Any] = {}
        for name, value in pairs:
            if name in seen:
                problems.append(_written_twice(name, ""))
            seen[name] = value
        return seen

    return json.loads(text, object_pairs_hook=collect), problems


def _read_yaml(text: str) -> tuple[Any, list[Problem]]:
    document = yaml.compose(text, Loader=yaml.SafeLoader)
    return yaml.safe_load(text), list(_find_twice(document, set()))


def _find_twice(node: yaml.Node | None, seen: set[int]) -> Iterator[Problem]:
    """Keys that stand twice in one mapping; PyYAML would take the last without a word."""
    if node is None or id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        names: set[Hashable] = set()
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else id(key)
            if name in names:
                yield _written_twice(str(name), f" (line {key.start_mark.line + 1})")
            names.add(name)
            yield from _find_twice(value, seen)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from _find_twice(value, seen)


def _written_twice(name: str, where: str) -> Problem:
    return Problem(f"{name}{where}", "stands twice in the same place", "keep one of them")


def _check_header(raw: Mapping[Any, Any]) -> list[Problem]:
    return [
        Problem(name, "is missing" if raw.get(name) is None else f"is {quoted(raw[name])}", f"write `{name}: {wanted}`")
        for name, wanted in (("apiVersion", API_VERSION), ("kind", KIND))
        if raw.get(name) != wanted
    ]


# -- validation ------------------------------------------------------------


def _validate(body: dict[Any, Any]) -> tuple[SharderConfig, list[Problem]]:
    """The configuration, with defaults where a value is wrong so that the rest can be judged too."""
    config, details = _decode(body)
    problems = [problem for detail in details for problem in _explain(detail)]
    wrong = {_render_path(detail["loc"]) for detail in details}
    problems += [found.problem for found in find_contradictions(config) if wrong.isdisjoint(found.about)]
    if len(problems) > MAX_PROBLEMS:
        rest = len(problems) - MAX_PROBLEMS
        problems = [*problems[:MAX_PROBLEMS], Problem("(file)", f"has {rest} more problems", "mend these first")]
    return config, problems


def _decode(body: dict[Any, Any]) -> tuple[SharderConfig, list[ErrorDetails]]:
    try:
        return _SCHEMA.validate_python(body, context=_FROM_FILE, by_alias=True, by_name=False), []
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
    rest = body
    for detail in details:
        rest = _without(rest, detail["loc"])
    config, more = _decode(rest if rest != body else {})
    return config, details + more


def _without(body: dict[Any, Any], path: tuple[int | str, ...]) -> dict[Any, Any]:
    """A copy of `body` in which nothing stands at `path`."""
    if not path:
        return {}
    head, *rest = path
    copy = dict(body)
    if rest and isinstance(copy.get(head), dict):
        copy[head] = _without(copy[head], tuple(rest))
    else:
        copy.pop(head, None)
    return copy


def _explain(detail: ErrorDetails) -> list[Problem]:
    path = _render_path(detail["loc"])
    context = detail.get("ctx") or {}
    match detail["type"]:
        case "refused":
            problems = cast("tuple[Problem, ...]", context["problems"])
            return [Problem(path + problem.path, problem.message, problem.remedy) for problem in problems]
        case "unexpected_keyword_argument" | "invalid_key":
            return [Problem(path, "is unknown", _suggest(detail["loc"]))]
        case "dataclass_type":
            return [Problem(path or "(file)", "is not a mapping", "write `field: value` on lines of their own")]
        case "bool_type":
            return [Problem(path, "is not a switch", "write true or false, without quotes")]
        case "int_type" | "float_type" | "finite_number":
            return [Problem(path, "is not a number", "write digits, without quotes and unit")]
        case "string_type":
            return [Problem(path, "is not a string", "write it in quotes")]
        case "greater_than_equal":
            return [Problem(path, "is too small", f"use at least {context['ge']:g}")]
        case "less_than_equal":
            return [Problem(path, "is too large", f"use at most {context['le']:g}")]
        case _:
            return [Problem(path, detail["msg"], "see the configuration reference")]


def _suggest(path: tuple[int | str, ...]) -> str:
    section = section_at(path[:-1])
    known = sorted(entries(section)) if section is not None else []
    close = difflib.get_close_matches(str(path[-1]), known, n=1)
    if close:
        return f"did you mean {close[0]}?"
    return f"remove it; known here: {', '.join(known)}" if known else "remove it"


def _render_path(path: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in path)


def _find_without_effect(raw: Mapping[Any, Any]) -> Iterator[WithoutEffect]:
    for path, why in WITHOUT_EFFECT.items():
        value: Any = raw
        for name in path.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        if value is not None:
            yield WithoutEffect(path, why)
    connection = raw.get("clientConnection")
    if isinstance(connection, Mapping) and (connection.get("burst") or 0) > 0 and (connection.get("qps") or 0) <= 0:
        yield WithoutEffect("clientConnection.burst", "it needs clientConnection.qps")
    election = raw.get("leaderElection")
    if isinstance(election, Mapping) and election.get("leaderElect") is False:
        yield WithoutEffect("leaderElection.leaderElect", "a single replica holds the leader's lease as well")

"""Every log call: a constant message, and fields that name the ring, shard or object that it is about.

What a line is about is read off its own words. Fields are read off the source: literals, what a function of the same
file returns or of one that it is imported from, what a variable was given.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LEVELS = ("debug", "info", "warning", "error", "exception", "critical", "log")

#: Words of a message -> the fields that it must have, one of each group.
SUBJECTS = (
    (re.compile(r"\b(object|reconcile|drain|family|predicate|mapping|write)\b", re.IGNORECASE), ("object",)),
    (re.compile(r"\blease|keeper\b", re.IGNORECASE), ("shard", "lease")),
    (re.compile(r"\bshard\b", re.IGNORECASE), ("shard",)),
    (re.compile(r"\b(ring|webhook configuration|resync|crash detection|permissions|groups)\b"), ("ring",)),
)
#: All that is logged there is about a ring.
RING_ONLY = ("sharder/cache/", "sharder/backlog/", "sharder/takeover/", "sharder/placement/", "sharder/rings/")

#: Lines whose words sound like more than they are about, or that are about what has no name yet.
ALLOWED = {
    "leases are not what their watch shows; listing them anew": "about all leases of all rings",
    "another sharder leads": "about all rings; names its lease",
    "Nobody knows whether other sharders lead": "about all rings",
    "other leaders not looked for, will retry": "about all rings",
    "lease not given back, it runs out by itself": "names it in the error",
    "This machine was stopped for about %.1f s; leases are confirmed before the next write": "all that it holds",
    (
        "The clock of the API server %s goes to and fro by up to %.1f s, and stops of this machine of up to %.1f s"
        " may go unnoticed; are the clocks of your API servers right?"
    ): "names the API server",
    "Reconcile stopped: the lease is gone": "names the object; the line before it names the lease",
    "Leader is working": "names its election, which may be any",
    "A reflector's handler failed, it goes on with the next event": "names the reflector; any object's event",
    "Objects could not be listed; the controller waits": "no object is known; the error names the resource",
    "Children could not be listed; their owners wait": "no object is known; the error names the resource",
    "A callback of the leader election failed": "the user's own code; the stack names it",
    "A metric of the default registry is not shown, for its name is one of the SDK's: rename it": "names the metric",
    "A part of the manager has ended; stopping": "the process ends",
    "Task has ended": "the user's own task",
    "Task has failed while it was to end": "the user's own task",
    "The API server warns of a request": "names the request; nothing else is known there",
    "event not written": "an Event on any object: it names that",
    "events dropped: no time was left for them": "the process ends",
    "events dropped: too many wait to be written": "Events on any objects: it names the last one's",
}
#: Modules that speak of the process itself, of its credentials, certificates, ports and leadership.
ABOUT_THE_PROCESS = (
    "sharder/cli.py",
    "sharder/replica.py",
    "sharder/service.py",
    "sharder/install.py",
    "sharder/webhook/account.py",
    "shardsdk/admission/app.py",
    "shardsdk/admission/registration.py",
    "shardsdk/admission/service.py",
    "shardsdk/commands/preflight.py",
    "shardsdk/commands/run.py",
    "shardsdk/kube/authority.py",
    "shardsdk/kube/certificates.py",
    "shardsdk/kube/credentials.py",
    "shardsdk/kube/cut.py",
    "shardsdk/kube/fencing.py",
    "shardsdk/kube/openid.py",
    "shardsdk/kube/openstreams.py",
    "shardsdk/kube/outage.py",
    "shardsdk/kube/reflector.py",
    "shardsdk/logs.py",
    "shardsdk/process/accepting.py",
    "shardsdk/process/changeover.py",
    "shardsdk/process/health.py",
    "shardsdk/process/mainloop.py",
    "shardsdk/process/process.py",
    "shardsdk/process/rights.py",
    "shardsdk/reconcile/caches.py",
    "shardsdk/serving/certificate_watcher.py",
    "shardsdk/serving/connections.py",
    "shardsdk/serving/delegated.py",
    "shardsdk/serving/expiry.py",
    "shardsdk/serving/secretstore.py",
)


@dataclass(frozen=True, slots=True)
class Line:
    """One log call; `message` is empty when it is not constant."""

    place: str
    messages: tuple[str, ...]
    fields: frozenset[str]

    def missing(self) -> Iterator[str]:
        """What it should name and does not."""
        for message in self.messages:
            if message in ALLOWED:
                continue
            wanted = [fields for words, fields in SUBJECTS if words.search(message)]
            if self.place.startswith(RING_ONLY):
                wanted.append(("ring",))
            for fields in wanted:
                if not self.fields.intersection(fields):
                    yield f"{self.place}: {message!r} does not name {' or '.join(fields)}"
            if (
                not wanted
                and not self.fields & {"ring", "shard", "object", "lease"}
                and not self.is_about_the_process()
            ):
                yield f"{self.place}: {message!r} names no ring, shard or object"

    def is_about_the_process(self) -> bool:
        return self.place.rpartition(":")[0] in ABOUT_THE_PROCESS


def lines(source: str, path: str) -> Iterator[Line]:
    """The log calls of one file."""
    tree = ast.parse(source)
    for scope in [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]:
        for call in _calls(scope):
            extra = next((each.value for each in call.keywords if each.arg == "extra"), None)
            fields = frozenset() if extra is None else _keys(extra, scope, tree)
            # The level comes first in `log.log`.
            first = call.args[isinstance(call.func, ast.Attribute) and call.func.attr == "log"]
            yield Line(f"{path}:{call.lineno}", tuple(_texts(first, scope)), fields)


def _calls(scope: ast.AST) -> Iterator[ast.Call]:
    for node in _inside(scope):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="log" | "logger"), attr=attr)) if attr in LEVELS:
                yield node


def _inside(scope: ast.AST) -> Iterator[ast.AST]:
    """What is in a function, without the functions in it: those are scopes of their own."""
    for child in ast.iter_child_nodes(scope):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
            yield from _inside(child)


def _texts(node: ast.expr, scope: ast.AST) -> Iterator[str]:
    """The constant texts that a message can be; nothing if it can be anything else."""
    match node:
        case ast.Constant(value=str() as text):
            yield text
        case ast.IfExp(body=body, orelse=other):
            yield from (*_texts(body, scope), *_texts(other, scope))
        case ast.Name(id=name):
            for value in _given(name, scope):
                yield from _texts(value, scope)
        case _:
            pass


def _keys(node: ast.expr, scope: ast.AST, tree: ast.AST) -> frozenset[str]:
    """The fields that are certainly there."""
    match node:
        case ast.Dict(keys=keys, values=values):
            own = frozenset(
                each.value for each in keys if isinstance(each, ast.Constant) and isinstance(each.value, str)
            )
            spread = [_keys(value, scope, tree) for key, value in zip(keys, values, strict=True) if key is None]
            return own.union(*spread)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _keys(left, scope, tree) | _keys(right, scope, tree)
        case ast.IfExp(body=body, orelse=other):
            return _keys(body, scope, tree) & _keys(other, scope, tree)
        case ast.Name(id=name):
            return _common([_keys(each, scope, tree) for each in _given(name, scope)])
        case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name)):
            home = _home(name, tree)
            return _common([keys for function in ast.walk(home) for keys in _returned(function, name, home)])
        case _:
            return frozenset()


def _home(name: str, tree: ast.AST) -> ast.AST:
    """The file that has a function: the one that it is imported from, else this one."""
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str() as module, names=names) if name in {each.name for each in names}:
                return _parse(ROOT / f"{module.replace('.', '/')}.py")
    return tree


@cache
def _parse(path: Path) -> ast.AST:
    return ast.parse(path.read_text() if path.exists() else "")


def _returned(function: ast.AST, name: str, tree: ast.AST) -> Iterator[frozenset[str]]:
    if isinstance(function, ast.FunctionDef) and function.name == name:
        for node in _inside(function):
            if isinstance(node, ast.Return) and node.value is not None:
                yield _keys(node.value, function, tree)


def _given(name: str, scope: ast.AST) -> Iterator[ast.expr]:
    for node in _inside(scope):
        match node:
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                yield value
            case ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value) if target == name:
                yield value


def _common(found: list[frozenset[str]]) -> frozenset[str]:
    return frozenset.intersection(*found) if found else frozenset()


@cache
def all_lines() -> list[Line]:
    return [
        line
        for package in ("sharder", "shardsdk")
        for path in sorted((ROOT / package).rglob("*.py"))
        for line in lines(path.read_text(), str(path.relative_to(ROOT)))
    ]


def test_messages_are_constant() -> None:
    found = all_lines()

    assert len(found) > 100, "the calls are found"
    assert [line.place for line in found if not line.messages] == []


def test_a_line_names_what_it_is_about() -> None:
    assert [problem for line in all_lines() for problem in line.missing()] == []


def test_every_exception_is_still_needed() -> None:
    found = all_lines()
    said = {message for line in found for message in line.messages}
    files = {line.place.rpartition(":")[0] for line in found}

    assert set(ALLOWED) <= said
    assert set(ABOUT_THE_PROCESS) <= files


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        ("log.info('object moved', extra={'ring': r})", "does not name object"),
        ("log.info('lease lost')", "does not name shard or lease"),
        ("log.info('shard died', extra={'lease': n})", "does not name shard"),
        ("log.info('ring settled', extra=where)", "does not name ring"),
        ("log.info('moved')", "names no ring, shard or object"),
        ("log.log(level, 'moved')", "names no ring, shard or object"),
        ("log.info('object moved', extra={**self._where(), 'error': e})", "does not name object"),
        ("log.info('object moved', extra=given)", "does not name object"),
        ("log.info('object moved', extra={'object': o} if o else {})", "does not name object"),
    ],
)
def test_a_line_that_keeps_it_to_itself_is_found(call: str, problem: str) -> None:
    source = (
        f"class A:\n def _where(self):\n  return {{'ring': 1}}\n"
        f" def f(self, where):\n  given = {{'why': 1}}\n  {call}\n"
    )
    [line] = lines(source, "shardsdk/x.py")

    assert [said.partition("' ")[2] for said in line.missing()] == [problem]


@pytest.mark.parametrize("message", ["f'lost {a}'", "'lost ' + a", "'lost {}'.format(a)", "a"])
def test_a_message_that_changes_is_found(message: str) -> None:
    [line] = lines(f"def f(a):\n log.info({message})\n", "shardsdk/x.py")

    assert line.messages == ()

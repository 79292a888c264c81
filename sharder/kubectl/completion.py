"""What a shell offers after `kubectl sharding …` (kubectl runs `kubectl_complete-sharding`).

Does: print one suggestion per line, then a directive, as kubectl wants it of
plugins.  Refuses: to disturb somebody who is typing: what cannot be found out
within a few seconds is not suggested, and errors are not shown.

Source: https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins/, "Shell
completion"; the directives are those of github.com/spf13/cobra.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from sharder.kubectl.arguments import make_parser
from shardsdk.errors import ConfigurationError, ShardingError

#: cobra.ShellCompDirectiveDefault: the shell completes file names; ...NoFileComp: it does not.
FILES: Final = 0
NO_FILES: Final = 4
#: How long somebody waits who has pressed Tab.
SECONDS: Final = 5.0
#: Suggestions at most; nobody reads more.
MOST: Final = 500


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be completed: `dest`, of which everything that was typed before is known.

    `prefix` stands before every suggestion (as in `--output=`); `word` is what is typed of it.
    """

    command: str | None
    dest: str
    word: str
    prefix: str = ""
    given: Mapping[str, str] = field(default_factory=dict)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the suggestions for the command line `arguments`, whose last word is being typed."""
    words = list(sys.argv[1:] if arguments is None else arguments) or [""]
    suggestions, directive = suggest(words, _ask_cluster)
    sys.stdout.write("".join(f"{each}\n" for each in suggestions) + f":{directive}\n")
    return 0


def suggest(words: Sequence[str], ask: Callable[[Asked], list[str]]) -> tuple[list[str], int]:
    """Suggestions for the last of `words`, and the directive; `ask` knows what the cluster has."""
    parser = make_parser()
    found = _find(parser, words)
    if isinstance(found, list):
        return [each for each in found if each.startswith(words[-1])], NO_FILES
    if found.dest in ("kubeconfig", "filename"):
        return [], FILES
    choices = _choices(parser, found)
    listed = ask(found) if choices is None else choices
    return [found.prefix + each for each in listed if each.startswith(found.word)][:MOST], NO_FILES


def _find(parser: argparse.ArgumentParser, words: Sequence[str]) -> Asked | list[str]:
    """What the last word can be: a value of something, or one of these commands and options."""
    *before, word = words
    current, command, given = parser, None, dict[str, str]()
    positionals = _positionals(current)
    pending: argparse.Action | None = None
    for each in before:
        if pending is not None:
            given[pending.dest], pending = each, None
        elif each.startswith("-") and each != "-":
            name, _, value = each.partition("=")
            action = current._option_string_actions.get(name)
            if action is not None and action.nargs != 0:
                if value:
                    given[action.dest] = value
                else:
                    pending = action
        elif command is None and (chosen := _commands(parser).get(each)) is not None:
            command, current, positionals = each, chosen, _positionals(chosen)
        elif positionals:
            given[positionals.pop(0).dest] = each
    if pending is not None:
        return Asked(command, pending.dest, word, given=given)
    if word.startswith("-") and word != "-":
        name, equals, value = word.partition("=")
        action = current._option_string_actions.get(name)
        if equals and action is not None:
            return Asked(command, action.dest, value, f"{name}=", given)
        return _options(current)
    if command is None:
        return [f"{name}\t{short}" for name, short in _described(parser)]
    if positionals:
        return Asked(command, positionals[0].dest, word, given=given)
    return []


def _choices(parser: argparse.ArgumentParser, asked: Asked) -> list[str] | None:
    current = _commands(parser).get(asked.command or "", parser)
    for action in current._actions:
        if action.dest == asked.dest and action.choices is not None:
            return [str(each) for each in action.choices]
    return None


def _commands(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            made: Mapping[str, argparse.ArgumentParser] = action.choices
            return made
    return {}


def _described(parser: argparse.ArgumentParser) -> Iterable[tuple[str, str]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from ((each.dest, each.help or "") for each in action._choices_actions)


def _positionals(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [
        action
        for action in parser._actions
        if not action.option_strings and not isinstance(action, argparse._SubParsersAction)
    ]


def _options(parser: argparse.ArgumentParser) -> list[str]:
    return [
        f"{option}\t{action.help or ''}".replace("%(default)s", str(action.default)).replace("%(default)g", "2")
        for action in parser._actions
        if action.help != argparse.SUPPRESS
        for option in action.option_strings
        if option.startswith("--")
    ]


# -- what only the cluster knows ---------------------------------------------


def _ask_cluster(asked: Asked) -> list[str]:
    if asked.dest == "context":
        return _contexts(asked.given.get("kubeconfig") or os.environ.get("KUBECONFIG"))
    try:
        return asyncio.run(_within_seconds(asked))
    except (ShardingError, OSError, TimeoutError, ImportError, BaseExceptionGroup):
        return []


async def _within_seconds(asked: Asked) -> list[str]:
    from shardsdk.kube.access import load_access
    from shardsdk.kube.client import Client

    async with asyncio.timeout(SECONDS):
        access = await load_access(asked.given.get("kubeconfig"), asked.given.get("context"))
        async with Client(access) as api:
            from sharder.kubectl.suggestions import suggest_values

            return await suggest_values(api, asked.dest, asked.given, access.namespace)


def _contexts(paths: str | None) -> list[str]:
    """The names of a kubeconfig's contexts."""
    import yaml

    names: dict[str, None] = {}
    for path in (paths or os.path.expanduser("~/.kube/config")).split(os.pathsep):
        try:
            with open(path, encoding="utf-8") as file:
                listed = (yaml.safe_load(file) or {}).get("contexts") or []
            names.update(dict.fromkeys(str(each["name"]) for each in listed))
        except (OSError, yaml.YAMLError, ConfigurationError, AttributeError, KeyError, TypeError, UnicodeDecodeError):
            continue
    return list(names)

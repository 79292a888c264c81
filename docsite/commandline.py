"""The command line's reference, as its parser knows it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import sharder.cli
import sharder.kubectl.arguments
import shardsdk.cli


def render_sharder() -> str:
    """`sharder` and its commands: what each does, and its arguments."""
    return "\n".join(_render(sharder.cli.make_parser(), ""))


def render_kubectl() -> str:
    """The same of `kubectl sharding`."""
    return "\n".join(_render(sharder.kubectl.arguments.make_parser(), ""))


def render_shardsdk() -> str:
    """The same of `shardsdk`."""
    return "\n".join(_render(shardsdk.cli.make_parser(), ""))


def _render(parser: argparse.ArgumentParser, summary: str) -> Iterator[str]:
    yield f"## `{parser.prog}`"
    yield ""
    yield parser.description or f"{summary[:1].upper()}{summary[1:]}."
    yield ""
    yield "```text"
    yield _usage(parser)
    yield "```"
    yield ""
    commands: dict[str, tuple[argparse.ArgumentParser, str]] = {}
    rows = []
    for action in parser._actions:  # argparse has no public way to list them
        if isinstance(action, argparse._SubParsersAction):
            told = {each.dest: each.help or "" for each in action._choices_actions}
            commands = {name: (command, told.get(name, "")) for name, command in action.choices.items()}
        elif not isinstance(action, argparse._HelpAction) and action.help is not argparse.SUPPRESS:
            rows.append(_row(action))
    if rows:
        yield "| argument | meaning |"
        yield "|---|---|"
        yield from rows
        yield ""
    if parser.epilog:
        yield parser.epilog
        yield ""
    for command, help_text in commands.values():
        yield from _render(command, help_text)


def _usage(parser: argparse.ArgumentParser) -> str:
    """Independent of the terminal's width and of how a Python version breaks lines."""
    words = " ".join(parser.format_usage().split())
    return words.removeprefix("usage: ")


def _row(action: argparse.Action) -> str:
    choices = f"{{{','.join(map(str, action.choices))}}}" if action.choices else ""
    value = "" if action.nargs == 0 else str(action.metavar or choices or action.dest.upper())
    names = [f"{option} {value}".strip() for option in action.option_strings] or [value]
    meaning = (action.help or "") % {"default": action.default}
    if action.choices and action.default not in (None, argparse.SUPPRESS) and "(default" not in meaning:
        meaning = f"{meaning} (default: {action.default})".strip()
    return f"| {', '.join(f'`{name}`' for name in names)} | {meaning} |"

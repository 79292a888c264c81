"""The command line's reference, as its parser knows it."""

from __future__ import annotations

from collections.abc import Iterator

import click

import sharder.cli
import sharder.kubectl.cli
import shardsdk.cli


def render_sharder() -> str:
    """`sharder` and its commands: what each does, and its arguments."""
    return "\n".join(_render(sharder.cli.command, "sharder"))


def render_kubectl() -> str:
    """The same of `kubectl sharding`."""
    return "\n".join(_render(sharder.kubectl.cli.plugin, "kubectl sharding"))


def render_shardsdk() -> str:
    """The same of `shardsdk`."""
    return "\n".join(_render(shardsdk.cli.command, "shardsdk"))


def _render(command: click.Command, name: str) -> Iterator[str]:
    yield f"## `{name}`"
    yield ""
    yield command.help or ""
    yield ""
    yield "```text"
    context = click.Context(command, info_name=name)
    yield " ".join([name, *command.collect_usage_pieces(context)])
    yield "```"
    yield ""
    rows = [row for param in command.params if (row := _row(param, context))]
    if rows:
        yield "| argument | meaning |"
        yield "|---|---|"
        yield from rows
        yield ""
    if command.epilog:
        yield command.epilog
        yield ""
    if isinstance(command, click.Group):
        for each in command.commands.values():
            yield from _render(each, f"{name} {each.name}")


def _row(param: click.Parameter, context: click.Context) -> str:
    record = param.get_help_record(context)
    if record is None:
        return ""
    names, meaning = record[0].replace("|", ","), record[1]
    shown = ", ".join(f"`{each}`" for each in names.split(", ")) if isinstance(param, click.Option) else f"`{names}`"
    return f"| {shown} | {meaning} |"

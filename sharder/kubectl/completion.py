"""What a shell offers after `kubectl sharding …` (kubectl runs `kubectl_complete-sharding`).

Prints one suggestion per line, then a directive, as kubectl wants it of plugins.
What cannot be found out within a few seconds is not suggested, and no error is shown.

Source: https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins/, "Shell
completion"; the directives are those of github.com/spf13/cobra.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from click.shell_completion import CompletionItem, ShellComplete

from sharder.kubectl.cli import plugin

#: cobra.ShellCompDirectiveDefault: the shell completes file names; ...NoFileComp: it does not.
FILES: Final = 0
NO_FILES: Final = 4
#: Suggestions at most; nobody reads more.
MOST: Final = 500


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the suggestions for the command line `arguments`, whose last word is being typed."""
    words = list(sys.argv[1:] if arguments is None else arguments) or [""]
    suggestions, directive = suggest(words)
    sys.stdout.write("".join(f"{each}\n" for each in suggestions if _is_one_line(each)) + f":{directive}\n")
    return 0


def suggest(words: Sequence[str]) -> tuple[list[str], int]:
    """Suggestions for the last of `words`, and the directive."""
    *before, word = words
    found = ShellComplete(plugin, {}, "kubectl sharding", "").get_completions(before, word)
    if any(each.type in ("file", "dir") for each in found):
        return [], FILES
    # Of `--output=y` the shell replaces all.
    option, equals, _ = word.partition("=")
    prefix = option + equals if equals and option.startswith("-") else ""
    return [prefix + _line(each) for each in found][:MOST], NO_FILES


def _is_one_line(suggestion: str) -> bool:
    """Whether a value, and the help behind a tab, neither steer a terminal nor make a suggestion of their own."""
    return all(part.isprintable() for part in suggestion.split("\t"))


def _line(item: CompletionItem[str]) -> str:
    return f"{item.value}\t{item.help}" if item.help else item.value

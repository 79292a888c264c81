"""What the demo shows: rich on a terminal, plain lines elsewhere."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence

from examples.demo.watching import Handover, Watching

_BAR = 30


class Screen:
    """Prints the story; `fancy` False: lines that a pipe or a log can take."""

    def __init__(self, fancy: bool | None = None) -> None:
        self._console = None
        if sys.stdout.isatty() if fancy is None else fancy:
            from rich.console import Console

            self._console = Console(highlight=False)

    def title(self, text: str) -> None:
        """A new part of the story."""
        if self._console is not None:
            self._console.rule(f"[bold]{text}")
        else:
            print(f"== {text}", flush=True)

    def say(self, text: str) -> None:
        """One line."""
        if self._console is not None:
            self._console.print(f"  {text}", markup=False, soft_wrap=True)  # what is to be copied stays whole
        else:
            print(f"   {text}", flush=True)

    def good(self, text: str) -> None:
        """Something was checked and holds."""
        if self._console is not None:
            self._console.print(f"  [green]✓[/] {text}")
        else:
            print(f"   ok: {text}", flush=True)

    def bad(self, text: str) -> None:
        """Something was checked and does not hold."""
        if self._console is not None:
            self._console.print(f"  [red]✗[/] {text}")
        else:
            print(f"   FAILED: {text}", flush=True)

    def spread(self, watching: Watching) -> None:
        """Who owns how much."""
        spread = watching.spread()
        most = max([1, *(secrets for secrets, _, _ in spread.values())])
        for shard, (secrets, leaving, configmaps) in spread.items():
            bar = "█" * round(_BAR * secrets / most)
            state = "" if shard in watching.living else "  (gone)"
            leaves = f", {leaving} changing hands" if leaving else ""
            where = watching.owners.describe(shard, watching.namespaces)
            line = f"{shard:<10} {secrets:>4} secrets {configmaps:>4} configmaps{leaves}{state}"
            if self._console is not None:
                self._console.print(f"  [cyan]{line}[/] [blue]{bar}[/]")
            else:
                print(f"   {line}", flush=True)
            if where and shard in watching.living:
                self.say(f"           {where}")

    def handovers(self, handovers: Sequence[Handover], configmaps: int, seconds: float) -> None:
        """What moved, how long it took, and how long objects had no living owner."""
        if not handovers:
            self.say(f"nothing moved ({seconds:.1f} s)")
            return
        moved = [each for each in handovers if each.before is not None]
        new = [each for each in handovers if each.before is None]
        told = f"{len(moved)} secrets and {configmaps} configmaps changed hands", f"{len(new)} secrets got an owner"
        for what, those in zip(told, (moved, new), strict=True):
            if those:
                alone = [each.orphaned_seconds for each in those]
                self.say(
                    f"{what} in {seconds:.1f} s; without a living owner:"
                    f" median {_duration(statistics.median(alone))}, longest {_duration(max(alone))}"
                )


def _duration(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"

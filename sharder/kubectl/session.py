"""What every command is given: the API server, the clock, and where its output goes."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import TextIO

from sharder.kubectl.text import Painter, for_terminal, one_line
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock


@dataclass(frozen=True, slots=True)
class Session:
    """One run of one command.

    `output`: `text`, `wide`, `json` or `yaml`.  `namespace`: what `-n` said (None:
    nothing); `default_namespace` is that of the kubeconfig's context.  `host`: the
    API server, for messages.  `err`: where remarks go that are no output (None: nowhere).
    `reaches`: options by which kubectl reaches it, each after a space, for commands that are told.
    """

    api: Api
    clock: Clock
    out: TextIO
    painter: Painter
    output: str = "text"
    namespace: str | None = None
    default_namespace: str = "default"
    host: str = ""
    err: TextIO | None = None
    reaches: str = ""

    @property
    def for_people(self) -> bool:
        """Whether the output is text."""
        return self.output in ("text", "wide")

    @property
    def ascii_only(self) -> bool:
        """Whether the output's encoding lacks signs: in data they have to be escaped, to stay what they are."""
        return codecs.lookup(self.out.encoding or "utf-8").name != "utf-8"

    def say(self, *lines: str) -> None:
        """Write lines; whatever names and messages hold, a terminal shows it and does not obey it."""
        self.out.write("".join(for_terminal(line, self.painter) + "\n" for line in lines))
        self.out.flush()

    def complain(self, line: str) -> None:
        """Make a remark beside the output, which may be data."""
        if self.err is not None:
            self.err.write(f"kubectl-sharding: {one_line(line)}\n")
            self.err.flush()

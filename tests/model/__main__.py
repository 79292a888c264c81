"""`make model`: look at every state of every variant, and print what was found into docs/model.md."""

from __future__ import annotations

import sys

from tests.model.flaws import Flaw, is_safe
from tests.model.page import PAGE, Row, render
from tests.model.search import search


def main() -> int:
    """Search, print.  Ends with 1 when something else is found than is meant to be."""
    rows = []
    wrong = 0
    for flaw in Flaw:
        row = Row(flaw, search(flaw, edited=False), search(flaw, edited=True))
        rows.append(row)
        for outcome, edited in ((row.alone, False), (row.edited, True)):
            as_meant = bool(outcome.violation) != is_safe(flaw, edited=edited)
            wrong += not as_meant
            sys.stdout.write(f"{flaw.name}{' with edits' if edited else ''}: {outcome.states} states, ")
            sys.stdout.write(
                f"{'; '.join(outcome.violation) or 'no two owners'}{'' if as_meant else ' (NOT AS MEANT)'}\n"
            )
    PAGE.write_text(render(rows))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

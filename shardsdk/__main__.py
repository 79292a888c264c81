"""`python -m shardsdk` is the command `shardsdk`."""

from __future__ import annotations

import sys

from shardsdk.process.early import end_by_sigterm


def main() -> int:
    """Run the command line; returns the exit code."""
    end_by_sigterm()  # most of a start is loading
    from shardsdk.cli import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())

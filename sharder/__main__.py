"""`python -m sharder` is the command `sharder`."""

from __future__ import annotations

import sys

from sharder.cli import main

if __name__ == "__main__":
    sys.exit(main())

"""`python -m shardsdk` is the command `shardsdk`."""

from __future__ import annotations

import sys

from shardsdk.cli import main

if __name__ == "__main__":
    sys.exit(main())

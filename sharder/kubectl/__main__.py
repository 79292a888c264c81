"""`python -m sharder.kubectl`: the plugin without kubectl."""

from __future__ import annotations

import sys

from sharder.kubectl.cli import main

if __name__ == "__main__":
    sys.exit(main())

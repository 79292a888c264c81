"""A shard of examples/checksum that gets every checksum wrong, so that the demo has something to find."""

from __future__ import annotations

from unittest.mock import patch

from examples import checksum

if __name__ == "__main__":
    with patch.object(checksum, "checksum", lambda secret: "wrong"):
        checksum.main()

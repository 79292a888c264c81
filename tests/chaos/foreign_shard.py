"""The shard under test with a fault planted, as a control: it works on everything, whatever its Lease says."""

from __future__ import annotations

from shardsdk.protocol.ranges import EVERYWHERE
from shardsdk.ranges.holder import RangeHolder
from tests.chaos.recording_shard import main

if __name__ == "__main__":
    RangeHolder.working = property(lambda self: EVERYWHERE)  # type: ignore[method-assign, assignment]
    main()

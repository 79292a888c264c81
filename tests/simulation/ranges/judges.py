"""Who judges a run whose rings assign by ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.liveness import Liveness
from tests.simulation.ranges.holdings import Holdings
from tests.simulation.ranges.liveness import RangeLiveness
from tests.simulation.ranges.ownership import RangeCheckers, RangeOwnership
from tests.simulation.ranges.waiting import RangeWaits

if TYPE_CHECKING:
    from tests.simulation.checkers import Checkers
    from tests.simulation.ownership import Ownership
    from tests.simulation.waiting import Waits
    from tests.simulation.world import World

Judges = tuple["Checkers", Liveness, "Ownership | RangeOwnership", "Waits"]


def judges_of_ranges(world: World) -> Judges:
    """Those of a world whose storage holds nothing yet."""
    holdings, checkers = Holdings(world), RangeCheckers(world)
    world.storage.on_commit.append(world.names.to(holdings.on_commit))
    world.storage.on_set_back.append(holdings.rebuild)
    return (
        checkers,
        RangeLiveness(world, holdings),
        RangeOwnership(world, checkers, holdings),
        RangeWaits(world, holdings),
    )

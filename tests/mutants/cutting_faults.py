"""Faults planted into how the space of hashes is cut, and into who is given some of it."""

from __future__ import annotations

from typing import Final

from tests.mutants.fault import Fault

#: Tests that look for a fault, by what they are about.
CUTTING: Final = ("tests/properties/test_cutting.py",)
LIVENESS: Final = ("tests/unit/sharder/ranges/test_liveness.py",)

CUTTING_FAULTS: Final[dict[str, Fault]] = {
    "EIGHT_RANGES_IN_ANY_RING": Fault(
        "all ranges of a large ring go into one assignment",
        "sharder.core.cutting",
        "return max(1, min(MOST_RANGES, MAX_RANGES // (2 * shards)))",
        "return MOST_RANGES",
        CUTTING,
    ),
    "TRY_NOBODY_AGAIN": Fault(
        "whoever found no taker tries those again that have something else since",
        "sharder.core.cutting",
        "name: others | {donor, receiver} for",
        "name: others for",
        CUTTING,
    ),
    "EVEN_OUT_WHILE_ONE_IS_AWAY": Fault(
        "nothing is evened out while one is away that keeps what it has",
        "sharder.core.cutting",
        "if begun or not keepers:",
        "if True:",
        CUTTING,
    ),
    "TAKE_FROM_WHO_KEEPS": Fault(
        "who keeps what it has gives nothing to whoever comes",
        "sharder.core.slices",
        "return owner in self.names",
        "return owner is not None",
        CUTTING,
    ),
    "COME_FOR_NOTHING": Fault(
        "a shard that comes is not left with nothing where others have two namespaces",
        "sharder.core.cutting",
        "            _take_one_by_one(slices, name)\n",
        "",
        CUTTING,
    ),
    "NAMESPACES_LIE_ANYWHERE": Fault(
        "the space is cut between the hashes of the namespaces that there are",
        "sharder.core.cutting",
        "starts = slices_between(points, bounds) if points else even_slices(bounds)",
        "starts = even_slices(bounds)",
        CUTTING,
    ),
    "ANY_NUMBER_OF_RANGES": Fault(
        "a shard has eight ranges at most",
        "sharder.core.cutting",
        "(_LEVEL, 1.0), (1.08, 1.0), (_ANY, 1.0), (_ANY, _ANY))",
        "(_LEVEL, _ANY), (1.08, _ANY), (_ANY, _ANY))",
        CUTTING,
    ),
    "LEAVE_WHAT_IS_FREE_WITHOUT_A_SHARD": Fault(
        "what is free between the ranges of shards that are away is somebody's, in however many ranges",
        "sharder.core.cutting",
        "(_ANY, 1.0), (_ANY, _ANY))",
        "(_ANY, 1.0))",
        CUTTING,
    ),
    "GIVE_TO_WHO_IS_SILENT": Fault(
        "what is free goes past a shard that has missed renewals",
        "sharder.ranges.takers",
        "lively = staying - away or staying",
        "lively = staying",
        LIVENESS,
    ),
    "TAKE_FROM_WHO_IS_SILENT": Fault(
        "a shard that has missed renewals keeps what it is named for",
        "sharder.ranges.takers",
        "keep[shard] = named.of(shard) | (coming - free)",
        "keep[shard] = coming - free",
        LIVENESS,
    ),
    "SEND_ELSEWHERE_WHAT_OTHERS_END": Fault(
        "and is to have what others still end work in",
        "sharder.ranges.takers",
        "keep[shard] = named.of(shard) | (coming - free)",
        "keep[shard] = named.of(shard)",
        LIVENESS,
    ),
    "FORGET_WHO_IS_SHORT": Fault(
        "and is given its part once it renews, if that went to others",
        "sharder.ranges.takers",
        "            if free:\n",
        "            if False:\n",
        LIVENESS,
    ),
    "GIVE_TO_WHO_CRASHES_AGAIN": Fault(
        "a shard that has come back from a crash with nothing holds its lease for a while before it is given any",
        "sharder.ranges.takers",
        "self.now = lively - unsteady or lively",
        "self.now = lively",
        LIVENESS,
    ),
    "SPARE_WHO_HAS_CRASHED": Fault(
        "one that has something gives to whoever comes",
        "sharder.ranges.takers",
        "self.now = lively - unsteady or lively",
        "self.now = lively - membership.unsteady or lively",
        LIVENESS,
    ),
    "KEEP_WHO_LEAVES": Fault(
        "a shard that is about to leave gives away its ranges",
        "sharder.ranges.takers",
        "staying = there - membership.leaving or there",
        "staying = there",
        LIVENESS,
    ),
    "EMPTY_WHO_LEAVES_FOR_NOBODY": Fault(
        "but to nobody who is silent, or has come back from a crash with nothing",
        "sharder.ranges.takers",
        "if self.now <= away | unsteady:",
        "if False:",
        LIVENESS,
    ),
    "EVEN_OUT_AT_ONCE": Fault(
        "with the same shards nothing moves until one has much more than its part",
        "sharder.core.cutting",
        "_FULL if begun else UNEVEN",
        "_FULL",
        CUTTING,
    ),
}

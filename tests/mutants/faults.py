"""The standing list of planted faults: which rule each breaks, where, and what is meant to find it.

Those that replace whole methods are `tests.simulation.bugs`.  Imports nothing of
the product, so that it can be planted before that is loaded.
"""

from __future__ import annotations

from typing import Final

from tests.mutants.changeover_faults import CHANGEOVER_FAULTS
from tests.mutants.cutting_faults import CUTTING_FAULTS
from tests.mutants.decision_faults import DECISION_FAULTS
from tests.mutants.fault import Fault
from tests.mutants.lease_faults import LEASE_FAULTS
from tests.mutants.operator_faults import OPERATOR_FAULTS
from tests.mutants.ranges_faults import RANGES_FAULTS
from tests.mutants.shard_faults import SHARD_FAULTS
from tests.mutants.sharder_faults import SHARDER_FAULTS
from tests.mutants.tenant_faults import TENANT_FAULTS
from tests.mutants.watch_faults import WATCH_FAULTS

FAULTS: Final[dict[str, Fault]] = {
    **SHARD_FAULTS, **LEASE_FAULTS, **SHARDER_FAULTS, **DECISION_FAULTS, **OPERATOR_FAULTS, **RANGES_FAULTS,
    **CUTTING_FAULTS, **CHANGEOVER_FAULTS, **WATCH_FAULTS, **TENANT_FAULTS,
}  # fmt: skip

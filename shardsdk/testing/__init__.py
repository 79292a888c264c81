"""For tests of controllers: drive one with objects, let time pass without waiting, or start a real API server.

>>> from shardsdk import Context, controller_for, PartialObject, Resource
>>> from shardsdk.testing import drive
>>> SECRETS = Resource("", "v1", "secrets", "Secret")
>>> async def reconcile(context: Context[PartialObject]) -> None:
...     patch = {"metadata": {"annotations": {"seen": "yes"}}}
...     await context.api.patch(SECRETS, context.request.name, context.request.namespace, patch)
>>> rig = drive(controller_for(SECRETS).reconcile(reconcile), [(SECRETS, {"metadata": {"name": "a"}})])
>>> rig.get(SECRETS, "a")["metadata"]["annotations"]
{'seen': 'yes'}

- `drive` and `Rig`: a whole shard on an API server in memory (test_rig.py), which may crash (test_crashes.py).
- `ControlPlane`: a real etcd and kube-apiserver (tests/integration/test_testing_controlplane.py);
  `shardsdk.testing.fixtures` has it for pytest.
- `run_virtual`, `in_virtual_time`, `VirtualClock`, `SkewedClock`: time (test_virtual.py).
- `MemoryServer`, `MemoryApi`, `Fault`: an API server in memory, and its faults (test_memory.py).
- `Process`: pause, resume and kill between any two steps (test_virtual.py).
- `lease_body`, `make_lease`, `LeaseStage`: leases in each of their stages (test_lease_factory.py).

Guarantees: code that runs here is the code that runs in production; only the
event loop, the clock and the API server are others.

Does not guarantee: anything for code that uses threads or looks at a clock of its own.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from shardsdk.testing.controlplane import ControlPlane, ControlPlaneFailed
    from shardsdk.testing.leases import LeaseStage, lease_body, make_lease
    from shardsdk.testing.memory import Admit, Change, MemoryServer, Object
    from shardsdk.testing.memoryapi import Fault, MemoryApi
    from shardsdk.testing.processes import Process
    from shardsdk.testing.programs import Programs, find_programs
    from shardsdk.testing.rig import Given, Rig, Story, drive
    from shardsdk.testing.rights import RightsLack
    from shardsdk.testing.virtual import (
        Deadlock,
        Livelock,
        SkewedClock,
        TimeLimit,
        VirtualClock,
        in_virtual_time,
        run_virtual,
    )

__all__ = [
    "Admit",
    "Change",
    "ControlPlane",
    "ControlPlaneFailed",
    "Deadlock",
    "Fault",
    "Given",
    "LeaseStage",
    "Livelock",
    "MemoryApi",
    "MemoryServer",
    "Object",
    "Process",
    "Programs",
    "Rig",
    "RightsLack",
    "SkewedClock",
    "Story",
    "TimeLimit",
    "VirtualClock",
    "drive",
    "find_programs",
    "in_virtual_time",
    "lease_body",
    "make_lease",
    "run_virtual",
]

#: Where each lazy name is defined; tests hold this against `__all__`.
_HOMES: Final = {
    "shardsdk.testing.controlplane": ("ControlPlane", "ControlPlaneFailed"),
    "shardsdk.testing.leases": ("LeaseStage", "lease_body", "make_lease"),
    "shardsdk.testing.memory": ("Admit", "Change", "MemoryServer", "Object"),
    "shardsdk.testing.memoryapi": ("Fault", "MemoryApi"),
    "shardsdk.testing.processes": ("Process",),
    "shardsdk.testing.programs": ("Programs", "find_programs"),
    "shardsdk.testing.rights": ("RightsLack",),
    "shardsdk.testing.rig": ("Given", "Rig", "Story", "drive"),
    "shardsdk.testing.virtual": (
        *("Deadlock", "Livelock", "SkewedClock", "TimeLimit", "VirtualClock", "in_virtual_time", "run_virtual"),
    ),
}
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names}


if not TYPE_CHECKING:  # else every misspelt name would be `Any`

    def __getattr__(name: str) -> Any:
        home = _HOME_OF.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(home), name)
        return value


def __dir__() -> list[str]:
    return sorted(__all__)

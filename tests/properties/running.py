"""A process of a property's world, and what becomes of it and of its ways to the API server."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random

from shardsdk.process.manager import Manager
from shardsdk.process.process import ExitCode
from shardsdk.testing.memoryapi import Fault
from shardsdk.testing.processes import Process, ProcessState
from tests.unsharded_rig import Replica


@dataclass
class Running:
    """A process that runs a replica, and what a test does to its ways to the API server."""

    process: Process
    replica: Replica
    manager: Manager
    main: asyncio.Task[ExitCode]
    #: Seconds that requests and events take at most.
    slow: float = 0.05
    late: float = 0.05
    #: When its API server has started.
    started_at: float = 0.0

    @property
    def killed(self) -> bool:
        return self.process.state is ProcessState.KILLED

    def set_fault(self, fault: Fault) -> None:
        for api in self.replica.apis:
            api.fault = fault

    def disturb(self, number: int, rng: Random) -> None:
        """What may happen to any process; `number`: 0 to 7."""
        match number:
            case 0:
                self.set_fault(rng.choice(list(Fault)))
            case 1 | 2 | 3:
                self.set_fault(Fault.NONE)
            case 4:
                self.process.pause()
            case 5 | 6:
                self.process.resume()
            case 7:
                self.process.kill()
            case _:
                raise ValueError(f"{number} is not 0 to 7")

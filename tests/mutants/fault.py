"""What a planted fault is.

A fault is a piece of one module's source and what stands there instead.  The
piece has to be there exactly once: a fault whose place has changed is refused,
never skipped.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Fault:
    """`old` in the source of `module` becomes `new`; `tests` look for it, else simulated runs with this `focus`.

    With `ranges` these are runs of rings that assign by ranges of hashes.
    """

    rule: str
    module: str
    old: str
    new: str
    tests: tuple[str, ...] = ()
    focus: dict[str, float] = field(default_factory=dict)
    ranges: bool = False

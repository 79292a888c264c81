"""When the lease of a shard may be taken over: no sooner than it has run out, by the fastest clock.

Fenced it has its duration once, otherwise twice, counted while the API server answered; and once more where it let
nobody write the lease, as who takes it had to find.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from shardsdk.kube.store import Key
from tests.simulation.leases import Held
from tests.simulation.vocabulary import RATES

if TYPE_CHECKING:
    from tests.simulation.world import World

#: After a hanging API server answers again, how long what it had taken in is executed.
_HUNG_SECONDS: Final = 0.1
#: After a dry run was refused, when the write that is sent right behind it has arrived.
_BEHIND_SECONDS: Final = 0.05
#: How late a renewal may be seen where nothing is wrong with the watch.
_SEEN_SECONDS: Final = 1.0


class Takeovers:
    """Looks at each lease that the sharder takes; `violate(rule, what)` is told of what is taken too soon."""

    def __init__(self, world: World, violate: Callable[[str, str], None]) -> None:
        self._world = world
        self._violate = violate

    def check(self, shard: str, held: Held, heard: int, leader: str) -> None:
        """A lease that said this was taken by `leader`, which had heard of versions up to `heard`."""
        world = self._world
        if held.again_at is not None and heard < held.number:
            held = replace(held, at=held.again_at)
        what = f"lease of {shard} taken {world.now - held.at:.3f} s after {held}"
        if world.outlasting and shard not in world.foreign_names and not self._came_too_late(shard, held):
            self._violate("outlasts outages", what)
        if held.holder != shard:
            return
        wanted = held.duration * (1 if held.fenced or held.author == "user" else 2)
        passed = self._answered(held)
        if passed < wanted / RATES[1] - 0.001:  # by the fastest clock
            self._violate("takes over in time", f"{what}; the API server answered for {passed:.3f} s, not {wanted:g} s")
        self._check_spared(Key(world.namespace_of_shard(shard), shard), held, leader, what)

    def _came_too_late(self, shard: str, held: Held) -> bool:
        """Whether no process of a shard is back, though an outage took no more than the half of its lease."""
        world = self._world
        running = any(each.name == shard and each.running for each in world.shards)
        out = sum(seconds for seconds, ended in world.outages if ended > held.at)
        return not running and world.now - held.at - out >= held.duration / 2 / RATES[1]

    def _check_spared(self, lease: Key, held: Held, leader: str, what: str) -> None:
        """A shard that could not renew, as the leader found when it had run out, has its duration to come back."""
        world = self._world
        refused_at = world.poison.refused_at.get((lease, leader), float("-inf"))
        ran_out_at = held.at + held.duration / RATES[0] + _SEEN_SECONDS  # by the slowest clock
        # In an outage no lease runs out, and whoever has come to lead since knows nothing of what was refused.
        led = world.hindrances.has_led_since(leader, held.at)
        if not led or held.author == "user" or refused_at < ran_out_at:
            return
        # It is given that once: what was refused from later on may find it with that behind it.
        if world.poison.refused_since[lease] > held.at + held.duration / RATES[1]:
            return
        if world.now < refused_at + _BEHIND_SECONDS:
            return  # nothing is refused any more since the dry run was, by which the leader tells
        passed = world.now - world.poison.passes_since[lease]
        if passed < held.duration / RATES[1]:
            self._violate("spares whom nobody let renew", f"{what}; it could be written again for {passed:.3f} s")

    def _answered(self, held: Held) -> float:
        """The longest that the API server answered in one go since a lease was renewed.

        An outage counts that took more than its share of the lease: no shard loses
        half of its lease to one, as far as the leader's renewals can tell it.  What was sent
        before it took too much, in good faith, may be executed as it ends.
        """
        world, retry = self._world, self._world.timings.retry
        too_long = min(max(held.duration / 2, 1.5 * retry), 2.5 * retry)
        since, longest = held.at, 0.0
        for seconds, ended in world.outages:
            if ended > held.at and seconds > too_long:
                in_good_faith = too_long if world.now - ended < _HUNG_SECONDS else 0.0
                longest = max(longest, ended - seconds + in_good_faith - since)
                since = ended
        return max(longest, world.now - since)

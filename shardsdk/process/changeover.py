"""An operator that goes from elected to sharded, or back: its two forms do not reconcile the same objects at once.

Neither form's lease keeps the other's out.  So each looks, once it holds its own and before it works on anything:
a shard at the Lease of the operator's election, a leader at the Leases of the ring's shards.  Whichever wrote its lease
later sees the other's.  A leader waits under its lease until the shards are gone.  A shard waits without one: it looks
before it seeks its lease as well, and gives it up if it was too late.  So whoever is waited for either works, or gives
way, and never waits for a shard that waits: they cannot wait for one another.

Meanwhile both are ready, as a candidate is that does not lead: a rolling update, which ends the one form's pods as the
other's become ready, would never end otherwise.

A lease counts as held for as long as by a candidate's rules (`Others`).  That of a leader which has not given it back
is given back by a shard that has seen it run out, as nobody stands for election any more who would: else each shard
would wait so.  A shard's is left to the sharder, which moves objects by it; where there is none, each leader that
starts waits for it.  Whoever has seen leases once waits until it sees them again, whatever it is refused.

Does not guarantee: anything about shards of a ring that is not called like the operator, about leases in other
namespaces, about one that was deleted by hand, or to whoever was never allowed to see them.
"""

from __future__ import annotations

import math
from contextlib import nullcontext, suppress
from typing import Final

from shardsdk.errors import NotFound, ShardingError
from shardsdk.kube.api import Api
from shardsdk.kube.backoff import Backoff
from shardsdk.kube.selectors import Selector, equals
from shardsdk.lease.claim import Claim, Others, Relation, describe_holder, released, render_release
from shardsdk.lease.ring import Refusals
from shardsdk.logs import logger_of
from shardsdk.process.process import ExitCode
from shardsdk.process.world import World
from shardsdk.protocol.labels import LEASE_RING_LABEL, SHARDER_HOLDER
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.objects import LEASES

log: Final = logger_of(__name__)

#: How often leases are looked at that are waited for, and that others may be waiting for.  Source: client-go's default
#: RetryPeriod.
LOOK_SECONDS: Final = 2.0
#: How often people are told for whom it is waited.
TELL_SECONDS: Final = 300.0


class OtherForm:
    """The other form of an operator, the elected one or the sharded one, as leases tell of it.

    Of the elected one it is the Lease called like the operator, of the sharded one those of the shards of the ring
    called so.  Without an operator there is no other form.
    """

    def __init__(self, operator: str = "", *, elected: bool = False) -> None:
        #: Empty: there is none.
        self.operator: Final = operator
        #: Its leases, and who holds them, while it is waited for.
        self.held: str = ""
        self._elected = elected
        self._read = _read_election if elected else _read_shards
        self._where: Final[dict[str, object]] = {"operator": operator, "form": "elected" if elected else "sharded"}
        #: What was seen of each Lease, by its name, and how it was last.
        self._seen: dict[str, Others] = {}
        self._leases: dict[str, Lease] = {}
        self._blind = not operator
        #: Whether they were ever seen, or that there are none.
        self._looked = False

    @property
    def awaited(self) -> bool:
        """Whether it is waited for."""
        return self.held != ""

    async def wait_until_gone(self, world: World, namespace: str, api: Api | None = None) -> ExitCode:
        """Return when none of its leases in `namespace` is held; asks by `api`, if not by a client of its own."""
        if self._blind or world.open is None:
            return ExitCode.OK
        async with world.client() if api is None else nullcontext(api) as asked:
            told_at = -math.inf
            try:
                while held := await self._find_held(asked, world, namespace):
                    self.held = "; ".join(f"{name} by {_describe(self._leases[name])}" for name in held)
                    if world.clock.monotonic() >= told_at + TELL_SECONDS:
                        told_at = world.clock.monotonic()
                        self._tell(held, namespace)
                    await world.clock.sleep(LOOK_SECONDS)
                if self.awaited:
                    await self._give_back(asked, world)
                    log.info("This operator does not run in its other form any more; going on", extra=self._where)
            finally:
                self.held = ""
        return ExitCode.OK

    async def is_gone(self, world: World, namespace: str, api: Api) -> bool:
        """Whether none of its leases in `namespace` is held; waits while the API server is away.

        It is asked under a lease: who cannot see any more what it has seen gives that up, and waits without.
        """
        self._blind = not self.operator  # a right may have been granted meanwhile
        return await self._find_held(api, world, namespace, waits=False) == []

    def _tell(self, held: list[str], namespace: str) -> None:
        log.warning(
            "This operator still runs in its other form; waiting until that has ended",
            extra={
                **self._where,
                "held": self.held,
                "remedy": "a rolling update ends it, and a Lease that nobody renews is waited for until it has run out;"
                f" if nobody runs it any more, `kubectl delete lease {' '.join(held)} -n {namespace}` keeps the next"
                " process from waiting so; where both are meant to run, give one another name",
            },
        )

    async def _give_back(self, api: Api, world: World) -> None:
        """Empty the Lease of a leader that was seen to run out, if it is still as it was."""
        for name, lease in self._leases.items() if self._elected else ():
            if not -math.inf < self._seen[name].until <= world.clock.monotonic():
                continue
            namespace = lease.metadata.namespace
            claim = Claim(namespace, name, lease.holder, lease.duration_seconds)
            changes = render_release(claim, lease, world.clock.now())
            with suppress(ShardingError):  # it was renewed after all, or the next shard does it
                await api.patch(LEASES, name, namespace, changes, model=Lease, metadata_only=False)

    async def _find_held(self, api: Api, world: World, namespace: str, *, waits: bool = True) -> list[str] | None:
        """The names of the leases under which it may be at work; none, where this process may never see them.

        `None` unless it `waits`: they cannot be seen any more.
        """
        if self._blind:
            return []
        backoff = Backoff(world.rng, first_seconds=0.5, max_seconds=10.0)
        refusals = Refusals(api, world.clock)
        told_at = -math.inf
        remedy = f"apply what `shardsdk manifests` prints, or grant get and list of leases in namespace {namespace}"
        while True:
            try:
                leases = await self._read(api, self.operator, namespace)
            except ShardingError as error:
                refused = await refusals.are_final(error)
                if refused and not self._looked:
                    self._blind = True
                    log.warning(
                        "It cannot be seen whether this operator runs in its other form as well; both would do the same"
                        " work",
                        extra={
                            **self._where,
                            "error": str(error),
                            "remedy": f"{remedy}; if it never had another form, nothing is wrong",
                        },
                    )
                    return []
                if refusals.ask_at_once:
                    continue
                if refused and not waits:
                    return None
                if refused:
                    self.held = f"unknown, it cannot be seen any more: {error}"
                if refused and world.clock.monotonic() >= told_at + TELL_SECONDS:
                    told_at = world.clock.monotonic()
                    log.warning(
                        "It can no longer be seen whether this operator runs in its other form; waiting until it can",
                        extra={**self._where, "error": str(error), "remedy": remedy},
                    )
                elif not refused:
                    log.info(
                        "It could not be seen whether this operator runs in its other form as well; trying again",
                        extra={**self._where, "error": str(error)},
                    )
                await world.clock.sleep(backoff.next())
            else:
                self._looked = True
                return self._judge(leases, world.clock.monotonic())

    def _judge(self, leases: list[Lease], now: float) -> list[str]:
        for lease in leases:
            self._seen.setdefault(lease.metadata.name, Others()).saw(lease, _relation(lease), now)
            self._leases[lease.metadata.name] = lease
        return sorted(name for name, others in self._seen.items() if now < others.until)


async def _read_election(api: Api, name: str, namespace: str) -> list[Lease]:
    """The Lease of the election; none if it is a shard's, which may be called so: whose it is tells its holder.

    A label of a ring is there still when a leader has taken the Lease of a shard.
    """
    try:
        lease = await api.get(LEASES, name, namespace, model=Lease)
    except NotFound:
        return []
    return [] if lease.ring is not None and lease.held_by_shard else [lease]


async def _read_shards(api: Api, ring: str, namespace: str) -> list[Lease]:
    """Those of the ring's shards, but for that of the election, which is the leader's own."""
    ours = Selector(equals(LEASE_RING_LABEL, ring))
    pages = api.pages(LEASES, namespace, selector=ours, model=Lease, metadata_only=False)
    leases = [lease async for page in pages for lease in page]
    return [each for each in leases if each.metadata.name != ring or each.held_by_shard]


def _describe(lease: Lease) -> str:
    return describe_holder(lease) or "nobody, but was not given back"


def _relation(lease: Lease) -> Relation:
    if lease.holder == SHARDER_HOLDER:
        return Relation.OURS  # nobody's of an operator: its shard has lost it
    return Relation.FREE if not lease.holder or released(lease) else Relation.OTHER

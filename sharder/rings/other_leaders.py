"""Leaders of other sharders: there is to be one in a cluster, and nothing keeps a second one from leading elsewhere.

An election is by the name and namespace of its Lease, so that two releases have two.  Each marks its own by a label,
and whoever leads looks for others that bear it.  Sharders of versions before that mark none, and are not found.

That somebody leads by one shows from look to look: it was renewed in between, and leads for as long as it is held by
that.  One that a killed sharder has left behind, whatever it says and whatever clocks do, is no leader's.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Final

from sharder.core.problems import LIST_LEADERS, some
from shardsdk.errors import ShardingError
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock
from shardsdk.kube.selectors import Selector, equals
from shardsdk.protocol.labels import LEADER_LABEL, LEADS_SHARDER
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.objects import LEASES

log = logging.getLogger(__name__)

#: Between two looks: more than a leader lets pass between two renewals, unless it holds its Lease for minutes.
LOOK_SECONDS: Final = 30.0


class OtherLeaders:
    """Beside the one whose Lease is `namespace`/`name`; `show(number)` is told how many there are, after each look."""

    def __init__(self, api: Api, namespace: str, name: str, *, clock: Clock, show: Callable[[int], object]) -> None:
        self._api = api
        self._own = f"{namespace}/{name}"
        self._clock = clock
        self._show = show
        #: By whom the Lease of each is held that there was at the last look.
        self._found: dict[str, str] = {}
        #: When each Lease was renewed, as it says, and by our clock when a look has shown that first.
        self._renewed: dict[str, tuple[str | None, float]] = {}
        #: Told when `words` are others.
        self.when_changed: list[Callable[[], None]] = []

    @property
    def words(self) -> str | None:
        """What people are to know, with its remedy, the same whoever of them says it; `None`: there is no other."""
        if not self._found:
            return None
        return (
            f"more than one sharder leads, by the Leases {some(sorted({*self._found, self._own}))}, and each undoes"
            f" what the other does: remove one;"
            f" `{LIST_LEADERS}` shows who leads"
        )

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            try:
                found = await self._read()
            except ShardingError as error:
                log.debug("Nobody knows whether other sharders lead", extra={"error": str(error)})
            except Exception:
                # A bug; to lead goes on without it.
                log.exception("other leaders not looked for, will retry")
            else:
                self._take(found)
            await self._clock.sleep(LOOK_SECONDS)

    async def _read(self) -> dict[str, str]:
        selector = Selector(labels=equals(LEADER_LABEL, LEADS_SHARDER))
        pages = self._api.pages(LEASES, selector=selector, model=Lease, metadata_only=False)
        leases = {f"{each.metadata.namespace}/{each.metadata.name}": each async for page in pages for each in page}
        now, before, self._renewed = self._clock.monotonic(), self._renewed, {}
        found = {}
        for name, each in leases.items():
            at = each.spec.renew_time
            known, seen_at = before.get(name, (at, -math.inf))
            self._renewed[name] = at, now if at != known else seen_at
            led = now - self._renewed[name][1] <= (each.spec.lease_duration_seconds or 0)
            if led and each.holder and name != self._own:
                found[name] = each.holder
        return found

    def _take(self, found: dict[str, str]) -> None:
        before, self._found = self._found, found
        self._show(len(found))
        for lease in sorted(found.keys() - before.keys()):
            log.warning("another sharder leads", extra={"lease": lease, "holder": found[lease], "own": self._own})
        if found.keys() != before.keys():
            for tell in self.when_changed:
                tell()

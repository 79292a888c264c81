"""Children that follow their owners one by one, and the families under way that they must not cross.

A family leaves alone what is already where it goes.  So what was decided about a child by where
its owner was before meets no conflict there: sent late, it takes the child away from the shard
that has the owner by then.

Does: let a child be written only if no family of its owner has begun since before the owner was
looked at, and have a family wait for those that were written before.  Refuses: to let a family
wait for what was not sent yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from sharder.core.ringspec import Role
from sharder.placement.slots import WRITE_SECONDS, Crowded
from shardsdk.errors import Conflict, may_be_executed
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock

#: Owners with unanswered writes that are remembered; the writes of those before them ended long ago.
MAX_UNANSWERED: Final = 10_000


@dataclass(slots=True, eq=False)
class Follower:
    """A child, from before its owner is looked at until its write was answered; `overtaken`: its owner's family moves.

    `overtaken` stays: where the owner was found to be says nothing any more.
    """

    overtaken: bool = False
    sent: bool = False

    def send(self) -> None:
        """It is written now.  Raises: Conflict when it was overtaken."""
        if self.overtaken:
            raise Conflict("the object's owner changes hands")
        self.sent = True


class Followers:
    """The children of one ring's owners that are decided one by one, and the owners whose families are under way."""

    def __init__(self, api: Api, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        #: By uid of the owner.
        self._followers: dict[str, set[Follower]] = {}
        #: Until when a write of a child of an owner may be executed that had no answer.
        self._unanswered: dict[str, float] = {}
        self._moving: set[str] = set()
        self._ended = asyncio.Event()

    # -- families ----------------------------------------------------------

    @property
    def moving(self) -> int:
        """How many families are under way."""
        return len(self._moving)

    def is_moving(self, uid: str) -> bool:
        """Whether the family of this owner is under way."""
        return uid in self._moving

    def begin(self, uid: str) -> None:
        """The family of this owner is under way from now on: none of its children is sent anywhere else."""
        self._moving.add(uid)
        for follower in self._followers.get(uid, ()):
            follower.overtaken = True

    def end(self, uid: str) -> None:
        """It has moved, or is tried again later."""
        self._moving.discard(uid)

    async def settled(self, uid: str) -> None:
        """Return once no write of a child of this owner can be executed that was sent before its family began."""
        while any(follower.sent for follower in self._followers.get(uid, ())):
            await self._ended.wait()
        until = self._unanswered.get(uid)
        if until is not None:
            # Writes of others, which may hang for longer, are nothing to this family.
            with suppress(TimeoutError):
                async with asyncio.timeout(until - self._clock.monotonic()):
                    await self._api.writes_settled()
            self._unanswered.pop(uid, None)

    def note_unanswered(self, uid: str, error: BaseException) -> None:
        """A write of a child of this owner ended so; it may be executed still, unless the error says otherwise."""
        if isinstance(error, Crowded) or not may_be_executed(error):
            return
        self._unanswered.pop(uid, None)
        self._unanswered[uid] = self._clock.monotonic() + WRITE_SECONDS[Role.CONTROLLED]
        if len(self._unanswered) > MAX_UNANSWERED:
            del self._unanswered[next(iter(self._unanswered))]

    # -- single children -----------------------------------------------------

    @contextmanager
    def follow(self, uid: str) -> Iterator[Follower]:
        """While a child of this owner is decided and written."""
        follower = Follower(overtaken=uid in self._moving)
        self._followers.setdefault(uid, set()).add(follower)
        try:
            yield follower
        except BaseException as error:
            if follower.sent:
                self.note_unanswered(uid, error)
            raise
        finally:
            self._leave(uid, follower)

    def _leave(self, uid: str, follower: Follower) -> None:
        others = self._followers[uid]
        others.discard(follower)
        if not others:
            del self._followers[uid]
        if follower.sent:
            self._ended.set()
            self._ended = asyncio.Event()

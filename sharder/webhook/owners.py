"""Reads owners for admission: one consistent list by name per child.

Never from a cache, where a label that has just been taken off would come back;
and never for longer than an API server waits for the webhook.
"""

from __future__ import annotations

import asyncio

from sharder.core.admission import NeedOwner
from shardsdk.errors import NotServed, ShardingError
from shardsdk.kube.api import Api
from shardsdk.protocol.objects import PartialObject


class OwnerUnread(ShardingError):
    """The owner could not be read in time; its child passes unlabelled.

    `not_served`: its type is not served, or not in the version that was looked up.
    """

    def __init__(self, message: str, *, not_served: bool = False) -> None:
        super().__init__(message)
        self.not_served = not_served


class OwnerReader:
    """At most `concurrency` reads at once, each within `seconds` (its turn included)."""

    def __init__(self, api: Api, concurrency: int, seconds: float) -> None:
        self._api = api
        self._turns = asyncio.Semaphore(concurrency)
        self._seconds = seconds

    async def read(self, need: NeedOwner) -> PartialObject | None:
        """The owner as it is now; `None`: there is none.

        Raises: OwnerUnread.
        """
        owner = f"{need.resource.group_resource} {need.namespace}/{need.name}"
        try:
            async with asyncio.timeout(self._seconds), self._turns:
                return await self._api.find(need.resource, need.name, need.namespace or None)
        except TimeoutError:
            raise OwnerUnread(f"owner {owner} not read within {self._seconds:g} s") from None
        except ShardingError as error:
            raise OwnerUnread(f"owner {owner} not read: {error}", not_served=isinstance(error, NotServed)) from error

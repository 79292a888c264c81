"""Reading everything that is selected, consistently.

Does: stream it, which costs least, or read it in pages while much is written:
the API server ends a stream that lags behind the changes made meanwhile, and
there is nothing in it that says how far it has come.  Refuses: to keep anything.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from shardsdk.errors import StreamInterrupted
from shardsdk.kube.api import Api
from shardsdk.kube.selectors import Selector
from shardsdk.protocol.objects import Resource, SlimObject


async def read_all(
    api: Api, resource: Resource, namespace: str | None, selector: Selector, *, busy: bool
) -> AsyncIterator[list[SlimObject]]:
    """Every object; `busy`: objects are on their way.  One may be shown twice, the latest state last.

    Raises: StreamInterrupted when the pages ran out as well; what was shown proves nothing then.
    """
    if not busy:
        try:
            async for batch in api.stream(resource, namespace, selector=selector, model=SlimObject, metadata_only=True):
                yield batch
            return
        except StreamInterrupted:
            pass
    async for batch in api.pages(resource, namespace, selector=selector, model=SlimObject, metadata_only=True):
        yield batch

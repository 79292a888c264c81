"""What every worker of a queue does, whatever it works on.

Refuses: to say whether, and when, what failed is tried again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import TypeVar

from shardsdk.errors import FenceClosed
from shardsdk.queueing.queue import WorkQueue

K = TypeVar("K", bound=Hashable)


async def work_off(
    queue: WorkQueue[K], handle: Callable[[K], Awaitable[None]], failed: Callable[[K, Exception], None]
) -> None:
    """`handle` one item after the other, until the queue shuts down.

    `failed` is told what `handle` raised, and sees to it that the item comes
    again.  Where a fence has closed, it does not: the work is another's.
    """
    while (key := await queue.get()) is not None:
        try:
            await handle(key)
            queue.forget(key)
        except FenceClosed:
            queue.forget(key)
        except Exception as error:
            failed(key, error)
        finally:
            queue.done(key)

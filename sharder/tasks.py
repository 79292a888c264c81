"""Tasks that end before whoever began them goes on."""

from __future__ import annotations

import asyncio


async def end(task: asyncio.Task[None] | None) -> None:
    """Cancel it, and wait until it has ended."""
    if task is not None:
        task.cancel()
        await asyncio.wait((task,))

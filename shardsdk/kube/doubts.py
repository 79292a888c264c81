"""Holds that are doubted: the clock may have missed some time, and a renewal, due at once, will tell."""

from __future__ import annotations

from shardsdk.errors import FenceClosed, LeaseLost
from shardsdk.kube.api import Fence


class FenceDoubted(FenceClosed):
    """The fence is shut only because the clock may have missed some time; a renewal, due at once, will tell."""


def is_doubted(fence: Fence) -> bool:
    """Whether a fence that is shut may be open again in a moment; one that does not say (`doubted`) may not."""
    return bool(getattr(fence, "doubted", False))


def check_open(fence: Fence, otherwise: str) -> None:
    """Raises: FenceDoubted when the fence may be open again in a moment, LeaseLost when it is shut for good."""
    if fence.remaining() <= 0:
        if is_doubted(fence):
            raise FenceDoubted(f"{fence.name} has yet to be confirmed: {otherwise} now")
        raise LeaseLost(f"{fence.name} is not held any more: {otherwise}")

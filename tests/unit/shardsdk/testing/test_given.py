"""What `drive` is given, and cannot do anything with: refused, with what to give instead."""

from __future__ import annotations

from typing import Any

import pytest

from shardsdk import ConfigurationError, Context, Operator
from shardsdk.kinds import ConfigMap
from shardsdk.testing import drive
from tests.shard_rig import SECRETS

operator = Operator("test")


@operator.reconcile(ConfigMap)
async def reconcile(ctx: Context[ConfigMap]) -> None:
    await ctx.get(ConfigMap, ctx.name)


@pytest.mark.parametrize("given", [{"metadata": {"name": "a"}}, (SECRETS,), ("secrets", {}), None])
def test_what_is_no_object_is_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"such of a kind, ConfigMap\(…\), or a resource with a body"):
        drive(operator, [given])


def test_a_story_that_cannot_be_awaited_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="write it as `async def`"):
        drive(operator, [], lambda rig: None)  # type: ignore[arg-type, return-value]

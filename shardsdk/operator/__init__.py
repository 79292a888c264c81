"""Operators: what reconciles objects of a kind, written as functions.

    from shardsdk import Context, Operator

    operator = Operator("websites")

    @operator.reconcile(Website, owns=[ConfigMap])
    async def website(ctx: Context[Website]) -> WebsiteStatus:
        await ctx.apply(ConfigMap(data={"index.html": ctx.object.spec.html}))
        return WebsiteStatus(ready=True)

    operator.run()

It stands on `ControllerSpec` and `Manager`, which stay usable by themselves:
leases, fences, barriers, drains and expectations are theirs.
"""

from __future__ import annotations

from shardsdk.operator.declared import Declared, Settings
from shardsdk.operator.failures import Permanent, Retry
from shardsdk.operator.operator import Operator
from shardsdk.operator.permissions import Permissions, Rule
from shardsdk.operator.reconciler import Function, MapTo, Reconciler
from shardsdk.operator.webhooks import Mutated, On, Validated, Warnings

__all__ = [
    "Declared",
    "Function",
    "MapTo",
    "Mutated",
    "On",
    "Operator",
    "Permanent",
    "Permissions",
    "Reconciler",
    "Retry",
    "Rule",
    "Settings",
    "Validated",
    "Warnings",
]

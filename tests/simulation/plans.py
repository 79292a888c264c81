"""Plans as files: what a run found, to be played again, and those that are kept for ever.

A file holds all that a plan draws from its seed, so that it plays the same when
seeds are drawn in another way.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from tests.simulation.schedule import Plan

#: Plans that broke a rule once; the tests play each.
KEPT: Final = Path(__file__).parent / "regressions"


def save_plan(plan: Plan, path: Path) -> None:
    """Write `plan` for people and for `load_plan`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(plan), indent=1) + b"\n")


def load_plan(path: Path) -> Plan:
    """Raises: msgspec.ValidationError when the file is no plan (any more)."""
    return msgspec.json.decode(path.read_bytes(), type=Plan)


def kept_plans() -> list[Path]:
    """The files of the plans that are kept."""
    return sorted(KEPT.glob("*.json"))


def describe_plan(plan: Plan) -> str:
    """The settings and what happens, as a short list."""
    settings = (
        f"{plan.shards} shards, {plan.foreign} of them foreign, {plan.plain_shards} plain ones,"
        f" {plan.replicas} replicas, {plan.works} works, {plan.plains} plains, leases of {plan.timings.lease:g} s,"
        f" webhook {'up' if plan.webhook else 'down'}, {'some' if plan.select_namespaces else 'all'} namespaces"
    )
    settings += ", some shards with shorter ones" if plan.mixed else ""
    settings += ", late answers of the webhook" if plan.late_webhook else ""
    if plan.ranges:
        settings += f", rings by ranges, {'' if plan.filters_shards else 'not '}filtered by the API server"
        settings += ", shards in several namespaces" if plan.spread else ""
        settings += ", some of one name" if plan.twins else ""
    scenario = [f"scenario {plan.scenario.name}"] if plan.scenario is not None else []
    return "\n".join([settings, *scenario, *map(str, plan.actions)])

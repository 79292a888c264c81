"""Faults planted into how an operator's two forms, the elected and the sharded one, keep from working at once."""

from __future__ import annotations

from typing import Final

from tests.mutants.fault import Fault

#: Tests that look for a fault, by what they are about.
FORMS: Final = ("tests/unit/shardsdk/operator/test_changeover.py",)
LEASES: Final = ("tests/unit/shardsdk/process/test_changeover.py",)

CHANGEOVER_FAULTS: Final[dict[str, Fault]] = {
    "BEGIN_WITHOUT_A_LOOK_UNDER_THE_LEASE": Fault(
        "a shard looks for a leader once more when it has its lease",
        "shardsdk.process.manager",
        "if await self.other_form.is_gone(world, lease.namespace, api):",
        "if True:",
        FORMS,
    ),
    "BEGIN_WHEN_STOPPED": Fault(
        "a leader that is stopped while it waits for shards begins nothing",
        "shardsdk.process.manager",
        "if self.stopping.is_set():\n                    return  # the other form may be at work",
        "if False:\n                    return",
        FORMS,
    ),
    "WAIT_FOR_ONES_OWN_LEADER": Fault(
        "shards of which one leads besides do not wait for that",
        "shardsdk.operator.operator",
        "if (manager.ring is None) is not (manager.election is None):",
        "if True:",
        FORMS,
    ),
    "TAKE_THE_ROLE_AWAY": Fault(
        "the role of the sharded form lets the elected form's candidates list leases still",
        "shardsdk.operator.permissions",
        "further_verbs=SHARDS)",
        "further_verbs=() if ring else SHARDS)",
        ("tests/unit/shardsdk/operator/test_operator.py",),
    ),
    "BELIEVE_A_REFUSAL_AFTER_A_LOOK": Fault(
        "whoever has seen leases waits until it sees them again, whatever it is refused",
        "shardsdk.process.changeover",
        "if refused and not self._looked:",
        "if refused:",
        FORMS,
    ),
    "A_SERVER_STARTS_ONCE": Fault(
        "what is refused after an outage is asked again for as long as at first",
        "shardsdk.lease.ring",
        "            self._began, self._ready = math.inf, False\n            return False",
        "            return False",
        ("tests/unit/shardsdk/lease/test_ring.py",),
    ),
    "GIVE_BACK_A_RENEWED_LEASE": Fault(
        "the lease of a leader is given back only as it was seen to run out",
        "shardsdk.process.changeover",
        "changes = render_release(claim, lease, world.clock.now())",
        'changes = {**render_release(claim, lease, world.clock.now()), "metadata": {}}',
        LEASES,
    ),
    "FORGET_A_DELETED_LEASE": Fault(
        "a lease that was deleted is waited for until it would have run out",
        "shardsdk.process.changeover",
        "for name, others in self._seen.items() if now < others.until)",
        "for name, others in self._seen.items() if now < others.until and name in {x.metadata.name for x in leases})",
        LEASES,
    ),
    "WAIT_FOR_THE_SHARDER": Fault(
        "a shard whose lease the sharder has taken is not at work",
        "shardsdk.process.changeover",
        "return Relation.OURS  # nobody's of an operator: its shard has lost it",
        "return Relation.OTHER",
        LEASES,
    ),
    "WAIT_FOR_A_RESTART": Fault(
        "a shard that has left its lease to its next process is not at work",
        "shardsdk.process.changeover",
        "if not lease.holder or released(lease) else",
        "if not lease.holder else",
        LEASES,
    ),
    "JUDGE_BY_THE_LABEL": Fault(
        "whose the election's lease is tells its holder, whatever label was left on it",
        "shardsdk.process.changeover",
        "if lease.ring is not None and lease.held_by_shard else",
        "if lease.ring is not None else",
        LEASES,
    ),
    "WAIT_FOR_ONESELF": Fault(
        "a leader does not take its own lease for a shard's",
        "shardsdk.process.changeover",
        " if each.metadata.name != ring or each.held_by_shard]",
        "]",
        LEASES,
    ),
}

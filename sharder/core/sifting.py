"""Which objects of a pass over all of them have to be looked at: the decision, for many at once.

Asked of each object that a pass streams by, of which nearly all stay where they are.
Objects that are alike get the same answer, so `decide` is asked once for all of them.
No owner is looked up: a controlled object is judged by the ring's answer, as if it had
none, and who takes it from the backlog looks.
"""

from __future__ import annotations

from sharder.core.decisions import Decision, Facts, NoShard, Target, decide, is_misplaced
from sharder.core.membership import Membership
from sharder.core.ringspec import Role


class Sieve:
    """Sifts the objects of one resource, while the membership stays what it is.

    `removed`: the ring lists the resource no longer.  `kept_back`: what belongs to the ring stays where it is for now.
    """

    def __init__(self, role: Role, membership: Membership, *, removed: bool, kept_back: bool = False) -> None:
        self._role = role
        self._membership = membership
        self._removed = removed
        self._kept_back = kept_back
        self._known: dict[tuple[str | None, bool, bool, str | None], bool] = {}

    def keeps(self, key: str | None, label: str | None, *, draining: bool, in_scope: bool) -> bool:
        """Whether something is to be done about an object on the shard `label`; `key` is its ring key.

        What is on a shard that is not available is none of a pass's matter as long as it
        belongs to the ring: an informer shows it.
        """
        if key is None and not self._removed:
            return False
        target = self._membership.target(key) if key is not None else None
        alike = (label, draining, in_scope, target)
        known = self._known.get(alike)
        if known is None:
            known = self._known[alike] = self._judge(*alike)
        return known

    def is_apart(self, key: str | None, label: str | None, owner_label: str | None) -> bool:
        """Whether a controlled object that may be a main one to the shard `label` is not where its owner is.

        `key` None: it has no owner in the ring, and should have no shard.  `owner_label` None: its owner is where
        the ring wants it.
        """
        if key is None:
            return label is not None
        return label != (owner_label or self._membership.target(key))

    def _judge(self, label: str | None, draining: bool, in_scope: bool, target: str | None) -> bool:
        desired = NoShard() if target is None else Target(target)
        facts = Facts(self._role, label, draining, in_scope and not self._removed, desired, self._membership)
        outcome = decide(facts)
        if outcome.decision in (Decision.ASSIGN, Decision.RELEASE):
            return True
        return is_misplaced(facts, outcome) and not (facts.in_scope and self._kept_back)

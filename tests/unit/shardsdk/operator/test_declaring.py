"""What comes when an operator has been handed to a manager already is refused: nothing would come of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shardsdk import ConfigurationError, Context, Operator, Trigger
from shardsdk.operator.reconciler import Reconciler
from shardsdk.testing import Rig, drive
from tests.unit.shardsdk.operator.websites import Secret, Website


async def asked(given: Any) -> None:
    """Nothing to do."""


def names(given: Any) -> list[str]:
    return []


Late = Callable[[Operator, Reconciler[Website]], object]
LATE: dict[str, Late] = {
    "reconcile": lambda operator, _: operator.reconcile(Secret)(asked),
    "validate": lambda operator, _: operator.validate(Website)(asked),
    "mutate": lambda operator, _: operator.mutate(Website)(asked),
    "task": lambda operator, _: operator.task()(asked),
    "a task": lambda operator, _: operator.on_every_replica(asked),
    "index": lambda operator, _: operator.index(Secret, "by")(names),
    "finalize": lambda _, website: website.finalize(asked),
    "watches": lambda _, website: website.watches(Secret)(names),
    "watches(Secret)": lambda _, website: website.watches(Secret, to=names),
    "timer": lambda _, website: website.timer(every=5)(asked),
    "resync": lambda _, website: website.resync(every=5),
    "source": lambda _, website: website.source(Trigger()),
    "index('by')": lambda _, website: website.index("by", names),
}


@pytest.mark.parametrize("what", LATE)
def test_what_comes_too_late_is_refused(what: str) -> None:
    operator = Operator("websites")
    website = operator.reconcile(Website)(asked)
    operator.controllers(), operator.permissions()  # who only looks does not begin
    operator.manager()
    with pytest.raises(ConfigurationError, match=r"^operator 'websites' .*nothing would come of .*: declare it before"):
        LATE[what](operator, website)


def test_what_is_declared_between_two_drives_takes_part_in_the_second() -> None:
    operator = Operator("websites")
    website, called = operator.reconcile(Website)(asked), list[str]()
    drive(operator, [])

    @operator.reconcile(Secret)
    async def function(ctx: Context[Secret]) -> None:
        called.append(ctx.name)

    async def story(rig: Rig) -> None:
        with pytest.raises(ConfigurationError, match="nothing would come of"):
            website.finalize(asked)

    drive(operator, [Secret("a")], story)
    assert called == ["a"]
    website.finalize(asked)


def test_one_that_has_begun_has_so_after_a_drive() -> None:
    operator = Operator("websites")
    operator.reconcile(Website)(asked)
    operator.manager()
    drive(operator, [])
    with pytest.raises(ConfigurationError, match="nothing would come of"):
        operator.reconcile(Secret)(asked)

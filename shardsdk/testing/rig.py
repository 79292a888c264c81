"""Drive a controller with objects, on an API server in memory, until nothing is left to do.

    def test_every_secret_gets_its_config_map() -> None:
        rig = drive(CONTROLLER, [(SECRETS, {"metadata": {"name": "a"}})])
        assert rig.get(CONFIGMAPS, "a-seen")["data"] == {"by": "me"}
        assert rig.writes == [("create", "configmaps", "a-seen")]

What runs is the whole shard as in production (lease, caches, queue, guard,
drains, expectations, Events), only the API server and the time are others.  A
longer story is a function that is told the rig:

    async def story(rig: Rig) -> None:
        rig.drain(SECRETS, "a")
        await rig.settle()
        assert not rig.labels(SECRETS, "a")

    drive(CONTROLLER, [(SECRETS, {"metadata": {"name": "a"}})], story)

A manager can be driven instead, with what it caches (`Manager.cache`), and an
operator, with objects of its kinds:

    rig = drive(operator, [Website("home", WebsiteSpec("<h1>hi</h1>"))])
    assert rig.get(ConfigMap, "home").data == {"index.html": "<h1>hi</h1>"}

Guarantees (tests/unit/shardsdk/testing/test_rig.py): async reconciles run in virtual time, so
that hours pass at once and each run takes the same steps; what a reconcile
or a mapping raises comes out of `drive`.  Plain functions run in threads and real time.

Refuses what an API server in memory refuses: schemas, defaulting, permissions,
garbage collection.  `shardsdk.testing.ControlPlane` is for those.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from shardsdk.admission.webhook import Webhook
from shardsdk.errors import ConfigurationError
from shardsdk.kinds import Kind
from shardsdk.kube.clock import Clock, SystemClock
from shardsdk.kube.identity import describe_given
from shardsdk.operator.operator import Operator
from shardsdk.process.manager import Manager
from shardsdk.protocol.objects import Resource
from shardsdk.queueing.functions import is_async
from shardsdk.reconcile.spec import ControllerSpec, Scope
from shardsdk.testing.rights import RightsCheck
from shardsdk.testing.shardrig import NAMESPACE, RING, SHARD, Rig
from shardsdk.testing.virtual import Deadlock, Livelock, run_virtual

__all__ = ["NAMESPACE", "RING", "SHARD", "Given", "Rig", "Story", "drive"]

#: An object to begin with: its resource and its body, or one of a kind.
Given = tuple[Resource, Mapping[str, Any]] | Kind
Story = Callable[[Rig], Awaitable[object]]


def drive(
    controller: ControllerSpec[Any] | Sequence[ControllerSpec[Any]] | Manager | Operator,
    objects: Iterable[Given] = (),
    story: Story | None = None,
    *,
    raises: bool = True,
    rights: bool = True,
    served: Iterable[Resource | type[Kind]] | None = None,
    seed: int = 1,
) -> Rig:
    """Run a shard with these controllers until nothing is left to do, then `story`, then stop it; returns what is left.

    Of a manager, or an operator, its controllers run, sharded or not as it would run them, on its watched namespaces
    and on what its `cache` was told; its tasks do not.  An operator's webhooks are asked about every write.
    Objects go to the namespace `default` unless they say otherwise; those of
    main resources are the shard's unless they carry a shard label.
    `served`: the custom resources that the cluster has besides those that are reconciled, owned or watched here, that
    there is an object of, or a CustomResourceDefinition; whatever is sent of any other raises NotServed.  `None`: any.

    It has an event loop of its own, so that it is called from a plain test.

    Raises: what a reconcile raised first, but Conflict and Permanent, or a mapping of watched objects, unless `raises`
    is False, and ConfigurationError for a predicate, mapping or index that changes what it is asked about, and in
    an event loop, and for objects that are none, or a `story` that is no coroutine function; whatever
    `story` raises; Livelock, which names the last reconcile, if time ceases to pass; RightsLack for
    what `shardsdk manifests` grants no such operator, unless `rights` is False.
    """
    if isinstance(controller, Operator):
        check = RightsCheck(controller, NAMESPACE, RING) if rights else None
        with controller.declaring.ended_meanwhile():
            return _drive(controller.manager, objects, story, raises, seed, served, controller.webhooks(), check)
    return _drive(lambda: controller, objects, story, raises, seed, served)


def _drive(
    make: Callable[[], ControllerSpec[Any] | Sequence[ControllerSpec[Any]] | Manager],
    objects: Iterable[Given], story: Story | None, raises: bool, seed: int,
    served: Iterable[Resource | type[Kind]] | None,
    webhooks: Sequence[Webhook] = (), check: RightsCheck | None = None,
) -> Rig:  # fmt: skip
    """`make` is called for each process, so that of one that has crashed nothing is left."""
    if asyncio._get_running_loop() is not None:
        raise ConfigurationError(
            "an event loop runs here already, and drive has one of its own: call it in a plain test (`def`), what is to"
            " be awaited in its story; or by `await asyncio.to_thread(drive, …)`"
        )
    begin = [_checked(each) for each in objects]
    given = make()
    manager = given if isinstance(given, Manager) else None
    specs = _specs_of(given)

    rigs = list[Rig]()

    async def run(clock: Clock) -> Rig:
        rig = Rig(specs, clock, Random(seed), manager, webhooks, lambda: _specs_of(make()), served)
        rigs.append(rig)
        rig.api.on_request = check.note if check else None
        for each in begin:
            rig.create(*((each,) if isinstance(each, Kind) else each))
        async with rig.running():
            await rig.settle()
            if story is not None:
                told: object = story(rig)
                if not isinstance(told, Awaitable):
                    raise ConfigurationError("the story has returned nothing to await: write it as `async def`")
                await told
                await rig.settle()
        if raises and rig.failures:
            raise rig.failures[0]
        if check:
            check.check()
        return rig

    if all(is_async(spec.function) for spec in specs):
        try:
            return run_virtual(run)
        except (Deadlock, Livelock) as error:
            raise type(error)(f"{rigs[0]._noted.last}: {error}") from None
    return asyncio.run(run(SystemClock()))


def _checked(given: Any) -> Given:
    match given:
        case Kind() | (Resource(), Mapping()):
            return given
        case _:
            raise ConfigurationError(
                f"objects are such of a kind, ConfigMap(…), or a resource with a body, (SECRETS, {{…}}), and not"
                f" {describe_given(given)}"
            )


def _specs_of(given: ControllerSpec[Any] | Sequence[ControllerSpec[Any]] | Manager) -> list[ControllerSpec[Any]]:
    """What is to run; a manager's controllers say where."""
    if isinstance(given, ControllerSpec):
        return [given]
    if not isinstance(given, Manager):
        return list(given)
    scope = Scope.SHARDED if given.ring is not None else Scope.LEADER if given.election else Scope.EVERYWHERE
    return [spec if spec.scope else replace(spec, scope=scope) for spec in given.controllers]

"""A process with unsharded controllers, for tests of the manager's scopes.

    python -m tests.integration.scoped_manager elected --address … --name …

The leader notes itself on every Secret (annotation); with `mixed` the process is a shard as
well, which makes a ConfigMap for each of its own.  A Secret called `block` blocks
the leader's event loop for good; one that is pushed over HTTP (POST /push/NAME)
is noted again.  With --checks its own health check `disk` and ready check `backlog`
fail while there is a file of that name in the folder, and say what is in it.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import web

from shardsdk import (
    Api,
    Context,
    Election,
    LeaseTimings,
    Manager,
    PartialObject,
    Request,
    Resource,
    Scope,
    Trigger,
    controller_for,
)
from shardsdk.kube.reflector import EventKind
from shardsdk.process.health import Check
from shardsdk.queueing.predicates import of_kind
from shardsdk.reconcile.spec import Task

SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")
#: Tests wait for the end of a lease; before, its holder keeps it on a busy machine.
TIMINGS = LeaseTimings(6, 4, 0.4)
ELECTION = "leaders"
NOTED = "test/noted-by"
TIMES = "test/times"
DISK = "disk"
BACKLOG = "backlog"
Ctx = Context[PartialObject]


def noting(name: str) -> Callable[[Ctx], Awaitable[None]]:
    """A reconcile that writes who did it."""

    async def note(context: Ctx) -> None:
        if context.request.name == "block":
            threading.Event().wait()
        annotations = context.metadata.annotations or {}
        times = str(int(annotations.get(TIMES, "0")) + 1)
        patch = {"metadata": {"annotations": {NOTED: name, TIMES: times}}}
        await context.api.patch(SECRETS, context.request.name, context.request.namespace, patch)

    return note


async def make(context: Ctx) -> None:
    """What the shard does for its own."""
    name = f"{context.request.name}-made"
    if context.child(CONFIGMAPS, name) is None:
        metadata = {"name": name, "ownerReferences": [context.controller_reference()]}
        await context.api.create(CONFIGMAPS, {"metadata": metadata}, context.request.namespace)


def serve_pushes(trigger: Trigger, namespace: str, port: int) -> Task:
    """A task of the user's: an HTTP server that pushes."""

    async def push(request: web.Request) -> web.Response:
        taken = trigger.push(Request(namespace, request.match_info["name"]))
        return web.Response(status=202 if taken else 503)

    async def serve(api: Api) -> None:
        app = web.Application()
        app.router.add_post("/push/{name}", push)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", port).start()
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()

    return serve


def complain(file: Path) -> Check:
    """A check of the user's."""
    return lambda: file.read_text() if file.exists() else None


def main() -> None:
    """Be a replica."""
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=["elected", "mixed"])
    for option in ("ring", "name", "namespace", "kubeconfig", "address"):
        parser.add_argument(f"--{option}", required=True)
    parser.add_argument("--push-port", type=int, default=0)
    parser.add_argument("--checks", type=Path)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    manager = Manager(
        options.ring if options.mode == "mixed" else None,
        election=Election(ELECTION, options.namespace, options.name, TIMINGS),
        shard=options.name if options.mode == "mixed" else None,
        namespace=options.namespace,
        watch_namespace=options.namespace,
        kubeconfig=options.kubeconfig,
        timings=TIMINGS,
        health_address=options.address,
        metrics_address=options.address,
    )
    trigger = Trigger()
    elected = controller_for(SECRETS, when=of_kind(EventKind.ADDED, EventKind.GENERIC))
    manager.add(elected.source(trigger).on_leader().options(name="note").reconcile(noting(options.name)))
    if options.mode == "mixed":
        manager.add(controller_for(SECRETS).owns(CONFIGMAPS).reconcile(make))
    if options.push_port:
        task = serve_pushes(trigger, options.namespace, options.push_port)
        manager.run_task(task, scope=Scope.EVERYWHERE)
    if options.checks:
        manager.add_health_check(DISK, complain(options.checks / DISK))
        manager.add_ready_check(BACKLOG, complain(options.checks / BACKLOG))
    manager.run()


if __name__ == "__main__":
    main()

"""What the shard under test does, in whatever version: it makes children of Secrets, and writes down all that it does.

A Secret's `data.value` is to stand in each of its ConfigMaps; one is written after the other, with a pause in
between, so that whatever happens to the process happens in the midst of some reconcile.

Imports only what the version before this one has as well.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import logging
from pathlib import Path

from msgspec import Struct

from shardsdk import Context, ObjectMeta, Resource
from tests.chaos.recorder import Recorder

SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")
#: Objects that are worked on at a time.
CONCURRENCY = 8


class Data(Struct, frozen=True):
    """A Secret or a ConfigMap."""

    metadata: ObjectMeta
    data: dict[str, str] | None = None


class Maker:
    """The reconcile."""

    def __init__(self, recorder: Recorder, children: int, busy_seconds: float) -> None:
        self._recorder = recorder
        self._children = children
        self._busy_seconds = busy_seconds

    async def reconcile(self, context: Context[Data]) -> None:
        """Make every child of one Secret what it should be."""
        key = self._recorder.begin(context.metadata.uid, context.metadata.resource_version)
        try:
            if not context.metadata.deletion_timestamp:
                for number in range(self._children):
                    await self._make(context, key, f"{context.request.name}-{number}")
        finally:
            self._recorder.end(key)

    async def _make(self, context: Context[Data], key: str, name: str) -> None:
        value = base64.b64decode((context.object.data or {}).get("value", "")).decode()
        found = context.child(CONFIGMAPS, name)
        if found is not None and (found.data or {}).get("value") == value:
            return
        await asyncio.sleep(self._busy_seconds)
        write = self._recorder.sent(key)
        data = {"value": value, "write": write}
        try:
            version = await self._write(context, name, data, new=found is None)
        except BaseException as error:
            self._recorder.refused(write, error)
            raise
        self._recorder.written(write, version)

    async def _write(self, context: Context[Data], name: str, data: dict[str, str], *, new: bool) -> str:
        """Make a child what it should be; returns its resourceVersion."""
        namespace = context.request.namespace
        if new:
            metadata = {"name": name, "ownerReferences": [context.controller_reference()]}
            made = await context.api.create(CONFIGMAPS, {"metadata": metadata, "data": data}, namespace)
        else:
            made = await context.api.patch(CONFIGMAPS, name, namespace, {"data": data})
        return made.metadata.resource_version


def options_of(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The command line; logging is set up when this returns."""
    for option in ("ring", "name", "namespace", "process", "kubeconfig"):
        parser.add_argument(f"--{option}", required=True)
    parser.add_argument("--records", type=Path, required=True)
    parser.add_argument("--lease-seconds", type=int, default=15)
    parser.add_argument("--children", type=int, default=2)
    parser.add_argument("--busy-seconds", type=float, default=0.2)
    parser.add_argument("--restart-grace", type=int, default=0)
    parser.add_argument("--unfenced", action="store_true")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    return options


def maker_of(options: argparse.Namespace, kind: type[Maker] = Maker) -> Maker:
    """The reconcile, which notes what it does where the options say."""
    recorder = Recorder(options.records / f"{options.process}.jsonl", options.process, options.name)
    return kind(recorder, options.children, options.busy_seconds)

"""An API server that knows Secrets: create-once, conditional patches, and failures on demand."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from shardsdk.errors import AlreadyExists, Conflict, NotFound, ShardingError
from shardsdk.kube.api import Api
from shardsdk.protocol.objects import Resource


class FakeSecrets:
    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.writes: list[str] = []
        self.failures: list[ShardingError] = []
        self._version = 0

    @property
    def api(self) -> Api:
        return cast(Api, self)

    def data(self, namespace: str, name: str) -> dict[str, bytes]:
        return {key: base64.b64decode(value) for key, value in self.objects[namespace, name]["data"].items()}

    def overwrite(self, namespace: str, name: str, data: Mapping[str, bytes]) -> None:
        """As a person with kubectl would."""
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        self._store(namespace, name, {"data": encoded})

    async def get(self, resource: Resource, name: str, namespace: str, *, model: type[Any]) -> Any:
        await self._answer()
        if (namespace, name) not in self.objects:
            raise NotFound(f"{name} not found", status=404)
        return msgspec.convert(self.objects[namespace, name], model)

    async def create(self, resource: Resource, body: Mapping[str, Any], namespace: str) -> None:
        await self._answer()
        name = body["metadata"]["name"]
        if (namespace, name) in self.objects:
            raise AlreadyExists(f"{name} exists", status=409)
        self._store(namespace, name, body)
        self.writes.append("create")

    async def patch(self, resource: Resource, name: str, namespace: str, body: Mapping[str, Any]) -> None:
        await self._answer()
        current = self.objects[namespace, name]
        if body["metadata"]["resourceVersion"] != current["metadata"]["resourceVersion"]:
            raise Conflict(f"{name} has changed", status=409)
        self._store(namespace, name, {"data": {**(current.get("data") or {}), **body["data"]}})
        self.writes.append("patch")

    def _store(self, namespace: str, name: str, body: Mapping[str, Any]) -> None:
        self._version += 1
        metadata = {"name": name, "namespace": namespace, "resourceVersion": str(self._version)}
        self.objects[namespace, name] = {"metadata": metadata, "data": body.get("data")}

    async def _answer(self) -> None:
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)

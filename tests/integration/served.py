"""Custom resources on the shared control plane while the tests of a module run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from localcluster import AdminClient, AdminError, ControlPlane
from shardsdk.kinds import openapi_path

_TYPES: Final = "apiextensions.k8s.io/v1/customresourcedefinitions"


@asynccontextmanager
async def served(plane: ControlPlane, *crds: Mapping[str, Any]) -> AsyncIterator[None]:
    """The API server serves what these definitions say; afterwards it has forgotten them."""
    await plane.apply(stdin="\n---\n".join(map(json.dumps, crds)))
    yield
    async with plane.admin() as admin:
        await forget(admin, *(crd["metadata"]["name"] for crd in crds))


async def forget(admin: AdminClient, *definitions: str) -> None:
    """Delete definitions, and wait until they are gone: who applied one again before would lose it a moment later."""
    for each in definitions:
        await admin.delete(_TYPES, each)
    await admin.eventually(_TYPES, lambda found: not {each["metadata"]["name"] for each in found} & set(definitions))


async def described(admin: AdminClient, group: str, version: str, kind: str) -> Any:
    """The OpenAPI document of a group's version, as soon as it has the kind: it is written later than that is served.

    Raises: TimeoutError.
    """
    async with asyncio.timeout(120):
        while True:
            try:
                document = await admin.request("GET", openapi_path(group, version))
            except AdminError as error:
                if error.status != 404:
                    raise
                document = {}
            schemas = document.get("components", {}).get("schemas", {})
            if any(name.rpartition(".")[2] == kind for name in schemas):
                return document
            await asyncio.sleep(0.1)

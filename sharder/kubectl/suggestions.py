"""Names in the cluster that a word on the command line can be.

Refuses: to read more than the first page of anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sharder.kubectl.catalog import read_catalog
from sharder.kubectl.reading import read_ring
from shardsdk.kube.api import Api
from shardsdk.protocol.objects import CLUSTERRINGS, NAMESPACES, Resource

#: Names read at most.
PAGE: Final = 500


async def suggest_values(api: Api, dest: str, given: Mapping[str, str], namespace: str) -> list[str]:
    """Values for the argument `dest`, given what was typed before it; `namespace`: that of the context."""
    match dest:
        case "ring":
            return await _names(api, CLUSTERRINGS)
        case "namespace":
            return await _names(api, NAMESPACES)
        case "resource":
            return await _ringed(api)
        case "name" if "resource" in given:
            return await _objects(api, given["resource"], given.get("namespace") or namespace)
        case _:
            return []


async def _ringed(api: Api) -> list[str]:
    """The resources that rings list."""
    named: dict[str, None] = {}
    async for page in api.pages(CLUSTERRINGS, limit=PAGE, model=dict):
        for raw in page:
            spec = read_ring(raw).spec
            named.update(dict.fromkeys(map(str, spec.named if spec is not None else ())))
        break
    return list(named)


async def _objects(api: Api, text: str, namespace: str) -> list[str]:
    called = (await read_catalog(api)).named(text)
    if not called:
        return []
    resource = called[0].resource
    return await _names(api, resource, namespace if resource.namespaced else None)


async def _names(api: Api, resource: Resource, namespace: str | None = None) -> list[str]:
    async for page in api.pages(resource, namespace, limit=PAGE):
        return [each.metadata.name for each in page]
    return []

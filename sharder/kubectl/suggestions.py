"""Names in the cluster that a word on the command line can be.

Refuses: to read more than the first page of anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

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
        case _:
            return []


async def _names(api: Api, resource: Resource, namespace: str | None = None) -> list[str]:
    async for page in api.pages(resource, namespace, limit=PAGE):
        return [each.metadata.name for each in page]
    return []

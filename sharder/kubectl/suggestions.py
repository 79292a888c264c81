"""Names in the cluster that a word on the command line can be; of anything the first page at most."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any, Final

from sharder.core.problems import NOT_YAML_EITHER
from sharder.kubectl.catalog import read_catalog
from sharder.kubectl.cluster import read_ring
from shardsdk.errors import ConfigurationError
from shardsdk.kube.access import load_access
from shardsdk.kube.api import Api
from shardsdk.kube.client import Client
from shardsdk.protocol.objects import CLUSTERRINGS, NAMESPACES, Resource

#: Names read at most.
PAGE: Final = 500


async def ask_cluster(dest: str, given: Mapping[str, Any], seconds: float) -> list[str]:
    """Values for the argument `dest`, given what was typed before it.

    Raises: TimeoutError after `seconds`; ApiError, ConnectionFailed, ConfigurationError.
    """
    if dest == "context":
        return _contexts(given.get("kubeconfig") or os.environ.get("KUBECONFIG"))
    async with asyncio.timeout(seconds):
        access = await load_access(given.get("kubeconfig"), given.get("context"))
        async with Client(access) as api:
            return await _values(api, dest, given, access.namespace)


async def _values(api: Api, dest: str, given: Mapping[str, Any], namespace: str) -> list[str]:
    """`namespace`: that of the context."""
    match dest:
        case "ring":
            return await _names(api, CLUSTERRINGS)
        case "namespace":
            return await _names(api, NAMESPACES)
        case "resource":
            return await _ringed(api)
        case "name" if given.get("resource"):
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


def _contexts(paths: str | None) -> list[str]:
    """The names of a kubeconfig's contexts."""
    import yaml

    names: dict[str, None] = {}
    for path in (paths or os.path.expanduser("~/.kube/config")).split(os.pathsep):
        try:
            with open(path, encoding="utf-8") as file:
                listed = (yaml.safe_load(file) or {}).get("contexts") or []
            names.update(dict.fromkeys(str(each["name"]) for each in listed))
        except (OSError, ConfigurationError, yaml.YAMLError, *NOT_YAML_EITHER):  # none, or no kubeconfig
            continue
    return list(names)

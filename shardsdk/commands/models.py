"""`shardsdk models`: typed classes for somebody else's kinds, from the OpenAPI of the cluster that has them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from shardsdk.errors import ConfigurationError, NotFound
from shardsdk.kinds.generation import generate, openapi_path
from shardsdk.kube.access import answering, load_access
from shardsdk.kube.api import Api
from shardsdk.kube.client import Client


def print_models(served: str, kinds: Sequence[str], kubeconfig: str | None, context: str | None) -> str:
    """A module with the classes of `kinds` (none: of all) of `served`, `GROUP/VERSION`.

    Raises: ConfigurationError for what the cluster does not have, ApiError, ConnectionFailed.
    """
    group, slash, version = served.rpartition("/")
    if not version or (slash and not group) or "/" in group:
        raise ConfigurationError(f"{served!r} is not GROUP/VERSION, as in cert-manager.io/v1, or v1 for the core group")
    return asyncio.run(_generate(group, version, kinds, kubeconfig, context))


async def _generate(group: str, version: str, kinds: Sequence[str], kubeconfig: str | None, context: str | None) -> str:
    access = await load_access(kubeconfig, context)
    with answering(access):
        async with Client(access) as api:
            return generate([await _document(api, group, version, access.host)], group, version, kinds)


async def _document(api: Api, group: str, version: str, host: str) -> dict[str, Any]:
    """Raises: ConfigurationError when it is not served, with what is."""
    try:
        return msgspec.json.decode(await api.raw("GET", openapi_path(group, version)), type=dict[str, Any])
    except NotFound as error:
        served = msgspec.json.decode(await api.raw("GET", "/openapi/v3"), type=dict[str, Any]).get("paths", {})
        names = sorted(path.removeprefix("apis/").removeprefix("api/") for path in served if path.startswith("api"))
        near = [name for name in names if name.startswith(f"{group}/")] if group else []
        there = (
            f"of {group} there is {', '.join(near)}" if near else f"there are {', '.join(n for n in names if '/' in n)}"
        )
        raise ConfigurationError(f"{host} has no {group}/{version}; {there}, and v1") from error

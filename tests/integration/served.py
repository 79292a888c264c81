"""Custom resources on the shared control plane while the tests of a module run."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from localcluster import ControlPlane


@asynccontextmanager
async def served(plane: ControlPlane, *crds: Mapping[str, Any]) -> AsyncIterator[None]:
    """The API server serves what these definitions say."""
    await plane.kubectl("apply", "-f-", stdin="\n---\n".join(map(json.dumps, crds)))
    names = [f"crd/{crd['metadata']['name']}" for crd in crds]
    await plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", *names)
    yield
    await plane.kubectl("delete", *names)

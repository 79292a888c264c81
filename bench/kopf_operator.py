"""The controller of `bench.frameworks` as a kopf operator, as users of kopf write it: one process, no ring.

    python -m bench.kopf_operator --name NAME --namespace NAMESPACE --kubeconfig FILE

What kopf may do without is off, so that it is measured at its best: Events, and watching namespaces and definitions.
Its handler writes by the SDK's client, for kopf brings none.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import hashlib
from typing import Any

import kopf

from bench.load import CONFIGMAPS
from shardsdk.errors import AlreadyExists
from shardsdk.kube.access import load_access
from shardsdk.kube.client import Client


def register(api: Client) -> None:
    """Say what is to be done."""

    @kopf.on.startup()
    async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.scanning.disabled = True
        settings.posting.enabled = False

    @kopf.on.login()
    def login(**arguments: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_kubeconfig(**arguments)

    @kopf.on.resume("secrets")
    @kopf.on.create("secrets")
    @kopf.on.update("secrets", field="data")
    async def handle(body: kopf.Body, name: str, namespace: str | None, **_: Any) -> None:
        digest = hashlib.sha256()
        for key, value in sorted((body.get("data") or {}).items()):
            digest.update(key.encode() + b"\0" + base64.b64decode(value) + b"\0")
        data = {"sha256": digest.hexdigest()}
        child: dict[str, Any] = {"metadata": {"name": f"{name}-checksum"}, "data": data}
        kopf.adopt(child)
        try:
            await api.create(CONFIGMAPS, child, namespace)
        except AlreadyExists:
            await api.patch(CONFIGMAPS, f"{name}-checksum", namespace, {"data": data})


async def main(options: argparse.Namespace) -> None:
    """Be the operator until told to stop."""
    async with Client(await load_access(options.kubeconfig)) as api:
        register(api)
        await kopf.operator(namespaces=[options.namespace], standalone=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name")
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--kubeconfig", required=True)
    asyncio.run(main(parser.parse_args()))

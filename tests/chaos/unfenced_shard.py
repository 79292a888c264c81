"""The shard under test with faults planted, as a control: the checker has to find what comes of them.

Children that are there it writes with a client of its own, past the lease's fence; about every second write it does not
write down; and its process lives on for a moment when the time has come to end it at once.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import ssl
import time
from functools import cache
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from shardsdk import Context
from shardsdk.kube.useragent import agent_of_shard
from shardsdk.version import SDK_AGENT
from tests.chaos.maker import Data, Maker
from tests.chaos.recorder import Recorder
from tests.chaos.recording_shard import main

#: For so long a process lives on that must end.
LATE_SECONDS: Final = 2.0


class UnfencedMaker(Maker):
    """The reconcile."""

    async def _write(self, context: Context[Data], name: str, data: dict[str, str], *, new: bool) -> str:
        if new:
            return await super()._write(context, name, data, new=new)
        connection, headers = _connection()
        path = f"/api/v1/namespaces/{context.request.namespace}/configmaps/{name}"
        connection.request("PATCH", path, json.dumps({"data": data}), headers)
        answer = json.loads(connection.getresponse().read())
        return str(answer["metadata"]["resourceVersion"])


@cache
def _connection() -> tuple[HTTPSConnection, dict[str, str]]:
    """To the API server that the kubeconfig names, and what goes with each request."""
    parser = argparse.ArgumentParser()
    for option in ("--ring", "--name"):
        parser.add_argument(option, required=True)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    options = parser.parse_known_args()[0]
    config = json.loads(options.kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    server = urlsplit(cluster["server"])
    connection = HTTPSConnection(
        str(server.hostname), server.port, context=ssl.create_default_context(cadata=authority), timeout=5.0
    )
    return connection, {
        "Authorization": f"Bearer {user['token']}",
        "Content-Type": "application/merge-patch+json",
        "User-Agent": agent_of_shard(SDK_AGENT, options.ring, options.name),
    }


def plant() -> None:
    """Have this process live on, and forget."""
    right = os._exit

    def late(code: int) -> None:
        time.sleep(LATE_SECONDS)
        right(code)

    def forgetful(self: Recorder, what: str, **facts: Any) -> None:
        if int(facts.get("write", "/0").rpartition("/")[2]) % 2 == 0:
            note(self, what, **facts)

    os._exit = late  # type: ignore[assignment]
    note, Recorder._note = Recorder._note, forgetful  # type: ignore[method-assign]


if __name__ == "__main__":
    plant()
    main(UnfencedMaker)

"""An image may leave the kubernetes package out: a pod, and a kubeconfig that says who one is, do without it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

#: It, and what it alone brings to an installation without extras.
BROUGHT = (
    "kubernetes", "aiohttp_retry", "certifi", "charset_normalizer", "dateutil", "durationpy", "oauthlib", "pydantic",
    "pydantic_core", "requests", "requests_oauthlib", "six", "urllib3", "websocket",
)  # fmt: skip
PROGRAM = """
import asyncio, sys
sys.modules.update(dict.fromkeys({blocked!r}))
import shardsdk, shardsdk.cli, shardsdk.types, shardsdk.kinds
for name in shardsdk.__all__: getattr(shardsdk, name)
from shardsdk.commands import run, manifests
from shardsdk.errors import ConfigurationError
from shardsdk.kube.access import load_access
from shardsdk.testing import drive
from shardsdk import Operator
from shardsdk.kinds import ConfigMap, Secret

operator = Operator("copies")

@operator.reconcile(Secret, owns=[ConfigMap])
async def copy(ctx):
    await ctx.apply(ConfigMap(data={{"made": "yes"}}))

print(drive(operator, [Secret("home")]).get(ConfigMap, "home").data["made"])
try:
    print(asyncio.run(load_access({path!r})).host)
except ConfigurationError as error:
    print(error)
"""


def run(path: Path, user: dict[str, Any]) -> list[str]:
    entry = {"cluster": {"server": "https://127.0.0.1:6443", "insecure-skip-tls-verify": True}, "name": "a"}
    kubeconfig = {
        "clusters": [entry],
        "users": [{"name": "a", "user": user}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "current-context": "a",
    }
    path.write_text(json.dumps(kubeconfig))
    program = PROGRAM.format(blocked=BROUGHT, path=str(path))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_sdk_works_and_reaches_a_cluster(tmp_path: Path) -> None:
    assert run(tmp_path / "config", {"token": "secret"}) == ["yes", "https://127.0.0.1:6443"]


@pytest.mark.parametrize(
    "user",
    [
        {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "true"}},
        {"auth-provider": {"name": "oidc", "config": {}}},
    ],
)
def test_what_it_is_needed_for_says_so(tmp_path: Path, user: dict[str, Any]) -> None:
    made, said = run(tmp_path / "config", user)
    assert made == "yes"
    assert "takes the kubernetes package" in said
    assert "pip install kubernetes, or use a kubeconfig with a token or a client certificate" in said

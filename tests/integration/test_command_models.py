"""`shardsdk models` writes classes from a real API server's OpenAPI that are right as they are."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
import pytest_asyncio

from localcluster import AdminClient, ControlPlane
from localcluster.installation import ROOT
from tests.integration.prompt import Prompt
from tests.integration.served import described


@pytest_asyncio.fixture
async def prompt(tmp_path: Path, installed: ControlPlane, admin: AdminClient) -> Prompt:
    await described(admin, "sharding.timebertt.dev", "v1alpha1", "ClusterRing")
    return Prompt(tmp_path, installed.admin_kubeconfig)


@pytest.mark.parametrize(
    ("served", "kinds", "program"),
    [
        ("networking.k8s.io/v1", ["Ingress"], "Ingress('home').spec"),
        ("sharding.timebertt.dev/v1alpha1", [], "ClusterRing('home').spec"),
        ("v1", ["ConfigMap"], "ConfigMap('home', data={'a': 'b'}).data"),
    ],
    ids=["built in", "a definition's", "core"],
)
async def test_what_it_prints_is_a_module_of_kinds(served: str, kinds: list[str], program: str, prompt: Prompt) -> None:
    code, text, err = await prompt.run("models", served, *kinds)
    assert (code, err) == (0, "")
    (prompt.folder / "kinds_of_others.py").write_text(text)
    command = f"from kinds_of_others import *; from shardsdk.kinds import resource_of; print({program})"
    await python(prompt, "-c", command)
    # What mypy knows of the SDK and of others' packages it need not find out anew each time.
    cache = ROOT / ".mypy_cache" / "models"
    await python(prompt, "-m", "mypy", "--strict", "--cache-dir", str(cache), "kinds_of_others.py")


async def python(prompt: Prompt, *arguments: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, cwd=prompt.folder, env=prompt.environment | {"MYPYPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("networking.k8s.io/v1", "Ingres"), "the API server has no kind Ingres in networking.k8s.io/v1; there are: "),
        (("networking.k8s.io/v9",), "has no networking.k8s.io/v9; of networking.k8s.io there is networking.k8s.io/v1"),
        (("example.org/v1",), "has no example.org/v1; there are admissionregistration.k8s.io/v1, "),
        (("apis/apps/v1",), "'apis/apps/v1' is not GROUP/VERSION, as in cert-manager.io/v1"),
    ],
)
async def test_what_is_not_there_is_said_with_what_is(arguments: tuple[str, ...], says: str, prompt: Prompt) -> None:
    code, text, err = await prompt.run("models", *arguments)
    assert (code, text) == (2, "")
    assert says in err
    assert err.startswith("shardsdk: ")

"""Classes from the OpenAPI of a custom resource that a real API server serves."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec

from localcluster import AdminClient, AdminError, ControlPlane
from shardsdk import Condition, CustomResource, Model
from shardsdk.kinds import Doc, Range, body_of, crd_of, generate, openapi_path, resource_of

GROUP = "foreign.example.com"


class Listener(Model):
    """Where it listens."""

    port: Annotated[int, Range(1, 65535)]
    host_ip: str | None = msgspec.field(default=None, name="hostIP")


class GateSpec(Model):
    """What is wanted."""

    listeners: Annotated[list[Listener], Doc("Where it listens.")]
    target: int | str = 80
    labels: dict[str, str] = {}


class GateStatus(Model):
    ready: int = 0
    conditions: list[Condition] = []


class Gate(CustomResource[GateSpec, GateStatus], group=GROUP, version="v1"):
    """A way in."""


async def served(admin: AdminClient) -> Any:
    """The document, as soon as the API server has it."""
    for _ in range(600):
        try:
            document = await admin.request("GET", openapi_path(GROUP, "v1"))
        except AdminError as error:
            if error.status != 404:
                raise
        else:
            if document.get("components", {}).get("schemas"):
                return document
        await asyncio.sleep(0.1)
    raise AssertionError("the API server does not describe the new group")


def load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("gates", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["gates"] = module
    spec.loader.exec_module(module)
    return module


def reformatted(path: Path) -> str:
    """What ruff makes of the file."""
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length", "120", str(path)]
    subprocess.run(command, capture_output=True, check=True)
    return path.read_text()


async def test_somebody_elses_custom_resource_is_written_as_classes(
    control_plane: ControlPlane, admin: AdminClient, namespace: str, tmp_path: Path
) -> None:
    await control_plane.kubectl("apply", "-f-", stdin=json.dumps(crd_of(Gate)))
    text = generate([await served(admin)], GROUP, "v1", ["Gate"])
    path = tmp_path / "gates.py"
    path.write_text(text)
    gates = load(path)
    assert resource_of(gates.Gate) == resource_of(Gate)

    listener = gates.GateSpecListener(port=80, host_ip="127.0.0.1")
    gate = gates.Gate("front", spec=gates.GateSpec(listeners=[listener], target="http"))
    assert body_of(gate) == body_of(Gate("front", GateSpec([Listener(80, "127.0.0.1")], "http")))
    made = await admin.create(f"{GROUP}/v1/gates", body_of(gate), namespace)
    assert msgspec.convert(made, gates.Gate).spec == gate.spec
    assert "Where it listens." in text

    assert await asyncio.to_thread(reformatted, path) == text
    await control_plane.kubectl("delete", "crd", f"gates.{GROUP}")

"""Classes from the OpenAPI of a custom resource that a real API server serves."""

from __future__ import annotations

import asyncio
import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec

from localcluster import AdminClient, ControlPlane
from shardsdk import Condition, CustomResource, Model
from shardsdk.kinds import Doc, Range, body_of, crd_of, generate, resource_of
from tests.integration.served import described, served

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
    async with served(control_plane, crd_of(Gate)):
        text = generate([await described(admin, GROUP, "v1", "Gate")], GROUP, "v1", ["Gate"])
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

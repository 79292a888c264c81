"""The built-in kinds of shardsdk.kinds, written from the OpenAPI of a control plane of our own: `make kinds`.

A kind has a module of its own, so that a program pays for those that it uses.
What several have in common stands in two more: what pods are made of, and the rest.
"""

from __future__ import annotations

import asyncio
import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from localcluster import AdminClient, ControlPlane
from shardsdk.kinds.generation import openapi_path, render_module
from shardsdk.kinds.openapi import INSIDE, ClassText, Definitions

FOLDER = Path(__file__).parents[1] / "shardsdk" / "kinds" / "builtin"
PACKAGE = "shardsdk.kinds.builtin"
KINDS = {
    "v1": (
        *("ConfigMap", "Event", "LimitRange", "Namespace", "Node", "PersistentVolume", "PersistentVolumeClaim", "Pod"),
        *("ResourceQuota", "Secret", "Service", "ServiceAccount"),
    ),
    "admissionregistration.k8s.io/v1": ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"),
    "apps/v1": ("ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"),
    "autoscaling/v2": ("HorizontalPodAutoscaler",),
    "batch/v1": ("CronJob", "Job"),
    "coordination.k8s.io/v1": ("Lease",),
    "discovery.k8s.io/v1": ("EndpointSlice",),
    "networking.k8s.io/v1": ("Ingress", "IngressClass", "NetworkPolicy"),
    "policy/v1": ("PodDisruptionBudget",),
    "rbac.authorization.k8s.io/v1": ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"),
    "scheduling.k8s.io/v1": ("PriorityClass",),
    "storage.k8s.io/v1": ("StorageClass", "VolumeAttachment"),
}
#: What makes a kind one of those that are made of pods.
POD = "PodSpec"


async def fetch(admin: AdminClient) -> list[Mapping[str, Any]]:
    """The documents of all groups."""
    parts = [each.rpartition("/") for each in KINDS]
    return [await admin.request("GET", openapi_path(group, version)) for group, _, version in parts]


def render(documents: list[Mapping[str, Any]]) -> dict[str, str]:
    """The text of each module, by file name."""
    definitions = Definitions(documents)
    kinds: dict[str, ClassText] = {}
    for served, wanted in KINDS.items():
        group, _, version = served.rpartition("/")
        kinds |= {name: definitions.add_kind(group, version, name) for name in wanted}
    modules = _modules(definitions.classes, kinds)
    homes = {name: f"{PACKAGE}.{module}" for module, names in modules.items() for name in names}
    texts = {"__init__.py": _front(modules)}
    for module, names in modules.items():
        title = f"The kind {kinds[names[0]].name}" if len(names) == 1 and names[0] in kinds else _TITLES.get(module, "")
        title = title or f"The kind {next(name for name in names if name in kinds)}, and what it is made of"
        doc = f"{title}; written by `make kinds` from Kubernetes' OpenAPI."
        own = [definitions.classes[name] for name in names]
        others = {name: home for name, home in homes.items() if name not in names}
        texts[f"{module}.py"] = render_module(doc, own, INSIDE | others, definitions.classes)
    return texts


_TITLES = {"pods": "What pods are made of", "shared": "What several kinds are made of"}


def _modules(classes: Mapping[str, ClassText], kinds: Mapping[str, ClassText]) -> dict[str, list[str]]:
    """The classes of each module."""
    reached = {kind: _reachable(kind, classes) for kind in kinds}
    of_pods = {kind for kind, names in reached.items() if POD in names}
    modules: dict[str, list[str]] = {}
    for name in sorted(classes):
        users = {kind for kind, names in reached.items() if name in names}
        shared = "pods" if users <= of_pods else "shared"
        modules.setdefault(shared if len(users) > 1 else next(iter(users)).lower(), []).append(name)
    return modules


def _reachable(start: str, classes: Mapping[str, ClassText]) -> set[str]:
    found, todo = {start}, [start]
    while todo:
        for name in classes[todo.pop()].uses & set(classes) - found:
            found.add(name)
            todo.append(name)
    return found


def _front(modules: Mapping[str, list[str]]) -> str:
    """The package: its names, and where each one is."""
    names = sorted(name for each in modules.values() for name in each)
    lines = [
        '"""Kubernetes\' own kinds, and what they are made of; written by `make kinds` from Kubernetes\' OpenAPI."""',
        "",
        "from __future__ import annotations",
        "",
        "from typing import TYPE_CHECKING, Final",
        "",
        "if TYPE_CHECKING:",
        *(f"    from {PACKAGE}.{module} import *" for module in sorted(modules)),
        "",
        "__all__ = [",
        *(f"    {line}" for line in textwrap.wrap(" ".join(f'"{name}",' for name in names), 112)),
        "]",
        "",
        "#: Where each name is defined: those of a module in one text.",
        "HOMES: Final = {",
        *(line for module, names in sorted(modules.items()) for line in _home(module, names)),
        "}",
        "",
    ]
    return "\n".join(lines)


def _home(module: str, names: Sequence[str]) -> list[str]:
    texts = textwrap.wrap(" ".join(names), 105)
    if len(texts) == 1:
        return [f'    "{module}": "{texts[0]}",']
    return [f'    "{module}": (', *(f'        "{each} "' for each in texts), "    ),"]


def write(texts: Mapping[str, str]) -> None:
    """Put them into the package, and take away what is no longer there."""
    for path in FOLDER.glob("*.py"):
        if path.name not in texts:
            path.unlink()
    FOLDER.mkdir(exist_ok=True)
    for name, text in texts.items():
        (FOLDER / name).write_text(re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE))


async def main() -> None:
    """Start a control plane, and write."""
    async with ControlPlane() as plane, plane.admin() as admin:
        write(render(await fetch(admin)))


if __name__ == "__main__":
    asyncio.run(main())

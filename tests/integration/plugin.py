"""`kubectl sharding` as people run it: the real kubectl finds the plugin on its PATH."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from localcluster import AdminClient, ControlPlane
from localcluster.components import go_environment
from localcluster.installation import NO_AUTHORITIES, ROOT

#: What the wheel's entry points are called, and what they run.
SCRIPTS: Final = {
    "kubectl-sharding": "from sharder.kubectl.cli import main; sys.exit(main())",
    "kubectl_complete-sharding": "from sharder.kubectl.completion import main; sys.exit(main())",
}
SECONDS: Final = 240.0
#: Until it is asked again.  At once, it would take the cores from those whom it waits for.
AGAIN_SECONDS: Final = 0.5
_ROLES: Final = "rbac.authorization.k8s.io/v1/clusterroles"
_TYPES: Final = "apiextensions.k8s.io/v1/customresourcedefinitions"
_BINDINGS: Final = "rbac.authorization.k8s.io/v1/clusterrolebindings"


@dataclass(frozen=True, slots=True)
class Said:
    """What a command said, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """The output, as JSON."""
        return msgspec.json.decode(self.out)


@dataclass(frozen=True, slots=True)
class Plugin:
    """kubectl, with the plugin in a folder of its own."""

    folder: Path
    kubectl: tuple[str, ...]
    kubeconfig: Path

    @classmethod
    def install(cls, folder: Path, plane: ControlPlane, kubeconfig: Path | None = None) -> Plugin:
        """Write the scripts that an installation of the wheel would."""
        return cls.of(folder, plane.binaries.kubectl, kubeconfig or plane.admin_kubeconfig)

    @classmethod
    def of(cls, folder: Path, kubectl: tuple[str, ...], kubeconfig: Path) -> Plugin:
        """The same for any kubectl and cluster."""
        for name, code in SCRIPTS.items():
            script = folder / name
            script.write_text(
                f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c {shlex.quote(f"import sys; {code}")} "$@"\n'
            )
            script.chmod(0o755)
        return cls(folder, kubectl, kubeconfig)

    def as_user(self, kubeconfig: Path) -> Plugin:
        """The same under another identity."""
        return Plugin(self.folder, self.kubectl, kubeconfig)

    @property
    def environment(self) -> dict[str, str]:
        """What the commands see."""
        return {
            "PATH": f"{self.folder}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.folder),
            "KUBECONFIG": str(self.kubeconfig),
            "PYTHONPATH": str(ROOT),
            **NO_AUTHORITIES,
            **go_environment(),
        }

    async def run(self, *arguments: str, stdin: str = "") -> Said:
        """Run `kubectl ARGUMENTS`."""
        process = await asyncio.create_subprocess_exec(
            *self.kubectl, *arguments, env=self.environment, cwd=self.folder,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            async with asyncio.timeout(SECONDS):
                out, err = await process.communicate(stdin.encode())
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode is not None
        return Said(process.returncode, out.decode(), err.decode())

    async def sharding(self, *arguments: str, stdin: str = "") -> Said:
        """Run `kubectl sharding ARGUMENTS`."""
        return await self.run("sharding", *arguments, stdin=stdin)

    async def until(self, holds: Callable[[Said], Any], *arguments: str) -> Said:
        """Run `kubectl ARGUMENTS` until `holds` of what it said: it reads what others still change."""
        async with asyncio.timeout(SECONDS):
            while not holds(said := await self.run(*arguments)):
                await asyncio.sleep(AGAIN_SECONDS)
        return said

    async def offered(self, *words: str) -> list[str]:
        """What the shell is offered for the last word of `kubectl sharding WORDS`, without descriptions.

        Nothing is where the API server takes longer than anybody waits for it: one presses the key again then.
        """

        def lines_of(said: Said) -> list[str]:
            assert said.code == 0, said.err
            *lines, directive = said.out.splitlines()
            assert directive == ":4"
            return lines

        lines = lines_of(await self.until(lines_of, "__complete", "sharding", *words))
        return [line.partition("\t")[0] for line in lines]


@asynccontextmanager
async def broken_type(admin: AdminClient, namespace: str) -> AsyncIterator[str]:
    """A type with an object in `namespace` that nobody can list: its conversion webhook is away; gives its group."""
    group = f"{namespace}.broken.example.com"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions = [{"name": name, "served": True, "storage": name == "v1", "schema": schema} for name in ("v1", "v2")]
    client = {"service": {"namespace": namespace, "name": "away", "port": 443}}
    webhook = {"clientConfig": client, "conversionReviewVersions": ["v1"]}
    spec = {
        "group": group, "scope": "Namespaced", "versions": versions,
        "names": {"plural": "wrecks", "singular": "wreck", "kind": "Wreck"},
        "conversion": {"strategy": "Webhook", "webhook": webhook},
    }  # fmt: skip
    name = f"wrecks.{group}"
    await admin.create(_TYPES, {"metadata": {"name": name}, "spec": spec})
    try:
        await admin.eventually(_TYPES, lambda types: _is_served(types, name))
        wreck = {"apiVersion": f"{group}/v1", "kind": "Wreck", "metadata": {"name": "wreck"}}
        await admin.create(f"{group}/v1/wrecks", wreck, namespace)
        yield group
    finally:
        await admin.delete(_TYPES, name)


def _is_served(types: Sequence[dict[str, Any]], name: str) -> bool:
    return any(
        condition["type"] == "Established" and condition["status"] == "True"
        for each in types
        if each["metadata"]["name"] == name
        for condition in (each.get("status") or {}).get("conditions") or []
    )


async def make_account(plane: ControlPlane, admin: AdminClient, namespace: str, name: str = "viewer") -> Path:
    """A ServiceAccount without any rights; returns its kubeconfig."""
    await admin.create("v1/serviceaccounts", {"metadata": {"name": name}}, namespace)
    return await plane.service_account_kubeconfig(namespace, name)


@asynccontextmanager
async def granted(
    admin: AdminClient, namespace: str, rules: Sequence[dict[str, Any]], name: str = "viewer"
) -> AsyncIterator[None]:
    """Give the ServiceAccount cluster-wide rights, in force within the block, and take them away afterwards."""
    role = f"{name}-{namespace}"
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    role_ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    await admin.create(_ROLES, {"metadata": {"name": role}, "rules": list(rules)})
    await admin.create(_BINDINGS, {"metadata": {"name": role}, "roleRef": role_ref, "subjects": [subject]})
    rule = next(each for each in rules if "resourceNames" not in each)
    resource = f"{rule['apiGroups'][0]}/v1/{rule['resources'][0]}"
    await admin.until_allowed(rule["verbs"][0], resource, user=f"system:serviceaccount:{namespace}:{name}")
    try:
        yield
    finally:
        await admin.delete(_BINDINGS, role)
        await admin.delete(_ROLES, role)

"""Clients that speak to the API server as ServiceAccounts, and as pods do: by a token that names the pod."""

from __future__ import annotations

import base64
import contextlib
from typing import Any

import yaml

from localcluster import AdminClient, AdminError, ControlPlane

ACCOUNTS = "v1/serviceaccounts"
PODS = "v1/pods"


async def make_account(admin: AdminClient, namespace: str, name: str) -> None:
    """A ServiceAccount, unless there is one."""
    with contextlib.suppress(AdminError):
        await admin.create(ACCOUNTS, {"metadata": {"name": name}}, namespace)


async def make_pod(admin: AdminClient, namespace: str, name: str, account: str) -> dict[str, Any]:
    """A pod that stays pending: there is no node, and a name and a UID are all that a token wants."""
    spec = {"serviceAccountName": account, "containers": [{"name": "c", "image": "none"}]}
    return await admin.create(PODS, {"metadata": {"name": name}, "spec": spec}, namespace)


async def account_token(admin: AdminClient, namespace: str, account: str, pod: dict[str, Any] | None = None) -> str:
    """A token as the API server issues it; bound to `pod` when given, as kubelets ask for it."""
    spec: dict[str, Any] = {"expirationSeconds": 3600}
    if pod is not None:
        metadata = pod["metadata"]
        spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    answer = await admin.request("POST", path, body={"spec": spec})
    token: str = answer["status"]["token"]
    return token


def client_of(plane: ControlPlane, token: str) -> AdminClient:
    """A client with that token; use it as an async context manager."""
    config = yaml.safe_load(plane.admin_kubeconfig.read_text())
    [cluster] = config["clusters"]
    bundle = base64.b64decode(cluster["cluster"]["certificate-authority-data"])
    return AdminClient(cluster["cluster"]["server"], bundle, token)


async def allow(admin: AdminClient, namespace: str, *resources: str) -> None:
    """Let every ServiceAccount do anything with these core resources in `namespace`; in force on return."""
    rbac = "rbac.authorization.k8s.io"
    rules = [{"apiGroups": [""], "resources": list(resources), "verbs": ["*"]}]
    everybody = {"kind": "Group", "name": "system:serviceaccounts", "apiGroup": rbac}
    reference = {"apiGroup": rbac, "kind": "Role", "name": "anything"}
    await admin.create(f"{rbac}/v1/roles", {"metadata": {"name": "anything"}, "rules": rules}, namespace)
    body = {"metadata": {"name": "anything"}, "roleRef": reference, "subjects": [everybody]}
    await admin.create(f"{rbac}/v1/rolebindings", body, namespace)
    await admin.until_allowed("create", f"v1/{resources[0]}", namespace, groups=["system:serviceaccounts"])

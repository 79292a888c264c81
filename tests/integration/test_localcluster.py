"""The local control plane does what tests, demo and benchmarks lean on."""

from __future__ import annotations

from localcluster import AdminClient, ControlPlane


async def test_a_service_account_acts_under_its_own_name_and_rights(
    control_plane: ControlPlane, admin: AdminClient, namespace: str
) -> None:
    await admin.create("v1/serviceaccounts", {"metadata": {"name": "robot"}}, namespace)
    kubeconfig = await control_plane.service_account_kubeconfig(namespace, "robot")

    who = await control_plane.kubectl("auth", "whoami", "-o", "json", kubeconfig=kubeconfig)
    assert f"system:serviceaccount:{namespace}:robot" in who

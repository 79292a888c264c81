"""An operator's webhooks on real pods, with a certificate as cert-manager makes and renews it, while they are asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
import yaml

from localcluster import AdminError
from localcluster.installation import ROOT
from tests.cert_manager import SECRETS, CertManager, cert_manager_types
from tests.node.clusters import PATIENCE_SECONDS, Cluster, Complaints, until_right
from tests.node.clusters import PODS as POD
from tests.node.operators import (
    FILE,
    NAME,
    PODS,
    WEBSITES,
    build_operator,
    installed_operator,
    until_accepted,
    website,
)

IMAGE: Final = "websites-certified:1"
AUTHORITY: Final = f"{NAME}-webhook-authority"
CERTIFICATE: Final = f"{NAME}-webhooks"
#: The example's own webhook refuses what has nothing on it.
TRIM: Final = """

@operator.mutate(Website)
def trim(review: Review[Website]) -> None:
    review.object.spec.html = review.object.spec.html.strip()
"""
#: What a pod serves: the number of its certificate.
ASK: Final = """
import json, ssl
from cryptography import x509
pem = ssl.get_server_certificate(("127.0.0.1", 9443))
print(json.dumps(str(x509.load_pem_x509_certificate(pem.encode()).serial_number)))
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(6 * PATIENCE_SECONDS)]


@pytest_asyncio.fixture
async def installed(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Cluster]:
    """The operator as `shardsdk manifests --cert-manager` prints it; nothing has been signed yet."""
    file, image = await build_operator(cluster, tmp_path, (ROOT / FILE).read_text() + TRIM, IMAGE)
    types = tmp_path / "types.yaml"
    types.write_text(yaml.safe_dump_all(cert_manager_types()))
    await cluster.kubectl("apply", "--server-side", "--filename", str(types))
    patience = f"--timeout={PATIENCE_SECONDS:.0f}s"
    await cluster.kubectl("wait", "--for=condition=Established", patience, "--filename", str(types))
    try:
        async with installed_operator(cluster, tmp_path, file, image, "--cert-manager"):
            yield cluster
    finally:
        await cluster.kubectl("delete", "--filename", str(types))


async def test_webhooks_answer_by_the_secrets_certificate_and_by_the_renewed_one(installed: Cluster) -> None:
    cluster, admin, numbers = installed, installed.admin, count()
    manager = CertManager(admin, NAME)
    await manager.issue(AUTHORITY)
    first = await manager.issue(CERTIFICATE)
    await manager.inject()
    pods = await cluster.working_pods(NAME, PODS, 2)
    await until_accepted(lambda: admin.create(WEBSITES, website(" <h1>one</h1> "), NAME))
    await both_answer(cluster, next(numbers))
    assert await served(cluster, pods) == {str(first.serial_number)}
    secrets = {each["metadata"]["name"] for each in await admin.list(SECRETS, NAME)}
    assert not [each for each in secrets if each.endswith("-certificates")], "it has made none of its own"

    # Renewed as every 60 days: the authority keeps its key, so that no request is refused at any moment.
    await manager.issue(AUTHORITY)
    await manager.inject()
    await both_answer(cluster, next(numbers))
    second = await manager.issue(CERTIFICATE)
    await manager.inject()

    async def taken_over(number: str) -> None:
        found = await served(cluster, pods)
        if found != {number}:
            raise Complaints(f"{pods} serve {found}, not {number}")

    async def taken_over_while_answering() -> None:
        await both_answer(cluster, next(numbers))
        await taken_over(str(second.serial_number))

    await until_right(taken_over_while_answering)
    await both_answer(cluster, next(numbers))

    # Another authority: what the pods served until now is good for nobody any more.
    await manager.forget(AUTHORITY)
    await manager.issue(AUTHORITY)
    third = await manager.issue(CERTIFICATE)
    await manager.inject()
    for pod in pods:
        # A kubelet looks at a pod's Secrets when the pod changes, and once a minute.
        await admin.patch(POD, pod, {"metadata": {"annotations": {"looked-at": "now"}}}, NAME)
    await until_right(lambda: taken_over(str(third.serial_number)))
    await until_accepted(lambda: admin.patch(WEBSITES, "home", {"spec": {"html": "new"}}, NAME))
    await both_answer(cluster, next(numbers))

    assert await cluster.working_pods(NAME, PODS, 2) == pods
    assert not [each for each in await admin.list(POD, NAME, labels=PODS) if restarted(each)]


async def both_answer(cluster: Cluster, number: int) -> None:
    """One webhook changes a Website, the other refuses one; both fail closed, so that no answer is an error, too."""
    made = await cluster.admin.patch(WEBSITES, "home", {"spec": {"html": f"  <p>{number}</p> "}}, NAME)
    assert made["spec"]["html"] == f"<p>{number}</p>"
    with pytest.raises(AdminError, match="there is nothing on the page") as refused:
        await cluster.admin.patch(WEBSITES, "home", {"spec": {"html": "  "}}, NAME)
    assert refused.value.status == 422


async def served(cluster: Cluster, pods: list[str]) -> set[str]:
    """The numbers of the certificates that the pods serve."""
    return {await cluster.python(NAME, pod, ASK) for pod in pods}


def restarted(pod: dict[str, Any]) -> bool:
    return any(each["restartCount"] for each in pod["status"]["containerStatuses"])

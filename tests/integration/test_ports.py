"""Ports of other frameworks' examples on a real API server, with its schemas and defaults, by `shardsdk run`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from examples.ports import cronjob, ephemeral_volume, webpage
from localcluster import AdminClient, AdminError, ControlPlane
from localcluster.admin import path_of
from shardsdk.kinds import Kind, resource_of
from tests.integration.prompt import Prompt
from tests.integration.served import forget
from tests.walking import ROOT

CLAIMS = "v1/persistentvolumeclaims"
CLASSES = "storage.k8s.io/v1/storageclasses"
JOBS = "batch/v1/jobs"
WEBHOOKS = "admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
PORTS: dict[str, type[Kind]] = {
    "ephemeral_volume": ephemeral_volume.EphemeralVolumeClaim,
    "webpage": webpage.WebPage,
    "cronjob": cronjob.CronJob,
}


class Running:
    """A port at work, and the objects of its kind."""

    def __init__(self, port: str, admin: AdminClient, namespace: str) -> None:
        self._admin = admin
        self.namespace = namespace
        resource = resource_of(PORTS[port])
        self._kind = {"apiVersion": f"{resource.group}/{resource.version}", "kind": resource.kind}
        self.path = f"{resource.group}/{resource.version}/{resource.plural}"
        self.crd = f"{resource.plural}.{resource.group}"

    async def create(self, name: str, spec: dict[str, Any], **metadata: Any) -> None:
        await self._admin.create(self.path, self._body(name, spec, **metadata), self.namespace)

    async def until_refused(self, spec: dict[str, Any]) -> str:
        """Until nobody may create such an object any more; returns what is said then."""
        path = path_of(self.path, self.namespace)
        async with asyncio.timeout(60):
            while True:
                try:
                    await self._admin.request("POST", path, body=self._body("refused", spec), query={"dryRun": "All"})
                except AdminError as error:
                    return str(error)
                await asyncio.sleep(0.05)

    def _body(self, name: str, spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
        return {**self._kind, "metadata": {"name": name, **metadata}, "spec": spec}

    async def change(self, name: str, body: dict[str, Any]) -> None:
        await self._admin.patch(self.path, name, body, self.namespace)

    async def until(self, resource: str, condition: Any) -> Any:
        return await self._admin.eventually(resource, condition, self.namespace)

    async def until_status(self, **status: Any) -> None:
        """Until the only object has this status."""

        def has(found: list[Any]) -> bool:
            there = found[0].get("status", {})
            return {name: there.get(name) for name in status} == status

        await self.until(self.path, has)


@pytest.fixture
def run_port(tmp_path: Path, control_plane: ControlPlane, admin: AdminClient, namespace: str) -> Any:
    @asynccontextmanager
    async def run(port: str, *more: str) -> AsyncIterator[Running]:
        file = str(ROOT / "examples" / "ports" / f"{port}.py")
        running = Running(port, admin, namespace)
        options = ("--install-crds", "-n", namespace, "--watch-namespace", namespace, *more)
        try:
            async with Prompt(tmp_path, control_plane.admin_kubeconfig).running("run", file, *options) as line:
                await line("Leader is working")
                yield running
        finally:
            await forget(admin, running.crd)  # the next test may install it again

    return run


def only(found: list[Any]) -> Any:
    return found[0] if len(found) == 1 else None


async def test_a_claim_has_the_size_and_the_labels_of_its_owner(run_port: Any, admin: AdminClient) -> None:
    async with run_port("ephemeral_volume") as port:
        with pytest.raises(AdminError, match=r"spec\.size: Required"):
            await port.create("none", {})
        await port.create("my-claim", {"size": "1G"}, labels={"owner": "me"})
        made = await port.until(CLAIMS, only)
        assert made["spec"]["resources"] == {"requests": {"storage": "1G"}}
        assert made["metadata"]["ownerReferences"][0]["kind"] == "EphemeralVolumeClaim"
        await port.until_status(pvcName="my-claim")

        provisioner = {"provisioner": "example.com/none", "allowVolumeExpansion": True}
        try:
            await admin.create(CLASSES, {"metadata": {"name": "standard"}, **provisioner})
            bound = {"status": {"phase": "Bound", "capacity": {"storage": "1G"}}}
            await admin.patch(CLAIMS, "my-claim", bound, port.namespace, subresource="status")
            changed = {"metadata": {"labels": {"owner": None, "application": "some-app"}}, "spec": {"size": "2G"}}
            await port.change("my-claim", changed)
            made = await port.until(
                CLAIMS, lambda found: found[0]["spec"]["resources"]["requests"]["storage"] == "2G" and found[0]
            )
            assert made["metadata"]["labels"] == {"application": "some-app"}
        finally:
            await admin.delete(CLASSES, "standard")


async def test_a_page_is_served_and_exposed_as_long_as_that_is_wanted(run_port: Any, admin: AdminClient) -> None:
    async with run_port("webpage") as port:
        await port.create("home", {"html": "<h1>hi</h1>", "exposed": True})
        await port.until_status(htmlConfigMap="home-html", areWeGood=True)
        page = await admin.get("v1/configmaps", "home-html", port.namespace)
        assert page["data"] == {"index.html": "<h1>hi</h1>"}
        deployment = await admin.get("apps/v1/deployments", "home", port.namespace)
        assert deployment["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"] == "home-html"
        assert (await admin.get("v1/services", "home", port.namespace))["spec"]["type"] == "NodePort"
        assert await port.until("networking.k8s.io/v1/ingresses", only)

        await port.change("home", {"spec": {"exposed": False}})
        await port.until("networking.k8s.io/v1/ingresses", lambda found: not found)
        await port.change("home", {"spec": {"html": "error"}})
        await port.until_status(areWeGood=False, errorMessage="Error: simulated")


async def test_jobs_are_started_from_a_schedule(run_port: Any, admin: AdminClient) -> None:
    pod = {"containers": [{"name": "hello", "image": "busybox"}], "restartPolicy": "OnFailure"}
    template = {"metadata": {"labels": {"app": "hello"}}, "spec": {"template": {"spec": pod}}}
    async with run_port("cronjob") as port:
        with pytest.raises(AdminError, match="no more than 52 characters"):
            await port.create("n" * 53, {"schedule": "* * * * *", "jobTemplate": template})
        with pytest.raises(AdminError, match="concurrencyPolicy: Unsupported value"):
            await port.create("hello", {"schedule": "* * * * *", "jobTemplate": template, "concurrencyPolicy": "No"})
        await port.create("hello", {"schedule": "* * * * *", "jobTemplate": template, "suspend": True})
        (made,) = await admin.list(port.path, port.namespace)
        assert made["spec"]["successfulJobsHistoryLimit"] == 3, "a default of the API server's"

        # A minute has passed, as far as the schedule can tell: its last run was then.
        before = datetime.now(UTC) - timedelta(seconds=61)
        last = {"status": {"lastScheduleTime": before.isoformat(timespec="seconds")}}
        await admin.patch(port.path, "hello", last, port.namespace, subresource="status")
        await port.change("hello", {"spec": {"suspend": False}})
        job = await port.until(JOBS, lambda found: found and found[0])
        assert job["metadata"]["ownerReferences"][0]["kind"] == "CronJob"
        assert job["spec"]["template"]["spec"]["containers"][0]["image"] == "busybox"
        at = job["metadata"]["annotations"][cronjob.SCHEDULED_AT]
        assert job["metadata"]["name"] == f"hello-{int(datetime.fromisoformat(at).timestamp())}"
        name = job["metadata"]["name"]
        await port.until(
            port.path, lambda found: any(each["name"] == name for each in found[0]["status"].get("active", []))
        )
        await port.change("hello", {"spec": {"suspend": True}})


async def test_a_schedule_that_is_none_is_refused_as_long_as_the_port_runs(run_port: Any, admin: AdminClient) -> None:
    pod = {"containers": [{"name": "hello", "image": "busybox"}], "restartPolicy": "OnFailure"}
    spec = {"jobTemplate": {"spec": {"template": {"spec": pod}}}, "suspend": True}
    async with run_port("cronjob", "--webhooks", "127.0.0.1") as port:
        said = await port.until_refused({**spec, "schedule": "never"})
        assert 'admission webhook "check.cronjobs.batch.tutorial.kubebuilder.io" denied the request' in said
        assert "spec.schedule: 'never' is no schedule" in said

        await port.create("hello", {**spec, "schedule": "0 * * * *"})
        with pytest.raises(AdminError, match=r"'0 25 \* \* \*' is no schedule") as refused:
            await port.change("hello", {"spec": {"schedule": "0 25 * * *"}})
        assert refused.value.status == 422
        (kept,) = await admin.list(port.path, port.namespace)
        assert kept["spec"]["schedule"] == "0 * * * *"
    assert not [each for each in await admin.list(WEBHOOKS) if port.namespace in str(each)], "they go with the process"

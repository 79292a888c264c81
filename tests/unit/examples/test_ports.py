"""The operators that other frameworks' documentation builds, as ports: they do what the originals do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from examples.ports import cronjob, ephemeral_volume, webpage
from examples.ports.cronjob import CronJob, CronJobSpec, JobTemplate
from examples.ports.ephemeral_volume import EphemeralVolumeClaim, EphemeralVolumeClaimSpec
from examples.ports.webpage import WebPage, WebPageSpec
from shardsdk import ObjectMeta, Operator
from shardsdk.errors import Invalid
from shardsdk.kinds import (
    ConfigMap,
    Container,
    Deployment,
    Ingress,
    Job,
    JobSpec,
    PersistentVolumeClaim,
    PodSpec,
    PodTemplateSpec,
    Service,
)
from shardsdk.testing import Rig, drive

#: When a rig's objects are created.
START = datetime(2030, 1, 1, tzinfo=UTC)
HOUR = 3600


# -- kopf: EphemeralVolumeClaim ---------------------------------------------------------


def claim(**metadata: Any) -> EphemeralVolumeClaim:
    return EphemeralVolumeClaim(ObjectMeta("my-claim", **metadata), EphemeralVolumeClaimSpec("1G"))


def test_a_claim_is_made_sized_and_owned() -> None:
    rig = drive(ephemeral_volume.operator, [claim()])
    made = rig.get(PersistentVolumeClaim, "my-claim")
    assert made.spec.resources is not None
    assert made.spec.resources.requests == {"storage": "1G"}
    assert made.metadata.controller is not None
    assert made.metadata.controller.kind == "EphemeralVolumeClaim"
    assert rig.get(EphemeralVolumeClaim, "my-claim").status.pvc_name == "my-claim"


def test_size_and_labels_follow_and_other_peoples_labels_stay() -> None:
    async def story(rig: Rig) -> None:
        rig.patch(PersistentVolumeClaim, "my-claim", {"metadata": {"labels": {"theirs": "stays"}}})
        labels = {"application": "some-app", "owner": None}
        rig.patch(EphemeralVolumeClaim, "my-claim", {"metadata": {"labels": labels}, "spec": {"size": "2G"}})
        await rig.settle()

    rig = drive(ephemeral_volume.operator, [claim(labels={"owner": "me"})], story)
    made = rig.get(PersistentVolumeClaim, "my-claim")
    assert made.spec.resources is not None
    assert made.spec.resources.requests == {"storage": "2G"}
    assert made.metadata.labels == {"application": "some-app", "theirs": "stays"}


def test_a_claim_that_somebody_deletes_is_made_again() -> None:
    async def story(rig: Rig) -> None:
        rig.delete(PersistentVolumeClaim, "my-claim")
        await rig.settle()

    assert drive(ephemeral_volume.operator, [claim()], story).find(PersistentVolumeClaim, "my-claim") is not None


# -- Java Operator SDK: WebPage ---------------------------------------------------------


def page(html: str = "<h1>hi</h1>", *, exposed: bool = False) -> WebPage:
    return WebPage("home", WebPageSpec(html, exposed))


def test_a_page_has_its_three_children_and_says_so() -> None:
    rig = drive(webpage.operator, [page()])
    assert rig.get(ConfigMap, "home-html").data == {"index.html": "<h1>hi</h1>"}
    template = rig.get(Deployment, "home").spec.template
    assert template.spec is not None
    assert template.spec.volumes is not None
    assert template.spec.volumes[0].config_map is not None
    assert template.spec.volumes[0].config_map.name == "home-html"
    assert rig.get(Service, "home").spec.selector == {"app": "home"} == (template.metadata or ObjectMeta()).labels
    assert rig.find(Ingress, "home") is None
    status = rig.get(WebPage, "home").status
    assert (status.html_config_map, status.are_we_good, status.error_message) == ("home-html", True, None)


def test_a_page_is_exposed_as_long_as_that_is_wanted() -> None:
    async def story(rig: Rig) -> None:
        assert rig.get(Ingress, "home").spec.rules is not None
        rig.patch(WebPage, "home", {"spec": {"exposed": False}})
        await rig.settle()

    rig = drive(webpage.operator, [page(exposed=True)], story)
    assert rig.find(Ingress, "home") is None
    assert rig.find(Service, "home") is not None


def test_an_error_shows_in_the_status_and_leaves_what_is_served_alone() -> None:
    async def story(rig: Rig) -> None:
        rig.patch(WebPage, "home", {"spec": {"html": "error"}})
        await rig.settle()
        status = rig.get(WebPage, "home").status
        assert (status.are_we_good, status.error_message) == (False, "Error: simulated")
        assert rig.get(ConfigMap, "home-html").data == {"index.html": "<h1>hi</h1>"}
        rig.patch(WebPage, "home", {"spec": {"html": "<h1>again</h1>"}})
        await rig.settle()

    status = drive(webpage.operator, [page()], story).get(WebPage, "home").status
    assert (status.are_we_good, status.error_message) == (True, None)


# -- kubebuilder: CronJob ---------------------------------------------------------------


def cron(schedule: str = "0 * * * *", **spec: Any) -> CronJob:
    pod = PodSpec(containers=[Container(name="hello", image="busybox")], restart_policy="OnFailure")
    metadata = ObjectMeta(labels={"app": "hello"}, annotations={"by": "me"})
    template = JobTemplate(JobSpec(template=PodTemplateSpec(spec=pod)), metadata)
    return CronJob("hello", CronJobSpec(schedule, template, **spec))


def end(rig: Rig, job: str, how: str) -> None:
    """Have a Job end, as the Job controller writes it."""
    status = {"conditions": [{"type": how, "status": "True"}]}
    rig.server.patch(Job.resource, job, "default", {"status": status}, subresource="status")


def name_of(hours: float) -> str:
    """The Job of the run that was due so many hours after the start."""
    return f"hello-{int((START + timedelta(hours=hours)).timestamp())}"


def jobs(rig: Rig) -> list[str]:
    return [job.metadata.name for job in rig.objects(Job)]


async def until(rig: Rig, hours: float) -> None:
    """Let the time pass until so many hours after the start."""
    due = START + timedelta(hours=hours)
    await rig.clock.sleep((due - rig.clock.now()).total_seconds() + 1)
    await rig.settle()


def test_a_job_is_started_when_it_is_due() -> None:
    async def story(rig: Rig) -> None:
        assert jobs(rig) == []
        await until(rig, 1)

    rig = drive(cronjob.operator, [cron()], story)
    (job,) = rig.objects(Job)
    assert job.metadata.name == name_of(1)
    assert job.metadata.annotations == {"by": "me", cronjob.SCHEDULED_AT: "2030-01-01T01:00:00+00:00"}
    assert (job.metadata.labels, job.metadata.controller is not None) == ({"app": "hello"}, True)
    assert [each.image for each in (job.spec.template.spec or PodSpec(containers=[])).containers] == ["busybox"]
    status = rig.get(CronJob, "hello").status
    assert status.last_schedule_time == START + timedelta(hours=1)
    assert [(each.name, each.uid) for each in status.active] == [(job.metadata.name, job.metadata.uid)]


@pytest.mark.parametrize(("policy", "left"), [("Allow", [1, 2]), ("Forbid", [1]), ("Replace", [2])])
def test_concurrency_policies(policy: str, left: list[int]) -> None:
    async def story(rig: Rig) -> None:
        await until(rig, 2)

    rig = drive(cronjob.operator, [cron(concurrency_policy=policy)], story)
    assert jobs(rig) == [name_of(hours) for hours in left]
    assert [each.name for each in rig.get(CronJob, "hello").status.active] == jobs(rig)


def test_what_was_forbidden_runs_as_soon_as_it_may() -> None:
    async def story(rig: Rig) -> None:
        await until(rig, 2.5)
        end(rig, name_of(1), "Complete")
        await rig.settle()

    assert jobs(drive(cronjob.operator, [cron(concurrency_policy="Forbid")], story)) == [name_of(1), name_of(2)]


def test_old_jobs_go_and_the_last_run_is_remembered_without_them() -> None:
    async def story(rig: Rig) -> None:
        for hours in range(1, 7):
            await until(rig, hours)
            end(rig, name_of(hours), "Failed" if hours in (1, 2) else "Complete")
            await rig.settle()

    rig = drive(cronjob.operator, [cron(failed_jobs_history_limit=1, successful_jobs_history_limit=0)], story)
    assert jobs(rig) == [name_of(2)]
    status = rig.get(CronJob, "hello").status
    assert (status.active, status.last_schedule_time) == ([], START + timedelta(hours=6))


def test_a_suspended_schedule_starts_nothing_until_it_goes_on() -> None:
    async def story(rig: Rig) -> None:
        await until(rig, 3)
        assert jobs(rig) == []
        rig.patch(CronJob, "hello", {"spec": {"suspend": False}})
        await rig.settle()

    assert jobs(drive(cronjob.operator, [cron(suspend=True)], story)) == [name_of(3)], "the last of what was missed"


def test_what_is_too_late_is_left_out() -> None:
    async def story(rig: Rig) -> None:
        await until(rig, 3.5)
        rig.patch(CronJob, "hello", {"spec": {"suspend": False}})
        await rig.settle()
        assert jobs(rig) == []
        await until(rig, 4)

    rig = drive(cronjob.operator, [cron(suspend=True, starting_deadline_seconds=600)], story)
    assert jobs(rig) == [name_of(4)]


@pytest.mark.parametrize(
    ("schedule", "hours", "reason"),
    [("* * * *", 0, "InvalidSchedule"), ("0 25 * * *", 0, "InvalidSchedule"), ("* * * * *", 2, "TooManyMissed")],
)
def test_what_no_retry_can_mend_is_told_and_left_alone(schedule: str, hours: int, reason: str) -> None:
    async def story(rig: Rig) -> None:
        await until(rig, hours)
        rig.patch(CronJob, "hello", {"spec": {"suspend": False}})
        await rig.settle()
        count = len(rig.outcomes)
        await until(rig, hours + 5.5)
        assert len(rig.outcomes) == count
        rig.patch(CronJob, "hello", {"spec": {"schedule": "0 * * * *", "startingDeadlineSeconds": 60}})
        await until(rig, hours + 6)

    unasked = Operator("cronjobs")
    unasked.reconcile(CronJob, owns=[Job])(cronjob.cronjob.function)
    rig = drive(unasked, [cron(schedule, suspend=True)], story)
    assert [event[:2] for event in rig.events] == [("hello", reason)]
    assert jobs(rig) == [name_of(hours + 6)]


@pytest.mark.parametrize("schedule", ["* * * *", "0 25 * * *", "soon"])
def test_a_schedule_that_is_none_is_refused(schedule: str) -> None:
    async def story(rig: Rig) -> None:
        with pytest.raises(Invalid, match=r"spec\.schedule"):
            rig.patch(CronJob, "hello", {"spec": {"schedule": schedule}})

    drive(cronjob.operator, [cron()], story)

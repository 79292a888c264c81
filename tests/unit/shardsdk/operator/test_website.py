"""The example of an operator, driven as its users' tests would."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.website import Website, WebsiteSpec, operator
from shardsdk.errors import Invalid
from shardsdk.kinds import ConfigMap, Deployment, Service
from shardsdk.testing import Rig, drive


def test_a_website_has_its_page_its_pods_and_its_service() -> None:
    rig = drive(operator, [Website("home", WebsiteSpec("<h1>hi</h1>", replicas=2))])

    assert rig.get(ConfigMap, "home").data == {"index.html": "<h1>hi</h1>"}
    pods = rig.get(Deployment, "home").spec
    assert pods.replicas == 2
    assert pods.template.metadata is not None
    assert rig.get(Service, "home").spec.selector == pods.template.metadata.labels == {"website": "home"}
    assert [each.status for each in rig.get(Website, "home").status.conditions] == ["False"]


def test_its_status_follows_its_pods() -> None:
    async def story(rig: Rig) -> None:
        rig.server.patch(Deployment.resource, "home", "default", {"status": {"readyReplicas": 1}}, subresource="status")
        await rig.settle()

    status = drive(operator, [Website("home", WebsiteSpec("hi"))], story).get(Website, "home").status
    assert status.ready_replicas == 1
    assert [(each.type, each.status, each.message) for each in status.conditions] == [
        ("Ready", "True", "1 pods are ready")
    ]


def test_it_says_goodbye() -> None:
    async def story(rig: Rig) -> None:
        rig.delete(Website, "home")
        await rig.settle()

    rig = drive(operator, [Website("home", WebsiteSpec("hi"))], story)
    assert rig.find(Website, "home") is None
    assert ("home", "TakenDown", "the page is not served any more") in rig.events


@pytest.mark.parametrize("change", [{"spec": {"html": "new"}}, {"metadata": {"labels": {"a": "b"}}}])
def test_only_what_differs_is_sent(change: dict[str, object]) -> None:
    async def story(rig: Rig) -> None:
        before = len(rig.sent)
        rig.patch(Website, "home", change)
        await rig.settle()
        sent = [(each.resource.plural, each.subresource) for each in rig.sent[before:]]
        # A new spec is a new generation, which the conditions tell.
        assert sent == ([("configmaps", ""), ("websites", "status")] if "spec" in change else [])

    drive(operator, [Website("home", WebsiteSpec("hi"))], story)


def test_a_page_with_nothing_on_it_is_refused() -> None:
    async def story(rig: Rig) -> None:
        with pytest.raises(Invalid, match=r"spec\.html: .*there is nothing on the page"):
            rig.patch(Website, "home", {"spec": {"html": " "}})

    rig = drive(operator, [Website("home", WebsiteSpec("hi"))], story)
    assert rig.get(ConfigMap, "home").data == {"index.html": "hi"}


def test_the_example_takes_70_lines_at_most() -> None:
    assert Path("examples/website.py").read_text().count("\n") <= 70

"""An operator: a Website is a page, the pods that serve it, and a Service in front of them.

shardsdk run examples/website.py --dev --install-crds
"""

from __future__ import annotations

from typing import Annotated

from shardsdk import Column, Condition, Context, CustomResource, EventType, Model, ObjectMeta, Operator, Range
from shardsdk import kinds as k
from shardsdk.admission import Denied, Review
from shardsdk.kinds import ConfigMap, Deployment, Service


class WebsiteSpec(Model):
    """What is wanted."""

    html: str
    replicas: Annotated[int, Range(1, 5)] = 1


class WebsiteStatus(Model):
    """What there is."""

    ready_replicas: Annotated[int, Column("Ready")] = 0
    conditions: list[Condition] = []


class Website(CustomResource[WebsiteSpec, WebsiteStatus], group="example.com", version="v1", short_names=["web"]):
    """A page and the pods that serve it."""


operator = Operator("websites")


@operator.reconcile(Website, owns=[ConfigMap, Deployment, Service])
async def website(ctx: Context[Website]) -> WebsiteStatus:
    """Make the page, its pods and its Service what they should be."""
    page = await ctx.apply(ConfigMap(data={"index.html": ctx.object.spec.html}))
    pods = await ctx.apply(deployment(ctx.object, page))
    await ctx.apply(Service(spec=k.ServiceSpec(selector={"website": ctx.name}, ports=[k.ServicePort(port=80)])))
    ready = pods.status.ready_replicas or 0
    ctx.log.info("applied", replicas=ctx.object.spec.replicas, ready=ready)
    return WebsiteStatus(ready, conditions=[ctx.condition("Ready", ready > 0, "PodsReady", f"{ready} pods are ready")])


@website.finalize
async def gone(ctx: Context[Website]) -> None:
    """Say goodbye; what the Website owns, Kubernetes takes along."""
    ctx.event(EventType.NORMAL, "TakenDown", "the page is not served any more")


@operator.validate(Website)
async def check(review: Review[Website]) -> None:
    """Refuse a page with nothing on it."""
    if not review.object.spec.html.strip():
        raise Denied("there is nothing on the page", field="spec.html")


def deployment(site: Website, page: ConfigMap) -> Deployment:
    """As many pods as wanted, with the page in a volume."""
    labels = {"website": site.metadata.name}
    mount = k.VolumeMount(name="page", mount_path="/www")
    server = k.Container(name="httpd", image="busybox", command=["httpd", "-f", "-h", "/www"], volume_mounts=[mount])
    volume = k.Volume(name="page", config_map=k.ConfigMapVolumeSource(name=page.metadata.name))
    pod = k.PodSpec(containers=[server], volumes=[volume])
    template = k.PodTemplateSpec(metadata=ObjectMeta(labels=labels), spec=pod)
    selector = k.LabelSelector(match_labels=labels)
    return Deployment(spec=k.DeploymentSpec(replicas=site.spec.replicas, selector=selector, template=template))

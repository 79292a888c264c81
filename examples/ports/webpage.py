"""A page, the pods that serve it and, if it is wanted, an Ingress: the sample of the Java Operator SDK.

shardsdk run examples/ports/webpage.py --install-crds
"""

from __future__ import annotations

from typing import Annotated

from shardsdk import Column, Context, CustomResource, Model, ObjectMeta, Operator
from shardsdk.kinds import (
    ConfigMap,
    ConfigMapVolumeSource,
    Container,
    ContainerPort,
    Deployment,
    DeploymentSpec,
    HTTPIngressPath,
    HTTPIngressRuleValue,
    Ingress,
    IngressBackend,
    IngressRule,
    IngressServiceBackend,
    IngressSpec,
    LabelSelector,
    PodSpec,
    PodTemplateSpec,
    Service,
    ServiceBackendPort,
    ServicePort,
    ServiceSpec,
    Volume,
    VolumeMount,
)


class WebPageSpec(Model):
    """The page, and whether it can be reached from outside."""

    html: str
    exposed: bool = False


class WebPageStatus(Model):
    """Where the page is kept, and how it is."""

    html_config_map: str = ""
    are_we_good: Annotated[bool, Column("Good")] = False
    error_message: str | None = None


class WebPage(CustomResource[WebPageSpec, WebPageStatus], group="sample.javaoperatorsdk", version="v1"):
    """A page and the pods that serve it."""


operator = Operator("webpages")


@operator.reconcile(WebPage, owns=[ConfigMap, Deployment, Service, Ingress])
async def webpage(ctx: Context[WebPage]) -> WebPageStatus:
    """Have one page served, from outside as well where that is wanted."""
    if "error" in ctx.object.spec.html:
        return WebPageStatus(ctx.object.status.html_config_map, error_message="Error: simulated")
    page = await ctx.apply(ConfigMap(f"{ctx.name}-html", data={"index.html": ctx.object.spec.html}))
    await ctx.apply(deployment(ctx.name, page))
    await ctx.apply(service(ctx.name))
    if ctx.object.spec.exposed:
        await ctx.apply(ingress(ctx.name))
    elif old := ctx.child(Ingress):
        await ctx.delete(old)
    return WebPageStatus(page.metadata.name, are_we_good=True)


def deployment(name: str, page: ConfigMap) -> Deployment:
    """One pod that serves the page."""
    labels = {"app": name}
    nginx = Container(
        name="nginx",
        image="nginx:1.17.0",
        ports=[ContainerPort(container_port=80)],
        volume_mounts=[VolumeMount(name="html-volume", mount_path="/usr/share/nginx/html")],
    )
    volume = Volume(name="html-volume", config_map=ConfigMapVolumeSource(name=page.metadata.name))
    template = PodTemplateSpec(metadata=ObjectMeta(labels=labels), spec=PodSpec(containers=[nginx], volumes=[volume]))
    return Deployment(spec=DeploymentSpec(selector=LabelSelector(match_labels=labels), replicas=1, template=template))


def service(name: str) -> Service:
    """How the pods are reached."""
    ports = [ServicePort(protocol="TCP", port=80, target_port=80)]
    return Service(spec=ServiceSpec(selector={"app": name}, ports=ports, type="NodePort"))


def ingress(name: str) -> Ingress:
    """How they are reached from outside."""
    backend = IngressBackend(service=IngressServiceBackend(name=name, port=ServiceBackendPort(number=80)))
    paths = [HTTPIngressPath(path="/", path_type="Prefix", backend=backend)]
    return Ingress(
        ObjectMeta(annotations={"nginx.ingress.kubernetes.io/rewrite-target": "/$1"}),
        spec=IngressSpec(rules=[IngressRule(http=HTTPIngressRuleValue(paths=paths))]),
    )

"""Mistakes in a user's program that type checkers find: fields of specs, of statuses and of other kinds."""

from __future__ import annotations

#: Each line that ends with `# wrong` is one, and no other.
PROGRAM = """
from typing import Annotated, assert_type

from shardsdk import Context, CustomResource, Model, ObjectMeta, Operator, Resource, controller_for
from shardsdk.kinds import Kind, Range, Rule, body_of, resource_of
from shardsdk.testing import drive


class WebsiteSpec(Model, rules=[Rule("self.replicas > 0", "no page without a pod")]):
    html: str
    replicas: Annotated[int, Range(1, 5)] = 1


class WebsiteStatus(Model):
    ready_replicas: int = 0


class Website(CustomResource[WebsiteSpec, WebsiteStatus], group="example.com", version="v1", short_names=["web"]):
    pass


class Plain(CustomResource[WebsiteSpec], group="example.com", version="v1", scope="Cluster"):
    pass


class Quiet(CustomResource[WebsiteSpec, WebsiteStatus | None], group="example.com", version="v1"):
    pass


class Widget(Kind):
    resource = Resource("example.com", "v1", "widgets", "Widget")
    sizes: dict[str, int] = {}


async def reconcile(context: Context[Website]) -> None:
    assert_type(context.object, Website)
    assert_type(context.object.spec.html, str)
    assert_type(context.object.status.ready_replicas, int)
    context.object.spec.htm  # wrong
    context.object.status.ready  # wrong
    context.object.metadata.nam  # wrong
    WebsiteStatus(ready=1)  # wrong
    context.object.status.ready_replicas = "1"  # wrong


controller_for(resource_of(Website), Website).reconcile(reconcile)
controller_for(resource_of(Plain), Plain).reconcile(reconcile)  # wrong

assert_type(Website("home", WebsiteSpec("hi", replicas=3), WebsiteStatus(1)).metadata, ObjectMeta)
assert_type(Website(ObjectMeta(name="home"), spec=WebsiteSpec("hi")).spec, WebsiteSpec)
assert_type(Quiet("home", WebsiteSpec("hi")).status, WebsiteStatus | None)
Website("home", WebsiteStatus())  # wrong
Website(1, WebsiteSpec("hi"))  # wrong
WebsiteSpec()  # wrong
Quiet("home", WebsiteSpec("hi")).status.ready_replicas  # wrong
Plain("home", WebsiteSpec("hi")).status.ready_replicas  # wrong

assert_type(body_of(Widget("a", sizes={"a": 1}))["sizes"], object)  # wrong: it is Any
Widget(sizes={"a": 1}).sizes["a"]
Widget(size={})  # wrong
Widget(sizes={"a": "b"})  # wrong
body_of(Widget)  # wrong

operator = Operator("websites")


@operator.reconcile(Website, owns=[Widget])
async def website(ctx: Context[Website]) -> WebsiteStatus:
    made = await ctx.apply(Widget(sizes={"a": 1}))
    assert_type(made, Widget)
    assert_type(ctx.children(Widget), list[Widget])
    assert_type(ctx.child(Widget), Widget | None)
    assert_type(await ctx.get(Widget, "a"), Widget | None)
    made.size  # wrong
    made.sizes["a"].real
    ctx.child(Widget).sizes  # wrong
    ctx.object.spec.htm  # wrong
    await ctx.apply(3)  # wrong
    ctx.log.info("applied", replicas=ctx.object.spec.replicas)
    ctx.event("Normal", "Applied", "it is there", about=made)  # wrong: EventType.NORMAL
    return WebsiteStatus(ready=1)  # wrong


@website.finalize
async def gone(ctx: Context[Website]) -> None: ...


@website.index("html")
def html_of(site: Website) -> list[str]:
    return [site.spec.html]


@website.watches(Widget)
def sites(widget: Widget) -> list[str]:
    return [widget.metadata.name]


@website.timer(every=60)
async def measure(ctx: Context[Website]) -> WebsiteStatus:
    return WebsiteStatus(1)


async def of_widgets(ctx: Context[Widget]) -> None: ...


operator.reconcile(Website)(of_widgets)  # wrong
operator.reconcile(Resource)  # wrong
website.finalize(of_widgets)  # wrong
rig = drive(operator, [Website("home", WebsiteSpec("hi"))])
assert_type(rig.get(Widget, "home"), Widget)
rig.get(Widget, "home").size  # wrong
"""

WRONG = [number for number, line in enumerate(PROGRAM.splitlines(), 1) if "# wrong" in line]

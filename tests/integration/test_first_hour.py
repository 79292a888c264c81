"""The mistakes of docs/sdk/first-hour.md, made one by one with the real command on a real control plane.

Each row of its table is a test here: what stands in the row's second column as code is
what `shardsdk` has to say, as far as it goes (`…` stands for anything).
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from docsite.pages import read_pages
from localcluster import AdminClient, ControlPlane
from tests.integration.plugin import make_account
from tests.integration.prompt import SECONDS, Prompt
from tests.walking import ROOT

ROWS: Final = dict(
    re.findall(r"^\| (.+?) \| (.+) \|$", read_pages()["sdk/first-hour.md"].partition("| mistake |")[2], re.MULTILINE)
)
del ROWS["---"]

WEBSITE: Final = '''
import time
from shardsdk import Context, CustomResource, Model, Operator
from shardsdk.kinds import ConfigMap, Secret

class WebsiteSpec(Model):
    html: str

class Website(CustomResource[WebsiteSpec, None], group="example.com", version="v1"):
    """A page."""

operator = Operator("websites", sharded=SHARDED)

@operator.reconcile(Website, owns=[ConfigMap])
async def website(ctx: Context[Website]) -> None:
    await ctx.apply(ConfigMap(data={"index.html": ctx.object.spec.html}))
'''
WIDGET: Final = {"apiVersion": "example.com/v1", "kind": "Website", "metadata": {"name": "a"}, "spec": {"html": "x"}}


class Desk:
    """Where one beginner sits: a folder with a program, a cluster, and what was said.

    Clusters keep their definitions over a module's tests: so a mistake that needs one
    away names another.
    """

    def __init__(self, folder: Path, plane: ControlPlane, admin: AdminClient, namespace: str) -> None:
        self.prompt = Prompt(folder, plane.admin_kubeconfig)
        self.plane = plane
        self.admin = admin
        self.namespace = namespace
        self.file = folder / "websites.py"
        self.said = ""

    def write(self, *changes: tuple[str, str], sharded: bool = False) -> None:
        """The program, with what is wrong in it."""
        text = WEBSITE.replace("SHARDED", str(sharded))
        for right, wrong in changes:
            assert right in text
            text = text.replace(right, wrong)
        self.file.write_text(text)

    async def fail(self, *arguments: str, **environment: str) -> None:
        """Run it; it ends by itself, with an error that is no traceback."""
        code, _, err = await self.prompt.run("run", "websites.py", "-n", self.namespace, *arguments, **environment)
        self.said = err
        assert code == 2, err
        assert "Traceback" not in err

    async def hear(self, *wanted: str, arguments: tuple[str, ...] = (), **environment: str) -> None:
        """Run it until all of `wanted` has been said, then end it."""
        process = await self.prompt.start("run", "websites.py", "-n", self.namespace, *arguments, **environment)
        assert process.stderr is not None
        try:
            async with asyncio.timeout(SECONDS):
                while not all(each in self.said for each in wanted):
                    line = (await process.stderr.readline()).decode()
                    assert line, f"it ended without {wanted}:\n{self.said}"
                    self.said += line
        finally:
            # Whoever runs the tests in the background of a script has SIGINT ignored until a process handles it.
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(SECONDS):
                await process.communicate()

    async def install(self) -> None:
        """The definition that the program as written declares."""
        code, out, err = await self.prompt.run("crd", "websites.py")
        assert code == 0, err
        await self.plane.apply(stdin=out)

    def say_as_the_page(self, ours: str, pages: str = "example.com") -> None:
        """The mistake was made with another name than the page's."""
        assert ours in self.said
        self.said = self.said.replace(ours, pages)


Make = Callable[[Desk], Coroutine[Any, Any, None]]
MISTAKES: Final[dict[str, Make]] = {}
#: Of these, those made where the sharder's definitions are.
WITH_SHARDER: Final[set[str]] = set()


def mistake(row: str, *, with_sharder: bool = False) -> Callable[[Make], Make]:
    def keep(make: Make) -> Make:
        MISTAKES[row] = make
        if with_sharder:
            WITH_SHARDER.add(row)
        return make

    return keep


@mistake("no kubeconfig")
async def no_kubeconfig(desk: Desk) -> None:
    desk.write()
    await desk.fail(KUBECONFIG="/nonexistent")


def nowhere(desk: Desk) -> str:
    """A kubeconfig of a cluster that does not answer."""
    cluster = {"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}
    contexts = [{"name": "c", "context": {"cluster": "c", "user": ""}}]
    path = desk.prompt.folder / "nowhere.json"
    path.write_text(json.dumps({"clusters": [cluster], "contexts": contexts, "current-context": "c"}))
    return str(path)


@mistake("no cluster behind it")
async def no_cluster(desk: Desk) -> None:
    desk.write()
    await desk.fail(KUBECONFIG=nowhere(desk))


@mistake("the same with `--dev`")
async def no_cluster_yet(desk: Desk) -> None:
    desk.write()
    await desk.hear("starting again in 2 s", arguments=("--dev",), KUBECONFIG=nowhere(desk))


@mistake("no such namespace")
async def no_namespace(desk: Desk) -> None:
    desk.write()
    await desk.fail("-n", "taem")


@mistake("definition not installed")
async def no_definition(desk: Desk) -> None:
    desk.write(("example.com", "nowhere.example.com"))
    await desk.fail()
    desk.say_as_the_page("nowhere.example.com")


OLD: Final = ("example.com", "old.example.com"), ('version="v1"', 'version="v1alpha1"')


@mistake("wrong version")
async def wrong_version(desk: Desk) -> None:
    desk.write(*OLD)
    await desk.install()
    desk.write(OLD[0])
    await desk.fail()
    desk.say_as_the_page("old.example.com")


@mistake("wrong plural")
async def wrong_plural(desk: Desk) -> None:
    desk.write(*OLD)
    await desk.install()
    desk.write(OLD[0], ('version="v1"', 'version="v1alpha1", plural="websitez"'))
    await desk.fail()
    desk.say_as_the_page("old.example.com")


@mistake("rights")
async def no_rights(desk: Desk) -> None:
    desk.write()
    await desk.install()
    account = await make_account(desk.plane, desk.admin, desk.namespace, "websites")
    desk.prompt = Prompt(desk.prompt.folder, account)
    await desk.fail()
    assert f"system:serviceaccount:{desk.namespace}:websites lacks rights that websites.py needs" in desk.said
    assert "by a ClusterRole:" in desk.said
    assert f"by a Role in namespace {desk.namespace}:" in desk.said
    assert re.search(
        r"^- \{apiGroups: \[.*example\.com.*\], resources: \[.*websites.*\], verbs: ", desk.said, re.MULTILINE
    )
    assert "(all that it needs: `shardsdk manifests websites.py --image IMAGE`)" in desk.said


@mistake("a model without `metadata`")
async def no_metadata(desk: Desk) -> None:
    desk.file.write_text(
        "import msgspec\nfrom shardsdk import Context, Manager, Resource, controller_for\n"
        "class Thing(msgspec.Struct):\n    data: dict[str, str] = {}\n"
        "async def reconcile(ctx: Context[Thing]) -> None: ...\n"
        'main = controller_for(Resource("", "v1", "configmaps", "ConfigMap"), model=Thing)\n'
        'manager = Manager("things")\nmanager.add(main.reconcile(reconcile))\n'
    )
    await desk.fail()
    assert re.search(r"websites\.py[:,]? ?(line )?\d+", desk.said)


@mistake("a misspelt field")
async def misspelt_field(desk: Desk) -> None:
    desk.write(("operator = ", 'PAGE = ConfigMap(dta={"a": "b"})\noperator = '))
    await desk.fail()


@mistake("`owns=ConfigMap`, or a kind that is a string")
async def no_list(desk: Desk) -> None:
    desk.write(("owns=[ConfigMap]", "owns=ConfigMap"))
    await desk.fail()
    said = desk.said
    desk.write(("reconcile(Website,", 'reconcile("websites",'))
    await desk.fail()
    desk.said += said


@mistake("a function without the context")
async def no_context(desk: Desk) -> None:
    desk.write(("website(ctx: Context[Website])", "website()"), ("ctx.object.spec.html", '""'), ("ctx.apply", "print"))
    await desk.fail()


@asynccontextmanager
async def website(desk: Desk) -> AsyncIterator[None]:
    """The one object that there is meanwhile: programs here work in all namespaces."""
    await desk.admin.create("example.com/v1/websites", WIDGET, desk.namespace)
    try:
        yield
    finally:
        await desk.admin.delete("example.com/v1/websites", "a", desk.namespace)


@mistake("an exception in the reconcile")
async def exception(desk: Desk) -> None:
    desk.write(("    await ctx.apply", '    raise KeyError("page")\n    await ctx.apply'))
    await desk.install()
    async with website(desk), desk.prompt.running("run", "websites.py", "-n", desk.namespace) as line:
        desk.said = await line("Reconcile raised") + await line("websites.py")
        events = await desk.admin.eventually(
            "v1/events", lambda found: [each for each in found if _is_warning(each)], desk.namespace
        )
    assert (
        f"namespace={desk.namespace} object=a error=\"KeyError: 'page'\" attempts=1 next_attempt_seconds=" in desk.said
    )
    assert "line 16, in website" in desk.said, "the stack from the user's own line on"
    assert [each["involvedObject"]["name"] for each in events] == ["a"]


def _is_warning(event: dict[str, Any]) -> bool:
    return bool(event["type"] == "Warning" and event["involvedObject"]["kind"] == "Website")


@mistake("`time.sleep(25)` in an `async def`")
async def blocking(desk: Desk) -> None:
    desk.write(("    await ctx.apply", "    time.sleep(25)\n    await ctx.apply"))
    await desk.install()
    async with website(desk):
        await desk.hear("The event loop is blocked", "await what takes time")
    assert "time.sleep(25)" in desk.said or "websites.py" in desk.said


@mistake("no sharder")
async def no_sharder(desk: Desk) -> None:
    desk.write(sharded=True)
    await desk.install()
    await desk.fail()


@mistake("no ring", with_sharder=True)
async def no_ring(desk: Desk) -> None:
    desk.write(('Operator("websites"', 'Operator("ringless"'), sharded=True)
    await desk.install()
    await desk.fail()
    desk.say_as_the_page("ringless", "websites")


async def make_ring(desk: Desk) -> None:
    await desk.install()
    resource = {"group": "example.com", "resource": "websites", "controlledResources": [{"resource": "configmaps"}]}
    kind = {"apiVersion": "sharding.timebertt.dev/v1alpha1", "kind": "ClusterRing"}
    ring = {**kind, "metadata": {"name": "websites"}, "spec": {"resources": [resource]}}
    await desk.plane.apply(stdin=json.dumps(ring))


@mistake("the sharder does not run", with_sharder=True)
async def idle_sharder(desk: Desk) -> None:
    desk.write(sharded=True)
    await make_ring(desk)
    await desk.hear("No sharder looks", "none runs")


@mistake("the name of a shard that another process has", with_sharder=True)
async def namesake(desk: Desk) -> None:
    desk.write(sharded=True)
    await make_ring(desk)
    async with desk.prompt.running("run", "websites.py", "-n", desk.namespace, "--shard", "one") as line:
        await line("Shard is working")
        await desk.hear("The name of this shard is in use", arguments=("--shard", "one"))


@mistake("a port that is taken")
async def taken_port(desk: Desk) -> None:
    desk.write()
    await desk.install()
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    await desk.fail("--health", f"127.0.0.1:{port}")
    server.close()
    assert f"127.0.0.1:{port} for health" in desk.said
    desk.say_as_the_page(str(port), "PORT")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def planes(control_plane: ControlPlane) -> AsyncIterator[tuple[ControlPlane, ControlPlane]]:
    """Two for these alone, since others look at the definitions and rings: without the sharder's, and with them."""
    del control_plane  # has found or built the programs
    async with ControlPlane() as bare, ControlPlane() as prepared:
        await prepared.apply(ROOT / "crds")
        yield bare, prepared


def test_every_mistake_of_the_page_is_made_here() -> None:
    assert list(MISTAKES) == list(ROWS)
    assert len(ROWS) > 15


@pytest.mark.parametrize("row", MISTAKES)
async def test_what_the_page_says_is_said(row: str, planes: tuple[ControlPlane, ControlPlane], tmp_path: Path) -> None:
    plane = planes[row in WITH_SHARDER]
    async with plane.admin() as admin:
        made = await admin.create("v1/namespaces", {"metadata": {"generateName": "hour-"}})
        desk = Desk(tmp_path, plane, admin, made["metadata"]["name"])
        await MISTAKES[row](desk)
    heard = desk.said.replace("`", "")
    for said in re.findall(r"`([^`]+)`", ROWS[row]):
        place = 0
        for part in filter(None, (each.strip() for each in said.split("…"))):
            assert part in heard[place:], f"{part!r} is not said:\n{desk.said}"
            place = heard.index(part, place) + len(part)

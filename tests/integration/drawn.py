"""Requests drawn at random, which an API server in memory and a real one have to answer alike."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Annotated, Any

from shardsdk import CustomResource, Model
from shardsdk.errors import ApiError
from shardsdk.kinds import ListType
from shardsdk.kube.api import Api, PatchKind
from shardsdk.kube.selectors import Selector
from tests.integration.asked import CONFIGMAPS, Thing, named

NAME = "a"
MANAGERS = ("one", "one", "two", "three")


class Step(Model):
    name: str
    run: str | None = None
    env: dict[str, str] | None = None
    waits: Annotated[list[str] | None, ListType("set")] = None


class PlotSpec(Model):
    size: int | None = None
    tags: dict[str, str] | None = None
    hosts: Annotated[list[str] | None, ListType("set")] = None
    names: list[str] | None = None
    steps: Annotated[list[Step] | None, ListType("map", ("name",))] = None
    boxes: dict[str, dict[str, str]] | None = None


class PlotStatus(Model):
    ready: int | None = None
    steps: Annotated[list[Step] | None, ListType("map", ("name",))] = None


class Plot(CustomResource[PlotSpec, PlotStatus], group="drawn.example.com", version="v1"):
    """With lists that merge, and such as do not."""


PLOTS = Plot.resource


@dataclass(frozen=True)
class Request:
    """One of them; `stale`: it says of which version the object is, and that was the first one seen."""

    verb: str
    body: Any
    manager: str = ""
    force: bool = False
    stale: bool = False


def draw(seed: int) -> tuple[Any, list[Request]]:
    """A resource, and what is asked about its only object."""
    rng = Random(seed)
    resource = rng.choice([PLOTS, PLOTS, CONFIGMAPS])
    verbs = ["create", "merge", "json", *["apply"] * 4, "delete", "list"]
    verbs += ["status", "apply status"] if resource is PLOTS else []
    return resource, [_request(rng, rng.choice(verbs), resource) for _ in range(rng.choice([6, 10, 16]))]


def _request(rng: Random, verb: str, resource: Any) -> Request:
    content: Callable[[Random], Thing] = _content if resource is PLOTS else lambda some: {"data": _texts(some)}
    body: Any
    if verb in ("status", "apply status"):
        body = {"status": {"ready": rng.choice([1, 2]), **({"steps": _steps(rng)} if rng.random() < 0.7 else {})}}
    elif verb == "json":
        body = [_operation(rng, resource) for _ in range(rng.choice([1, 2]))]
    elif verb == "delete":
        body = rng.choice([{}, {"uid": "00000000-0000-0000-0000-000000000000"}])
    elif verb == "list":
        body = rng.choice(["x=1", "x", "!x", "x in (1,2)", "x notin (1)"])
    else:
        body = {"metadata": _metadata(rng), **content(rng)}
    return Request(
        verb, body, rng.choice(MANAGERS), rng.random() < 0.5, verb in ("merge", "delete") and rng.random() < 0.15
    )


def _texts(rng: Random) -> Thing:
    return {name: rng.choice("12") for name in rng.sample("xyz", rng.choice([0, 1, 1, 2]))}


def _metadata(rng: Random) -> Thing:
    # Who owns nothing is not told from one that nobody has signed.
    found: Thing = {"annotations": {"always": "1", **_texts(rng)}}
    if rng.random() < 0.4:
        found["labels"] = _texts(rng)
    if rng.random() < 0.2:
        found["finalizers"] = rng.sample(["e.com/a", "e.com/b", "e.com/c"], rng.choice([0, 1, 2]))
    return found


def _steps(rng: Random) -> list[Thing]:
    steps = [{"name": name} for name in rng.sample("abcd", rng.choice([0, 1, 2, 3]))]
    for step in steps:
        some: Thing = {"run": rng.choice("pq"), "env": _texts(rng), "waits": rng.sample("uvw", rng.choice([0, 1, 2]))}
        step.update({name: value for name, value in some.items() if rng.random() < 0.5})
    return steps


def _content(rng: Random) -> Thing:
    boxes = {name: _texts(rng) for name in rng.sample("xy", rng.choice([0, 1, 2]))}
    some: Thing = {
        "size": rng.choice([0, 1, 2]),
        "tags": _texts(rng),
        "names": rng.choice([[], ["n"], ["n", "o"]]),
        "hosts": rng.sample("efgh", rng.choice([0, 1, 2, 3])),
        "steps": _steps(rng),
        "boxes": boxes,
    }
    return {"spec": {name: value for name, value in some.items() if rng.random() < 0.45}}


def _operation(rng: Random, resource: Any) -> Thing:
    values: Thing = {"/metadata/labels/x": "j", "/metadata/finalizers/0": "e.com/j"}
    if resource is PLOTS:
        step = {"name": rng.choice("ab"), "run": "j"}
        values |= {
            "/spec/size": 7,
            "/spec/tags/x": "j",
            "/spec/steps/0/run": "j",
            "/spec/steps/0": step,
            "/spec/steps/-": step,
        }
        values |= {"/spec/hosts/-": "e", "/spec/hosts/0": "f"}
    else:
        values |= {"/data/x": "j", "/data/y": "k"}
    path = rng.choice(list(values))
    verb = rng.choice(["add", "replace", "remove"])
    return {"op": verb, "path": path} | ({} if verb == "remove" else {"value": values[path]})


class Answering:
    """One of the two servers."""

    def __init__(self, api: Api, namespace: str, resource: Any) -> None:
        self.api, self.namespace, self.resource = api, namespace, resource
        self._first: Thing | None = None

    async def answer(self, request: Request) -> Any:
        """How a request was answered, and what is there then."""
        try:
            said: Any = await self._ask(request)
        except ApiError as error:
            said = (type(error).__name__, error.status)
        there = await self.api.find(self.resource, NAME, self.namespace, model=dict)
        self._first = self._first or there
        return said, there and _shown(there)

    async def end(self) -> None:
        for _ in range(2):  # it may be held by its finalizers
            if await self.api.find(self.resource, NAME, self.namespace, model=dict) is None:
                return
            await self.api.patch(self.resource, NAME, self.namespace, {"metadata": {"finalizers": None}})
            if await self.api.find(self.resource, NAME, self.namespace, model=dict) is not None:
                await self.api.delete(self.resource, NAME, self.namespace)

    async def _ask(self, request: Request) -> Any:
        api, resource, namespace, body = self.api, self.resource, self.namespace, request.body
        about: Thing = {"field_manager": request.manager, "model": dict}
        version = self._first["metadata"]["resourceVersion"] if request.stale and self._first else None
        match request.verb:
            case "create":
                made = await api.create(resource, named(resource, **body) | _named_as(body), namespace, **about)
            case "merge":
                metadata = {**body["metadata"], **({"resourceVersion": version} if version else {})}
                made = await api.patch(resource, NAME, namespace, {**body, "metadata": metadata}, **about)
            case "json":
                made = await api.patch(resource, NAME, namespace, body, kind=PatchKind.JSON, **about)
            case "status":
                made = await api.patch(resource, NAME, namespace, body, subresource="status", **about)
            case "delete":
                await api.delete(resource, NAME, namespace, resource_version=version, **body)
                return "deleted"
            case "list":
                pages = api.pages(resource, namespace, selector=Selector(body), limit=1, model=dict)
                return [each["metadata"]["name"] async for page in pages for each in page if _is_ours(each)]
            case _:
                part = "status" if request.verb == "apply status" else ""
                about |= {"kind": PatchKind.APPLY, "force": request.force, "subresource": part}
                made = await api.patch(resource, NAME, namespace, named(resource, **body) | _named_as(body), **about)
        return made["metadata"].get("labels") or {}


def _named_as(body: Thing) -> Thing:
    return {"metadata": {**body.get("metadata", {}), "name": NAME}}


def _is_ours(thing: Thing) -> bool:
    return bool(thing["metadata"]["name"] == NAME)


def _shown(thing: Thing) -> Thing:
    """What two servers can have in common, with the owners of fields."""
    metadata = thing["metadata"]
    kept = {name: metadata.get(name) for name in ("labels", "annotations", "finalizers", "generation")}
    content = {name: value for name, value in thing.items() if name in ("spec", "status", "data") and value}
    return {**kept, "leaves": "deletionTimestamp" in metadata, "owners": sorted(_owners(metadata)), **content}


def _owners(metadata: Thing) -> Iterator[tuple[str, ...]]:
    for each in metadata.get("managedFields") or ():
        names = [each.get(part, "") for part in ("operation", "manager", "subresource", "apiVersion")]
        # Whether a field is owned beside what is in it goes by how Kubernetes' own kinds are written in Go.
        yield *names, json.dumps(_without_dots(each["fieldsV1"]), sort_keys=True)


def _without_dots(tree: Thing) -> Thing:
    return {part: _without_dots(below) for part, below in tree.items() if part != "."}

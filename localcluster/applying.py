"""What `kubectl apply --server-side` does, without its process: files, folders and text to an API server.

A kubectl costs 0.1 s of CPU time to start, and it reads the OpenAPI document of every group that it
writes to, which a new API server has to build first.  What an unknown field is, the API server says itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from localcluster.admin import AdminClient, AdminError, Object, Objects, path_of
from localcluster.errors import LocalClusterError

_CRDS: Final = "apiextensions.k8s.io/v1/customresourcedefinitions"
_APPLY: Final = "application/apply-patch+yaml"
#: As kubectl would: a later kubectl owns what is applied here, and the other way round.
_QUERY: Final = {"fieldManager": "kubectl", "force": "true", "fieldValidation": "Strict"}
_SUFFIXES: Final = (".yaml", ".yml", ".json")
#: Far more than a new type takes on a loaded machine, a fraction of a second.
_SERVED_SECONDS: Final = 30.0
#: What there is cannot be watched.
_POLL_SECONDS: Final = 0.05


def read_manifests(files: Sequence[Path], text: str | None = None) -> Iterator[Object]:
    """The objects of files, folders (their files, in order of the names) and `text`; a List is what it lists.

    Raises: LocalClusterError for what is no object, naming where it was.
    """
    for path in files:
        within = sorted(each for each in path.iterdir() if each.suffix in _SUFFIXES) if path.is_dir() else [path]
        for file in within:
            yield from _objects(str(file), file.read_text())
    if text is not None:
        yield from _objects("standard input", text)


async def apply(admin: AdminClient, objects: Iterable[Object]) -> None:
    """Apply the objects in order, and wait until the types among them are served.

    Raises: LocalClusterError, with what the API server says of the object.
    """
    types: dict[str, Mapping[str, tuple[str, bool]]] = {}
    definitions = set[str]()
    for each in objects:
        resource, namespaced = await _resource_of(admin, each, types)
        metadata = each["metadata"]
        namespace = metadata.get("namespace", "default") if namespaced else None
        path = path_of(resource, namespace, metadata["name"])
        await admin.request("PATCH", path, body=each, query=_QUERY, content_type=_APPLY)
        if resource == _CRDS:
            definitions.add(metadata["name"])
    if definitions:
        await _until_served(admin, definitions)


async def _until_served(admin: AdminClient, definitions: set[str]) -> None:
    """Wait until these types can be used: established, and known to whoever asks what there is.

    Raises: TimeoutError.
    """
    established = await admin.eventually(
        _CRDS, lambda found: _established(found, definitions), timeout_seconds=_SERVED_SECONDS
    )
    async with asyncio.timeout(_SERVED_SECONDS):
        for each in established:
            group, kind = each["spec"]["group"], each["spec"]["names"]["kind"]
            for version in (known["name"] for known in each["spec"]["versions"] if known["served"]):
                while kind not in await _served(admin, f"{group}/{version}"):
                    await asyncio.sleep(_POLL_SECONDS)


async def _served(admin: AdminClient, version: str) -> Mapping[str, tuple[str, bool]]:
    """The resources of a version by kind, and whether they are namespaced; none while nobody serves it."""
    try:
        found = await admin.request("GET", f"/{'apis' if '/' in version else 'api'}/{version}")
    except AdminError as error:
        if error.status == 404:
            return {}
        raise
    served = (each for each in found["resources"] if "/" not in each["name"])
    return {each["kind"]: (f"{version}/{each['name']}", each["namespaced"]) for each in served}


async def _resource_of(
    admin: AdminClient, thing: Object, types: dict[str, Mapping[str, tuple[str, bool]]]
) -> tuple[str, bool]:
    """The resource of an object's kind, and whether it is namespaced; `types` remembers what was asked."""
    version, kind = thing["apiVersion"], thing["kind"]
    if version not in types:
        types[version] = await _served(admin, version)
    try:
        return types[version][kind]
    except KeyError:
        raise LocalClusterError(
            f"nobody serves {kind} of {version}, of which {thing['metadata']['name']!r} is one: apply its type first,"
            " in a call of its own"
        ) from None


def _established(found: Objects, wanted: set[str]) -> Objects | None:
    """The definitions of these names, once all of them are established."""
    established = [
        each
        for each in found
        if each["metadata"]["name"] in wanted
        and any(
            (condition["type"], condition["status"]) == ("Established", "True")
            for condition in (each.get("status") or {}).get("conditions") or ()
        )
    ]
    return established if len(established) == len(wanted) else None


def _objects(source: str, text: str) -> Iterator[Object]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for number, document in enumerate(yaml.load_all(text, Loader=loader), start=1):
        if document is None:
            continue
        for each in _listed(document):
            if not (isinstance(each, dict) and {"apiVersion", "kind"} <= each.keys() and _is_named(each)):
                raise LocalClusterError(f"{source}: document {number} is no object with apiVersion, kind and a name")
            yield each


def _listed(document: Any) -> Iterable[Any]:
    is_list = isinstance(document, dict) and document.get("kind") == "List"
    return document.get("items") or () if is_list else (document,)


def _is_named(thing: Mapping[str, Any]) -> bool:
    metadata = thing.get("metadata")
    return isinstance(metadata, Mapping) and bool(metadata.get("name"))

"""Requests as data: paths, queries, headers.

Names are quoted, and an empty one is an error: `DELETE` on it would mean the whole collection.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from shardsdk.errors import ConfigurationError
from shardsdk.kube.answers import Target
from shardsdk.kube.api import Fence, Operation, RawRequest, Selection, WatchOptions
from shardsdk.kube.bodies import encode_body
from shardsdk.kube.selectors import Selector
from shardsdk.kube.sessions import REQUEST_SECONDS, Call
from shardsdk.protocol.objects import Resource

#: A page of a list may take the API server as long as it gives any request.
#: Source: kube-apiserver --request-timeout, 1m0s.
LIST_SECONDS: Final = 60.0

_JSON: Final = "application/json"
_PARTIAL: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_PARTIAL_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

_METHODS: Final = {"get": "GET", "create": "POST", "patch": "PATCH", "update": "PUT", "delete": "DELETE"}

Query = list[tuple[str, str]]


def call_of(operation: Operation[Any]) -> Call:
    """The request that carries out an operation.

    Raises: ConfigurationError for an empty name, and in the body for a number that JSON does not have, or a datetime
    without a time zone.
    """
    verb, resource, name = operation.verb, operation.resource, operation.name
    creates = verb == "create"
    if not name and not creates:
        raise ConfigurationError(f"{verb} {resource.group_resource}: the name is empty; this would mean all of them")
    plural, path = resource.plural, _path_of(resource, operation.namespace, None if creates else name)
    if operation.subresource:
        plural, path = f"{plural}/{operation.subresource}", f"{path}/{operation.subresource}"
    headers = {"Accept": _PARTIAL if operation.metadata_only else _JSON}
    if operation.body is not None:
        headers["Content-Type"] = operation.kind.value if verb == "patch" else _JSON
    query: Query = [("fieldManager", operation.field_manager)] if operation.field_manager else []
    if operation.force:
        query.append(("force", "true"))
    lacks_namespace = resource.namespaced and not operation.namespace
    target = Target(verb, resource.group, plural, operation.namespace, name or None, lacks_namespace)
    return Call(
        target,
        _METHODS[verb],
        path,
        query,
        headers,
        None if operation.body is None else encode_body(target, operation.body),
        operation.fences,
        REQUEST_SECONDS if operation.timeout_seconds is None else operation.timeout_seconds,
    )


def list_call(selection: Selection[Any], *, limit: int | None, token: str) -> Call:
    """One page of a consistent list; `token` is empty for the first."""
    query = _selected(selection.selector)
    if limit is not None:
        query.append(("limit", str(limit)))
    if token:
        query.append(("continue", token))
    accept = _PARTIAL_LIST if selection.metadata_only else _JSON
    return _read_call("list", selection, query, accept, LIST_SECONDS)


def watch_call(selection: Selection[Any], options: WatchOptions) -> Call:
    """A watch.  Raises: ConfigurationError for version 0 or none, which would begin anywhere."""
    if options.resource_version in ("", "0"):
        raise ConfigurationError("a watch begins at the resourceVersion of a list, or with initial events")
    query = [*_selected(selection.selector), ("watch", "1"), ("allowWatchBookmarks", "true")]
    if options.resource_version is None:
        query += [("sendInitialEvents", "true"), ("resourceVersionMatch", "NotOlderThan")]
    else:
        query.append(("resourceVersion", options.resource_version))
    if options.timeout_seconds is not None:
        query.append(("timeoutSeconds", str(options.timeout_seconds)))
    return _read_call("watch", selection, query, _PARTIAL if selection.metadata_only else _JSON)


def _read_call(
    verb: str, selection: Selection[Any], query: Query, accept: str, timeout_seconds: float = REQUEST_SECONDS
) -> Call:
    resource, namespace = selection.resource, selection.namespace
    target = Target(verb, resource.group, resource.plural, namespace)
    path = _path_of(resource, namespace)
    return Call(target, "GET", path, query, {"Accept": accept}, timeout_seconds=timeout_seconds)


def raw_call(request: RawRequest, fences: Sequence[Fence]) -> Call:
    """A bare request; whatever is no GET or HEAD writes, and gets a body so that it passes the fence."""
    reads = request.method in ("GET", "HEAD")
    headers = dict(request.headers or {})
    return Call(
        Target(request.method, name=request.path),
        request.method,
        request.path,
        request.query,
        {"Content-Type": _JSON, **headers} if request.body or not reads else headers,
        request.body if reads else request.body or b"{}",
        None if reads else fences,
        REQUEST_SECONDS if request.timeout_seconds is None else request.timeout_seconds,
    )


def _selected(selector: Selector) -> Query:
    """Query of a selector."""
    query: Query = []
    if selector.labels:
        query.append(("labelSelector", selector.labels))
    if selector.fields:
        query.append(("fieldSelector", selector.fields))
    if selector.shards:
        query.append(("shardSelector", selector.shards))
    return query


def _path_of(resource: Resource, namespace: str | None, name: str | None = None) -> str:
    """Raises: ConfigurationError for what is no text, as an argument in another encoding than UTF-8."""
    try:
        return resource.path(namespace, name)
    except UnicodeEncodeError as error:
        raise ConfigurationError(f"{error.object!r} cannot be a name: it is no UTF-8") from error

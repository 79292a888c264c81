"""Requests as data: paths, queries, headers.

Does: build every kind of request the client sends, with names quoted.  Refuses:
an empty name, because `DELETE` on it would mean the whole collection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import msgspec

from shardsdk.errors import ConfigurationError
from shardsdk.kube.answers import Target
from shardsdk.kube.api import Body, Fence
from shardsdk.kube.selectors import Selector
from shardsdk.kube.transport import REQUEST_SECONDS, Call
from shardsdk.protocol.objects import GroupResource, PartialObject, Resource

#: A page of a list may take the API server as long as it gives any request.
#: Source: kube-apiserver --request-timeout, 1m0s.
LIST_SECONDS: Final = 60.0

_JSON: Final = "application/json"
_PARTIAL: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_PARTIAL_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

Query = list[tuple[str, str]]


def one_call(
    verb: str,
    method: str,
    resource: Resource,
    name: str,
    namespace: str | None,
    *,
    subresource: str = "",
    query: Sequence[tuple[str, str]] = (),
    body: bytes | None = None,
    content_type: str = _JSON,
    metadata_only: bool = True,
    fences: Sequence[Fence] | None = None,
    timeout_seconds: float | None = None,
) -> Call:
    """A request about one object.  Raises: ConfigurationError for an empty name."""
    if not name:
        raise ConfigurationError(f"{verb} {resource.group_resource}: the name is empty; this would mean all of them")
    plural = f"{resource.plural}/{subresource}" if subresource else resource.plural
    path = resource.path(_quoted(namespace), _quoted(name))
    headers = {"Accept": _PARTIAL if metadata_only else _JSON}
    if body is not None:
        headers["Content-Type"] = content_type
    return Call(
        Target(verb, resource.group, plural, namespace, name),
        method,
        f"{path}/{subresource}" if subresource else path,
        query,
        headers,
        body,
        fences,
        REQUEST_SECONDS if timeout_seconds is None else timeout_seconds,
    )


def create_call(
    resource: Resource,
    body: Mapping[str, Any],
    namespace: str | None,
    *,
    metadata_only: bool,
    fences: Sequence[Fence],
    field_manager: str | None,
) -> Call:
    """A request that creates an object; its name may be left to the API server (generateName)."""
    meta = body.get("metadata") or {}
    return Call(
        Target("create", resource.group, resource.plural, namespace, meta.get("name") or meta.get("generateName")),
        "POST",
        resource.path(_quoted(namespace)),
        managed_by(field_manager),
        {"Accept": _PARTIAL if metadata_only else _JSON, "Content-Type": _JSON},
        msgspec.json.encode(body),
        fences,
    )


def list_call(
    resource: Resource,
    namespace: str | None,
    selector: Selector,
    *,
    limit: int | None,
    token: str,
    metadata_only: bool,
) -> Call:
    """One page of a consistent list; `token` is empty for the first."""
    query = selected(selector)
    if limit is not None:
        query.append(("limit", str(limit)))
    if token:
        query.append(("continue", token))
    return Call(
        Target("list", resource.group, resource.plural, namespace),
        "GET",
        resource.path(_quoted(namespace)),
        query,
        {"Accept": _PARTIAL_LIST if metadata_only else _JSON},
        timeout_seconds=LIST_SECONDS,
    )


def watch_call(
    resource: Resource,
    namespace: str | None,
    selector: Selector,
    *,
    resource_version: str | None,
    timeout_seconds: int | None,
    metadata_only: bool,
) -> Call:
    """A watch, from a version on or (`None`) from everything that exists.

    Raises: ConfigurationError for version 0 or none, which would begin anywhere.
    """
    if resource_version in ("", "0"):
        raise ConfigurationError("a watch begins at the resourceVersion of a list, or with initial events")
    query = [*selected(selector), ("watch", "1"), ("allowWatchBookmarks", "true")]
    if resource_version is None:
        query += [("sendInitialEvents", "true"), ("resourceVersionMatch", "NotOlderThan")]
    else:
        query.append(("resourceVersion", resource_version))
    if timeout_seconds is not None:
        query.append(("timeoutSeconds", str(timeout_seconds)))
    return Call(
        Target("watch", resource.group, resource.plural, namespace),
        "GET",
        resource.path(_quoted(namespace)),
        query,
        {"Accept": _PARTIAL if metadata_only else _JSON},
    )


def delete_options(resource_version: str | None, uid: str | None, propagation: str | None) -> bytes:
    """DeleteOptions with the preconditions that are given."""
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    preconditions = {"resourceVersion": resource_version, "uid": uid}
    if given := {key: value for key, value in preconditions.items() if value}:
        options["preconditions"] = given
    if propagation:
        options["propagationPolicy"] = propagation
    return msgspec.json.encode(options)


def access_review(
    verb: str, resource: GroupResource, *, namespace: str | None, name: str | None, subresource: str
) -> Call:
    """A question about our own permissions; it writes nothing, so no fence applies."""
    attributes = {
        "verb": verb,
        "group": resource.group,
        "resource": resource.resource,
        "subresource": subresource,
        "namespace": namespace or "",
        "name": name or "",
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    target = Target("create", "authorization.k8s.io", "selfsubjectaccessreviews")
    return Call(target, "POST", path, (), {"Content-Type": _JSON}, msgspec.json.encode(body))


def raw_call(
    method: str,
    path: str,
    query: Sequence[tuple[str, str]],
    body: bytes | None,
    headers: Mapping[str, str] | None,
    fences: Sequence[Fence],
    timeout_seconds: float | None,
) -> Call:
    """A bare request; whatever is no GET or HEAD writes, and gets a body so that it passes the fence."""
    reads = method in ("GET", "HEAD")
    return Call(
        Target(method, name=path),
        method,
        path,
        query,
        {"Content-Type": _JSON, **(headers or {})} if body or not reads else dict(headers or {}),
        body if reads else body or b"{}",
        None if reads else fences,
        REQUEST_SECONDS if timeout_seconds is None else timeout_seconds,
    )


def selected(selector: Selector) -> Query:
    """Query of a selector."""
    query: Query = []
    if selector.labels:
        query.append(("labelSelector", selector.labels))
    if selector.fields:
        query.append(("fieldSelector", selector.fields))
    return query


def managed_by(field_manager: str | None) -> Query:
    """Query that names the owner of the fields that a write sets."""
    return [("fieldManager", field_manager)] if field_manager else []


def wants_metadata(model: Any, metadata_only: bool | None) -> bool:
    """Whether metadata alone is asked for."""
    return model is PartialObject if metadata_only is None else metadata_only


def encode(body: Body) -> bytes:
    """JSON of a body."""
    return msgspec.json.encode(body)


def _quoted(part: str | None) -> str | None:
    return quote(part, safe=":") if part else None

"""Operations of clients, for servers in memory: each is one of the server's verbs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never, cast

from shardsdk.errors import BadRequest
from shardsdk.kube.answers import Status, Target, explain_status
from shardsdk.kube.api import ACCESS_REVIEWS, Operation, PatchKind
from shardsdk.protocol.objects import Resource
from shardsdk.testing.envelopes import check_envelope
from shardsdk.testing.strategies import Object, check_place

if TYPE_CHECKING:
    from shardsdk.testing.memory import MemoryServer


def carry_out(server: MemoryServer, operation: Operation[Any]) -> Object | None:
    """Carry out one operation; the object as it is then, `None` after a deletion.  Raises: as an API server."""
    resource, name, namespace = operation.resource, operation.name, operation.namespace
    body, signed = cast("Any", operation.body), operation.field_manager or ""
    check_served(server, operation.verb, resource, name)
    check_place(operation.verb, resource, name, namespace)
    check_envelope(operation)
    match operation.verb:
        case "get":
            return server.get(resource, name, namespace)
        case "create" if resource == ACCESS_REVIEWS:
            return {"status": {"allowed": True}}
        case "create":
            return server.create(resource, body, namespace, signed)
        case "patch" if operation.kind is PatchKind.APPLY:
            if not (body.get("metadata") or {}).get("name") and server.find(resource, name, namespace) is None:
                raise BadRequest(f"{resource.plural}: name must be provided", status=400, reason="BadRequest")
            return server.apply(
                resource, name, namespace, body, signed,
                force=operation.force, subresource=operation.subresource,
            )  # fmt: skip
        case "patch":
            return server.patch(resource, name, namespace, body, operation.kind, operation.subresource, signed)
        case "update":
            return server.update(resource, body, namespace, operation.subresource, signed)
        case "delete":
            conditions = body.get("preconditions", {})
            version, uid = conditions.get("resourceVersion"), conditions.get("uid")
            propagation = body.get("propagationPolicy")
            server.delete(resource, name, namespace, resource_version=version, uid=uid, propagation=propagation)
            return None
        case _:
            assert_never(operation.verb)


def check_served(server: MemoryServer, verb: str, resource: Resource, name: str = "") -> None:
    """Raises: NotServed for a type that the server does not know."""
    if not server.serves(resource):
        target = Target(verb, resource.group, resource.plural, None, name or None)
        raise explain_status(target, Status(404, "", "404 page not found"))

"""What an API server refuses of a request before it looks at the object that it is about, for servers in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from shardsdk.errors import BadRequest, Invalid
from shardsdk.kube.api import Operation, PatchKind
from shardsdk.testing.metadata import mistyped_in
from shardsdk.testing.strategies import is_builtin

#: Of a field manager's name.  Source: apimachinery, meta/v1/validation.
_MANAGER_CHARACTERS: Final = 128


def check_envelope(operation: Operation[Any]) -> None:
    """Whether the parts of a request go together, and its body is of the shape and the kind that it has to be.

    Raises: BadRequest, Invalid.
    """
    _check_options(operation)
    body = operation.body
    if operation.verb == "patch":
        is_list = not isinstance(body, Mapping)
        if is_list != (operation.kind is PatchKind.JSON):
            shape = "a list" if operation.kind is PatchKind.JSON else "an object"
            raise BadRequest(f"a {operation.kind.value} patch is {shape}", status=400, reason="BadRequest")
    if isinstance(body, Mapping):
        _check_types(operation, body)
    if operation.verb == "patch" and operation.kind is not PatchKind.APPLY:
        return
    if operation.verb in ("create", "update", "patch") and isinstance(body, Mapping):
        _check_kind(operation, body)


def _check_options(operation: Operation[Any]) -> None:
    """Who writes, and whether that may take other's fields."""
    applies = operation.verb == "patch" and operation.kind is PatchKind.APPLY
    manager, faults = operation.field_manager or "", []
    if applies and not manager:
        faults.append("fieldManager: Required value: is required for apply patch")
    if operation.verb == "patch" and operation.force and not applies:
        faults.append("force: Forbidden: may not be specified for non-apply patch")
    if len(manager.encode()) > _MANAGER_CHARACTERS:
        faults.append(f"fieldManager: Too long: may not be more than {_MANAGER_CHARACTERS} bytes")
    if not manager.isprintable():
        faults.append(f"fieldManager: Invalid value: {manager!r}: should only contain printable characters")
    if faults:
        message = f"{operation.verb} {operation.resource.group_resource}: {'; '.join(faults)}"
        raise Invalid(message, status=422, reason="Invalid")


def _check_types(operation: Operation[Any], body: Mapping[str, Any]) -> None:
    """An API server notices it when it reads an object, has patched one, or merges what is applied by its schema."""
    if not (mistyped := mistyped_in(body.get("metadata") or {})):
        return
    if operation.verb != "patch":
        raise BadRequest(mistyped, status=400, reason="BadRequest")
    if operation.kind is PatchKind.APPLY:
        raise BadRequest(mistyped, status=500, reason="")
    raise Invalid(mistyped, status=422, reason="Invalid")


def _check_kind(operation: Operation[Any], body: Mapping[str, Any]) -> None:
    resource, applies = operation.resource, operation.verb == "patch"
    for part, wanted in (("apiVersion", resource.api_version), ("kind", resource.kind)):
        found = body.get(part)
        if not found and (applies or not is_builtin(resource)):
            raise BadRequest(f"the body has no {part}: {wanted!r} is wanted", status=400, reason="BadRequest")
        if found and wanted and found != wanted:
            message = f"the {part} of the body is {found!r}, and not {wanted!r}"
            if part == "kind" and not applies and not is_builtin(resource):
                raise Invalid(message, status=422, reason="Invalid")
            raise BadRequest(message, status=400, reason="BadRequest")
    if applies and (body.get("metadata") or {}).get("managedFields") is not None:
        raise BadRequest("metadata.managedFields must be nil", status=400, reason="BadRequest")

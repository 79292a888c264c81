"""The kind RoleBinding; written by `make kinds` from Kubernetes' OpenAPI."""

from __future__ import annotations

from typing import ClassVar

from shardsdk.kinds.base import Kind
from shardsdk.kinds.builtin.shared import RoleRef, Subject
from shardsdk.protocol.objects import Resource


class RoleBinding(Kind, kw_only=True):
    """RoleBinding references a role, but does not contain it."""

    resource: ClassVar[Resource] = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")

    role_ref: RoleRef
    """RoleRef can reference a Role in the current namespace or a ClusterRole in the global namespace."""
    subjects: list[Subject] = []
    """Subjects holds references to the objects the role applies to."""

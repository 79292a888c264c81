"""The kind ClusterRoleBinding; written by `make kinds` from Kubernetes' OpenAPI."""

from __future__ import annotations

from typing import ClassVar

from shardsdk.kinds.base import Kind
from shardsdk.kinds.builtin.shared import RoleRef, Subject
from shardsdk.protocol.objects import Resource


class ClusterRoleBinding(Kind, kw_only=True):
    """ClusterRoleBinding references a ClusterRole, but not contain it."""

    resource: ClassVar[Resource] = Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)

    role_ref: RoleRef
    """RoleRef can only reference a ClusterRole in the global namespace."""
    subjects: list[Subject] = []
    """Subjects holds references to the objects the role applies to."""

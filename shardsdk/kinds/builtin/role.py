"""The kind Role; written by `make kinds` from Kubernetes' OpenAPI."""

from __future__ import annotations

from typing import ClassVar

from shardsdk.kinds.base import Kind
from shardsdk.kinds.builtin.shared import PolicyRule
from shardsdk.protocol.objects import Resource


class Role(Kind, kw_only=True):
    """Role is a namespaced, logical grouping of PolicyRules that can be referenced as a unit by a RoleBinding."""

    resource: ClassVar[Resource] = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")

    rules: list[PolicyRule] = []
    """Rules holds all the PolicyRules for this Role"""

"""The kind ClusterRole, and what it is made of; written by `make kinds` from Kubernetes' OpenAPI."""

from __future__ import annotations

from typing import ClassVar

from shardsdk.kinds.base import Kind, Model
from shardsdk.kinds.builtin.shared import LabelSelector, PolicyRule
from shardsdk.protocol.objects import Resource


class AggregationRule(Model, kw_only=True):
    """AggregationRule describes how to locate ClusterRoles to aggregate into the ClusterRole"""

    cluster_role_selectors: list[LabelSelector] | None = None
    """ClusterRoleSelectors holds a list of selectors which will be used to find ClusterRoles and create the rules.
    """


class ClusterRole(Kind, kw_only=True):
    """ClusterRole is a cluster level, logical grouping of PolicyRules that can be referenced as a unit by a
    RoleBinding or ClusterRoleBinding.
    """

    resource: ClassVar[Resource] = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)

    aggregation_rule: AggregationRule | None = None
    """AggregationRule is an optional field that describes how to build the Rules for this ClusterRole."""
    rules: list[PolicyRule] = []
    """Rules holds all the PolicyRules for this ClusterRole"""

"""The kind StorageClass, and what it is made of; written by `make kinds` from Kubernetes' OpenAPI."""

from __future__ import annotations

from typing import ClassVar

from shardsdk.kinds.base import Kind, Model
from shardsdk.protocol.objects import Resource


class StorageClass(Kind, kw_only=True):
    """StorageClass describes the parameters for a class of storage for which PersistentVolumes can be dynamically
    provisioned.
    """

    resource: ClassVar[Resource] = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)

    allow_volume_expansion: bool | None = None
    """allowVolumeExpansion shows whether the storage class allow volume expand."""
    allowed_topologies: list[TopologySelectorTerm] = []
    """allowedTopologies restrict the node topologies where volumes can be dynamically provisioned."""
    mount_options: list[str] = []
    """mountOptions controls the mountOptions for dynamically provisioned PersistentVolumes of this storage class. e.g.
    ["ro", "soft"].
    """
    parameters: dict[str, str] = {}
    """parameters holds the parameters for the provisioner that should create volumes of this storage class."""
    provisioner: str
    """provisioner indicates the type of the provisioner."""
    reclaim_policy: str | None = None
    """reclaimPolicy controls the reclaimPolicy for dynamically provisioned PersistentVolumes of this storage class.
    """
    volume_binding_mode: str | None = None
    """volumeBindingMode indicates how PersistentVolumeClaims should be provisioned and bound."""


class TopologySelectorLabelRequirement(Model, kw_only=True):
    """A topology selector requirement is a selector that matches given label."""

    key: str
    """The label key that the selector applies to."""
    values: list[str]
    """An array of string values."""


class TopologySelectorTerm(Model, kw_only=True):
    """A topology selector term represents the result of label queries."""

    match_label_expressions: list[TopologySelectorLabelRequirement] | None = None
    """A list of topology selector requirements by labels."""

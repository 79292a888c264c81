"""The kind VolumeAttachment, and what it is made of; written by `make kinds` from Kubernetes' OpenAPI."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

import msgspec

from shardsdk.kinds.base import Kind, Model
from shardsdk.kinds.builtin.shared import PersistentVolumeSpec
from shardsdk.protocol.objects import Resource


class VolumeAttachment(Kind, kw_only=True):
    """VolumeAttachment captures the intent to attach or detach the specified volume to/from the specified node."""

    resource: ClassVar[Resource] = Resource("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", namespaced=False)

    spec: VolumeAttachmentSpec
    """spec represents specification of the desired attach/detach volume behavior."""
    status: VolumeAttachmentStatus = msgspec.field(default_factory=lambda: VolumeAttachmentStatus())
    """status represents status of the VolumeAttachment request."""


class VolumeAttachmentSource(Model, kw_only=True):
    """VolumeAttachmentSource represents a volume that should be attached."""

    inline_volume_spec: PersistentVolumeSpec | None = None
    """inlineVolumeSpec contains all the information necessary to attach a persistent volume defined by a pod's inline
    VolumeSource.
    """
    persistent_volume_name: str | None = None
    """persistentVolumeName represents the name of the persistent volume to attach."""


class VolumeAttachmentSpec(Model, kw_only=True):
    """VolumeAttachmentSpec is the specification of a VolumeAttachment request."""

    attacher: str
    """attacher indicates the name of the volume driver that MUST handle this request."""
    node_name: str
    """nodeName represents the node that the volume should be attached to."""
    source: VolumeAttachmentSource
    """source represents the volume that should be attached."""


class VolumeAttachmentStatus(Model, kw_only=True):
    """VolumeAttachmentStatus is the status of a VolumeAttachment request."""

    attach_error: VolumeError | None = None
    """attachError represents the last error encountered during attach operation, if any."""
    attached: bool = False
    """attached indicates the volume is successfully attached."""
    attachment_metadata: dict[str, str] | None = None
    """attachmentMetadata is populated with any information returned by the attach operation, upon successful attach,
    that must be passed into subsequent WaitForAttach or Mount calls.
    """
    detach_error: VolumeError | None = None
    """detachError represents the last error encountered during detach operation, if any."""


class VolumeError(Model, kw_only=True):
    """VolumeError captures an error encountered during a volume operation."""

    error_code: int | None = None
    """errorCode is a numeric gRPC code representing the error encountered during Attach or Detach operations."""
    message: str | None = None
    """message represents the error encountered during Attach or Detach operation."""
    time: datetime | None = None
    """time represents the time the error was encountered."""

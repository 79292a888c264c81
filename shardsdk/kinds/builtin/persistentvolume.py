"""The kind PersistentVolume, and what it is made of; written by `make kinds` from Kubernetes' OpenAPI."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

import msgspec

from shardsdk.kinds.base import Kind, Model
from shardsdk.kinds.builtin.shared import PersistentVolumeSpec
from shardsdk.protocol.objects import Resource


class PersistentVolume(Kind, kw_only=True):
    """PersistentVolume (PV) is a storage resource provisioned by an administrator."""

    resource: ClassVar[Resource] = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)

    spec: PersistentVolumeSpec = msgspec.field(default_factory=lambda: PersistentVolumeSpec())
    """spec defines a specification of a persistent volume owned by the cluster."""
    status: PersistentVolumeStatus = msgspec.field(default_factory=lambda: PersistentVolumeStatus())
    """status represents the current information/status for the persistent volume."""


class PersistentVolumeStatus(Model, kw_only=True):
    """PersistentVolumeStatus is the current status of a persistent volume."""

    last_phase_transition_time: datetime | None = None
    """lastPhaseTransitionTime is the time the phase transitioned from one to another and automatically resets to
    current time everytime a volume phase transitions.
    """
    message: str | None = None
    """message is a human-readable message indicating details about why the volume is in this state."""
    phase: str | None = None
    """phase indicates if a volume is available, bound to a claim, or released by a claim."""
    reason: str | None = None
    """reason is a brief CamelCase string that describes any failure and is meant for machine parsing and tidy display
    in the CLI.
    """

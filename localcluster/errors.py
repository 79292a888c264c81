"""What can go wrong with a local control plane.

::

    LocalClusterError
    ├── BinariesMissing     no Kubernetes programs, and none could be built
    └── ComponentFailed     a component ended or never got ready; names its log
"""

from __future__ import annotations


class LocalClusterError(Exception):
    """Root of the tree; the message says what to do."""


class BinariesMissing(LocalClusterError):
    """The Kubernetes programs are not on this machine and could not be built."""


class ComponentFailed(LocalClusterError):
    """A component ended by itself or did not get ready in time."""

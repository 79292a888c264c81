"""The kind Secret; written by `make kinds` from Kubernetes' OpenAPI."""

from __future__ import annotations

from typing import ClassVar

from shardsdk.kinds.base import Kind
from shardsdk.protocol.objects import Resource


class Secret(Kind, kw_only=True, hidden=["data", "string_data"]):
    """Secret holds secret data of a certain type."""

    resource: ClassVar[Resource] = Resource("", "v1", "secrets", "Secret")

    data: dict[str, bytes] = {}
    """Data contains the secret data."""
    immutable: bool | None = None
    """Immutable, if set to true, ensures that data stored in the Secret cannot be updated (only object metadata can be
    modified).
    """
    string_data: dict[str, str] = {}
    """stringData allows specifying non-binary secret data in string form."""
    type: str | None = None
    """Used to facilitate programmatic handling of secret data."""

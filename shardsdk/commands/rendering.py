"""Manifests as YAML: the same text for the same manifests, in the order in which they were put together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import yaml


class _Plain(yaml.SafeDumper):
    """What stands twice is written twice: anchors are nothing for people."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def render(documents: Iterable[Mapping[str, Any]]) -> str:
    """The documents, one after the other."""
    return yaml.dump_all(documents, Dumper=_Plain, sort_keys=False, width=10_000, allow_unicode=True)

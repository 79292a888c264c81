"""Manifests as YAML: the same text for the same manifests, in the order in which they were put together.

Guarantees (tests/unit/shardsdk/commands/test_rendering.py): kubectl and Helm read what was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import yaml

#: Texts, names of fields among them, that parsers in Go take for something else where they have no quotes, and PyYAML
#: leaves so.  Source: sigs.k8s.io/yaml, goyaml.v2/resolve.go.
_BOOL: Final = re.compile(r"[yYnN]$")
_NUMBER: Final = re.compile(
    r"(?=.*[0-9])[-+]?(?:_*0_*[xXoObB][0-9a-fA-F_]+|[0-9_]*\.?[0-9_]*(?:[eE][-+0-9_]+)?)$", re.ASCII
)


class _Plain(yaml.SafeDumper):
    """What stands twice is written twice: anchors are nothing for people."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Plain.add_implicit_resolver("tag:yaml.org,2002:bool", _BOOL, list("yYnN"))
_Plain.add_implicit_resolver("tag:yaml.org,2002:float", _NUMBER, list("-+.0123456789"))


def render(documents: Iterable[Mapping[str, Any]], *, ascii_only: bool = False) -> str:
    """The documents, one after the other; `ascii_only`: whatever else is escaped."""
    return yaml.dump_all(documents, Dumper=_Plain, sort_keys=False, width=10_000, allow_unicode=not ascii_only)


def render_scalar(value: Any) -> str:
    """A value as it stands in YAML, on one line."""
    shown = yaml.dump(value, Dumper=_Plain, default_flow_style=True, width=10_000)
    return shown.removesuffix("...\n").strip()

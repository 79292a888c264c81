"""Rings in manifests, as people apply them to a cluster.

YAML or JSON, from a file or standard input, Lists included; what is no ClusterRing is passed over.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from sharder.core.problems import NOT_YAML_EITHER, reason_of
from sharder.core.ringspec import RingSpec, parse_ring
from shardsdk.errors import ConfigurationError

#: A manifest has a few kilobytes; more is some other file. Characters.
MAX_MANIFEST: Final = 4 * 1024 * 1024


def read_rings(filename: str) -> list[tuple[RingSpec, Mapping[str, Any]]]:
    """The rings in the file `filename` (`-`: standard input), each with its status, if the file has one.

    Raises: ConfigurationError when it cannot be read, or holds no usable ring.
    """
    import yaml

    source = "standard input" if filename == "-" else filename
    try:
        documents = list(_flatten(yaml.safe_load_all(_read_manifest(filename, source))))
    except OSError as error:
        raise ConfigurationError(f"cannot read {source}: {error.strerror}; check -f") from error
    except (yaml.YAMLError, *NOT_YAML_EITHER) as error:
        raise ConfigurationError(f"{source} is not YAML: {reason_of(error)}") from error
    rings = [document for document in documents if document.get("kind") == "ClusterRing"]
    if not rings:
        raise ConfigurationError(f"{source} holds no ClusterRing; pass the manifest that you apply to the cluster")
    return [(parse_ring(ring), status_of(ring)) for ring in rings]


def status_of(ring: Mapping[str, Any]) -> Mapping[str, Any]:
    """`status`, or an empty one."""
    status = ring.get("status")
    return status if isinstance(status, Mapping) else {}


def _read_manifest(filename: str, source: str) -> str:
    """Its text, all of it.  Raises: ConfigurationError when it is too long, OSError."""
    if filename == "-":
        text = sys.stdin.read(MAX_MANIFEST + 1)
    else:
        with Path(filename).open(encoding="utf-8") as file:
            text = file.read(MAX_MANIFEST + 1)
    if len(text) > MAX_MANIFEST:
        raise ConfigurationError(f"{source} has more than {MAX_MANIFEST} characters; pass the rings' manifests alone")
    return text


def _flatten(documents: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Objects, also those inside a List as `kubectl get -o yaml` prints it."""
    for document in documents:
        if isinstance(document, dict):
            items = document.get("items")
            yield from _flatten(items) if isinstance(items, list) else [document]

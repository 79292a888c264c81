"""`kubectl sharding rbac`: the permissions that a ring needs, as manifests to apply."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TextIO

from sharder.core.ringspec import RingSpec
from sharder.kubectl.outcomes import ExitCode
from sharder.kubectl.session import Session
from sharder.kubectl.status.command import find_rings, make_reader
from sharder.manifests import read_rings
from sharder.rbac import ring_roles
from shardsdk.errors import Forbidden


def print_roles_of_file(filename: str, account: tuple[str, str], output: str | None, out: TextIO) -> ExitCode:
    """Print the roles of the rings in a manifest; no API server is asked."""
    out.write(render_roles(read_rings(filename), account, output))
    return ExitCode.IN_ORDER


async def print_roles_of_ring(session: Session, name: str, account: tuple[str, str]) -> ExitCode:
    """Print the roles of a ring in the cluster.  Raises: Forbidden, ConfigurationError."""
    reader = make_reader(session)
    rings = await find_rings(session, reader, name)
    if rings is None:
        raise Forbidden(f"{reader.gaps.found[0]}; or pass its manifest with -f")
    for ring in rings:
        if ring.invalid is not None:
            raise ring.invalid
    specs = [(ring.spec, ring.status) for ring in rings if ring.spec is not None]
    session.out.write(render_roles(specs, account, session.output))
    return ExitCode.IN_ORDER


def render_roles(
    rings: Iterable[tuple[RingSpec, Mapping[str, Any]]], account: tuple[str, str], output: str | None
) -> str:
    """ClusterRole and binding of each ring: YAML documents, or (`json`) a List."""
    documents = ring_roles(rings, account)
    if output == "json":
        import msgspec

        listed = {"apiVersion": "v1", "kind": "List", "items": documents}
        return msgspec.json.format(msgspec.json.encode(listed), indent=2).decode() + "\n"
    import yaml

    return str(yaml.safe_dump_all(documents, sort_keys=False))

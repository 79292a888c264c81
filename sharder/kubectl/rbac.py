"""`kubectl sharding rbac`: the permissions that a ring needs, as manifests to apply."""

from __future__ import annotations

from sharder.kubectl.outcomes import ExitCode
from sharder.kubectl.session import Session
from sharder.kubectl.status.command import find_rings, make_reader
from sharder.rbac import render_roles
from shardsdk.errors import ShardingError


async def print_roles_of_ring(session: Session, name: str, account: tuple[str, str]) -> ExitCode:
    """Print the roles of a ring in the cluster.  Raises: ShardingError when it cannot be read, ConfigurationError."""
    reader = make_reader(session)
    rings = await find_rings(session, reader, name)
    if rings is None:
        raise ShardingError(f"{reader.gaps.found[0]}; or pass its manifest with -f")
    for ring in rings:
        if ring.invalid is not None:
            raise ring.invalid
    specs = [(ring.spec, ring.status) for ring in rings if ring.spec is not None]
    session.out.write(render_roles(specs, account, session.output))
    return ExitCode.IN_ORDER

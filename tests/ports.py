"""Ports for what tests start."""

from __future__ import annotations

from localcluster.ports import ReservedPort, reserve_port

_kept: list[ReservedPort] = []


def free_port() -> int:
    """A port that is the caller's until this process ends.

    What somebody only looks up and gives back is another one's before long, where hundreds
    of processes make connections: as a port to listen on, or as the own end of a connection.
    """
    _kept.append(reserve_port())
    return _kept[-1].number

"""Settings that are fine each for itself and wrong together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sharder.config.durations import render_duration
from sharder.config.schema import LeaderElection, SharderConfig
from sharder.core.problems import Problem
from shardsdk.protocol.leases import margin_seconds

#: A retry is delayed by up to this factor, and must still fit before the deadline.
#: Source: client-go, tools/leaderelection, JitterFactor.
RETRY_JITTER: Final = 1.2


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A problem, and the paths of the settings that it is `about`."""

    problem: Problem
    about: frozenset[str]


def find_contradictions(config: SharderConfig) -> Iterator[Contradiction]:
    """Everything in `config` that does not go together."""
    yield from _in_election(config.leader_election)
    yield from _in_addresses(config)
    client = config.webhook.config.client_config
    if client.url is not None and client.service is not None:
        path = "webhook.config.clientConfig"
        yield _contradiction(
            path, "has both url and service", "keep the one that the API server can reach", "url", "service"
        )


def _in_election(election: LeaderElection) -> Iterator[Contradiction]:
    lease, deadline = election.lease_duration_seconds, election.renew_deadline_seconds
    retry = election.retry_period_seconds
    if deadline >= lease:
        yield _contradiction(
            "leaderElection",
            f"has the renewDeadline {render_duration(deadline)}, no shorter than the leaseDuration"
            f" {render_duration(lease)}: two replicas could lead at once",
            "make renewDeadline about two thirds of leaseDuration",
            "renewDeadline",
            "leaseDuration",
        )
    elif deadline >= (latest := lease - margin_seconds(lease)):
        yield _contradiction(
            "leaderElection",
            f"has the renewDeadline {render_duration(deadline)}, too close to the leaseDuration"
            f" {render_duration(lease)}",
            f"make renewDeadline shorter than {render_duration(latest)}, better about two thirds of leaseDuration",
            "renewDeadline",
            "leaseDuration",
        )
    if retry * RETRY_JITTER >= deadline:
        yield _contradiction(
            "leaderElection",
            f"has the retryPeriod {render_duration(retry)}, which with its jitter of {RETRY_JITTER} is no"
            f" shorter than the renewDeadline {render_duration(deadline)}",
            "make retryPeriod about a fifth of renewDeadline",
            "retryPeriod",
            "renewDeadline",
        )


def _in_addresses(config: SharderConfig) -> Iterator[Contradiction]:
    """Two servers on one port; the webhook's only counts when it is served."""
    servers = [
        ("health.bindAddress", config.health.bind_address.enabled, config.health.bind_address.port),
        ("metrics.bindAddress", config.metrics.bind_address.enabled, config.metrics.bind_address.port),
        ("webhook.server.port", config.webhook.enabled, config.webhook.server.port),
    ]
    first: dict[int, str] = {}
    for path, enabled, port in servers:
        if not enabled or port == 0:
            continue
        other = first.setdefault(port, path)
        if other != path:
            problem = Problem(path, f"has port {port}, as {other} has", "use another port")
            yield Contradiction(problem, frozenset({path, other}))


def _contradiction(section: str, message: str, remedy: str, *names: str) -> Contradiction:
    return Contradiction(Problem(section, message, remedy), frozenset(f"{section}.{name}" for name in names))

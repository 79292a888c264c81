"""How long a lease lasts, how often it is renewed, when its holder gives up.

The three durations are those of client-go's leader election; how they relate is
checked, and the moment of a renewal turned into the moments that follow from it.

    sent             step down         hold ends        lease may be taken
     |---------------------|---------------|-----------------|
     |<- renew_deadline -->|               |<--- margin ---->|
     |<---------------- lease_duration --------------------->|
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from shardsdk.errors import ConfigurationError
from shardsdk.protocol.leases import MAX_DURATION_SECONDS, margin_seconds

#: A pause between two tries is made longer by up to this share, so that
#: processes started together do not stay in step.
#: Source: client-go leaderelection, JitterFactor 1.2 (there it is checked
#: against the same relation).
JITTER: Final = 0.2
#: The longest duration that a Lease holds.  Source: k8s.io/api, coordination/v1, an int32.
_LONGEST_SECONDS: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Deadlines:
    """What follows from a renewal, on the clock that it was measured with."""

    step_down_at: float
    hold_ends_at: float


@dataclass(frozen=True, slots=True)
class LeaseTimings:
    """Durations of a lease, in seconds.

    `lease_duration` is what others wait after the last renewal that they saw;
    the Lease holds whole seconds.  `renew_deadline` is how long the holder goes
    on without a confirmed renewal, `retry_period` how often it tries.

    Raises: ConfigurationError, naming every relation that does not hold.
    """

    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0

    def __post_init__(self) -> None:
        problems = list(_problems(self))
        if problems:
            raise ConfigurationError("; ".join(problems))

    @classmethod
    def of(cls, lease_duration: float) -> LeaseTimings:
        """Those of a lease of so many seconds, in the proportions of the defaults.

        Raises: ConfigurationError unless they are one or more whole seconds.

        >>> LeaseTimings.of(30)
        LeaseTimings(lease_duration=30, renew_deadline=20.0, retry_period=4.0)
        """
        return cls(lease_duration, lease_duration * 2 / 3, lease_duration * 2 / 15)

    @property
    def margin(self) -> float:
        """How long before the lease can be taken its hold ends."""
        return margin_seconds(self.lease_duration)

    @property
    def request_timeout(self) -> float:
        """How long one request may take while nothing depends on it.

        Source: client-go resourcelock.NewFromKubeconfig, half the deadline.
        """
        return self.renew_deadline / 2

    def renewal_timeout(self, left: float) -> float:
        """How long a request may take when the deadline is `left` seconds away.

        At first as long as any other, so that an API server whose answers take
        up to half the deadline costs nobody the lease.  Then half of what is
        left, so that a hung one leaves time for others; but no less than until
        the next try is due.
        """
        if left >= self.request_timeout:
            return self.request_timeout
        return max(left / 2, min(left, self.retry_period))

    def after(self, sent: float) -> Deadlines:
        """The deadlines of a renewal whose sending began at `sent`."""
        return Deadlines(sent + self.renew_deadline, sent + self.lease_duration - self.margin)

    def pause(self, chance: float) -> float:
        """How long to wait between two tries; `chance` is drawn from [0, 1)."""
        return self.retry_period * (1 + JITTER * chance)


def _problems(timings: LeaseTimings) -> list[str]:
    duration, deadline, retry = timings.lease_duration, timings.renew_deadline, timings.retry_period
    latest = duration - timings.margin
    checks = (
        (
            1 <= duration <= _LONGEST_SECONDS and duration % 1 == 0,
            f"lease_duration is {duration:g} s, but a Lease holds whole seconds: use 1 to {_LONGEST_SECONDS} of them",
        ),
        (
            deadline < latest,
            f"renew_deadline is {deadline:g} s, but the holder must have stepped down before others may take the"
            f" lease: use less than {latest:g} s, or a longer lease_duration",
        ),
        (
            retry * (1 + JITTER) < deadline,
            f"retry_period is {retry:g} s, which with its jitter leaves no second try within the renew_deadline of"
            f" {deadline:g} s: use less than {deadline / (1 + JITTER):g} s",
        ),
        (retry > 0, f"retry_period is {retry:g} s, which would try without pause: use more than zero"),
    )
    return [problem for holds, problem in checks if not holds]


def check_restart_grace(seconds: object) -> int:
    """The seconds that a lease is kept for the next process.  Raises: ConfigurationError for what no Lease holds."""
    if not isinstance(seconds, int | float) or not 0 <= seconds <= MAX_DURATION_SECONDS or seconds != int(seconds):
        raise ConfigurationError(
            f"restart_grace_seconds is {seconds!r}: use whole seconds, 0 to {MAX_DURATION_SECONDS}"
        )
    return int(seconds)

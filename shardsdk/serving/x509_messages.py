"""What is asked of whoever knows X.509 (x509_worker.py), and what it answers; both travel as JSON."""

from __future__ import annotations

from datetime import datetime

import msgspec

from shardsdk.serving.certificate_spec import Lifetimes, ServingNames


class JudgeSecret(msgspec.Struct, frozen=True, tag=True):
    """What should a Secret hold at `now`?  `data` `None`: there is no Secret."""

    data: dict[str, bytes] | None
    names: ServingNames
    now: datetime
    lifetimes: Lifetimes


class ReadValidity(msgspec.Struct, frozen=True, tag=True):
    """From when and until when is the first certificate of this PEM valid?"""

    certificate: bytes


class Judgement(msgspec.Struct, frozen=True, tag=True):
    """What the Secret should hold, and what to serve from it.

    `reason` says why `data` must be written (`None`: it is there), `problem`
    what was wrong with what was there.  Nothing changes before `due_at`.
    """

    data: dict[str, bytes]
    reason: str | None
    problem: str | None
    bundle: bytes
    certificate: bytes
    key: bytes
    expires_at: datetime
    due_at: datetime


class Validity(msgspec.Struct, frozen=True, tag=True):
    """A certificate is valid from the first moment until the second (UTC)."""

    begins_at: datetime
    expires_at: datetime


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The question's content cannot be used; why."""

    message: str


Question = JudgeSecret | ReadValidity
Answer = Judgement | Validity | Refused

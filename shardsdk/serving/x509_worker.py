"""Everything that needs X.509: what a Secret of certificates should hold, and when a certificate ends.

Questions carry all that their answers need.  As a program it answers one from
standard input on standard output, so that a server can ask a process that is
gone afterwards (x509_process.py); keys go through pipes, never through arguments
or disks.
"""

from __future__ import annotations

import sys

import msgspec

from shardsdk.errors import ConfigurationError
from shardsdk.serving.renewal import Stored, make_stored, next_due, parse_stored, plan_renewal, render_stored
from shardsdk.serving.x509 import parse_certificates
from shardsdk.serving.x509_messages import Answer, Judgement, JudgeSecret, Question, ReadValidity, Refused, Validity


def answer(question: Question) -> Answer:
    """The answer to one question."""
    try:
        match question:
            case JudgeSecret():
                return judge(question)
            case ReadValidity(certificate):
                first = parse_certificates(certificate)[0]
                return Validity(first.begins_at, first.expires_at)
    except ConfigurationError as error:
        return Refused(str(error))
    except Exception as error:
        # Content that is not ours; what the library raises about it is not known beforehand.
        said = f"{type(error).__name__}: {error}"
        if isinstance(question, JudgeSecret):
            return Refused(
                f"certificates cannot be made from it ({said}); delete the Secret, so that they are made anew"
            )
        return Refused(f"the certificate cannot be read ({said})")


def judge(question: JudgeSecret) -> Judgement:
    """What the Secret should hold."""
    names, now, lifetimes = question.names, question.now, question.lifetimes
    if question.data is None:
        return _judgement(make_stored(names, now, lifetimes), question, "there are no webhook certificates yet")
    try:
        stored = parse_stored(question.data)
    except ConfigurationError as error:
        problem = f"its content cannot be used: {error}"
        return _judgement(make_stored(names, now, lifetimes), question, problem, problem)
    renewal = plan_renewal(stored, names, now, lifetimes)
    if renewal is None:
        return _judgement(stored, question, None)
    return _judgement(renewal.stored, question, renewal.reason)


def _judgement(stored: Stored, question: JudgeSecret, reason: str | None, problem: str | None = None) -> Judgement:
    now, lifetimes = question.now, question.lifetimes
    more = plan_renewal(stored, question.names, now, lifetimes) is not None
    serving = stored.serving
    return Judgement(
        data=render_stored(stored),
        reason=reason,
        problem=problem,
        bundle=stored.bundle,
        certificate=serving.certificate.pem,
        key=serving.key,
        expires_at=serving.certificate.expires_at,
        due_at=now if more else next_due(stored, lifetimes, now),
    )


def main() -> None:
    """Answer the question on standard input."""
    question = msgspec.json.decode(sys.stdin.buffer.read(), type=Question)
    sys.stdout.buffer.write(msgspec.json.encode(answer(question)))

"""Has X.509 work done in a process of its own.

The library for it takes 9 MiB of a process for good, and its work holds up an
event loop; it is needed once in weeks.  A process that starts, answers and ends
costs half a second of a core each time instead.

Its modules are those of this process, wherever they were found, but for those of Python
itself: in a folder with an `operator.py` or `email.py` it takes neither for Python's.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from shardsdk.errors import ShardingError
from shardsdk.serving.x509_messages import Answer, Question

#: Whoever answers questions about certificates.
Ask = Callable[[Question], Awaitable[Answer]]

#: A start of Python on a busy node, with much to spare.
ANSWER_SECONDS: Final = 60.0

#: Its arguments are where its modules are.
_CODE: Final = "import sys; sys.path[:] = sys.argv[1:]; from shardsdk.serving.x509_worker import main; main()"


class CertificateWorkFailed(ShardingError):
    """The process for certificates gave no answer; asking again may help."""


async def ask_here(question: Question) -> Answer:
    """Answer within this process, for callers that live shortly."""
    from shardsdk.serving.x509_worker import answer

    return answer(question)


async def ask_apart(question: Question) -> Answer:
    """Answer in a process of its own.

    Raises: CertificateWorkFailed when it cannot be started, fails, or takes a minute.
    """
    pipe = asyncio.subprocess.PIPE
    try:
        worker = await asyncio.create_subprocess_exec(*_command(), stdin=pipe, stdout=pipe, stderr=pipe)
    except OSError as error:
        raise CertificateWorkFailed(f"the process for certificates cannot be started: {error}") from error
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            said, complaint = await worker.communicate(msgspec.json.encode(question))
    except TimeoutError as error:
        raise CertificateWorkFailed(f"the process for certificates took over {ANSWER_SECONDS:.0f} s") from error
    finally:
        if worker.returncode is None:
            worker.kill()
            await worker.wait()
    try:
        answer: Answer = msgspec.json.decode(said, type=Answer)
    except msgspec.DecodeError as error:
        last = complaint.decode(errors="replace").strip().rpartition("\n")[2] or "it said nothing"
        raise CertificateWorkFailed(f"the process for certificates ended with {worker.returncode}: {last}") from error
    return answer


def _command() -> tuple[str, ...]:
    """The process: as careful about where its modules come from as this one, at least."""
    flags = sys.flags
    careful = ((flags.isolated, "-I"), (flags.ignore_environment, "-E"), (flags.no_user_site, "-s"), (True, "-P"))
    library = os.path.dirname(os.__file__)
    own = (library, os.path.join(library, "lib-dynload"))
    path = sorted(sys.path, key=lambda each: each not in own)
    return (sys.executable, *(flag for wanted, flag in careful if wanted), "-c", _CODE, *path)

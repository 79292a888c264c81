"""`kubectl sharding status`: rings at a glance, once or again and again.

Refuses: to load the API server by being watched: it reads for a tenth of the
time at most, however large the cluster.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import Final

from sharder.kubectl.documents import overviews_document, render_document
from sharder.kubectl.outcome import ExitCode, Unread, exit_code, leaves
from sharder.kubectl.overview import Overview
from sharder.kubectl.reading import Reader, Ring
from sharder.kubectl.session import Session
from sharder.kubectl.statustext import render_overview
from sharder.kubectl.text import Tone
from shardsdk.errors import ConfigurationError, NotFound, ShardingError

#: Of the time that a refresh took, this many times as long passes until the next one begins.
REST: Final = 9

_CLEAR, _HOME, _TO_LINE_END, _TO_SCREEN_END = "\x1b[2J", "\x1b[H", "\x1b[K", "\x1b[J"


@dataclass(frozen=True, slots=True)
class Frame:
    """What is shown at one moment."""

    lines: list[str]
    code: ExitCode


async def show_status(session: Session, ring: str | None) -> ExitCode:
    """Show `ring` (None: every ring) once."""
    frame = await make_frame(session, ring)
    session.say(*frame.lines)
    return frame.code


async def watch_status(session: Session, ring: str | None, interval_seconds: float) -> ExitCode:
    """Show it again and again, for ever; a question that fails is said and asked again."""
    on_terminal = session.for_people and session.out.isatty()
    first = True
    while True:
        began = session.clock.monotonic()
        try:
            lines = (await make_frame(session, ring, compact=True)).lines
        except Exception as error:
            lines = [_passing(error)]
        took = session.clock.monotonic() - began
        pause = max(interval_seconds, REST * took)
        if on_terminal:
            _redraw(session, lines, pause, clear=first)
        else:
            session.say(*([""] if session.for_people and not first else []), *lines)
        first = False
        await session.clock.sleep(pause)


async def make_frame(session: Session, ring: str | None, *, compact: bool = False) -> Frame:
    """Read and render.  Raises: ConfigurationError for a ring that is not there."""
    overviews, unread = await read_overviews(session, ring)
    code = exit_code(
        wrong=any(overview.wrong for overview in overviews),
        unknown=bool(unread) or any(overview.unknown for overview in overviews),
    )
    if not session.for_people:
        text = render_document(overviews_document(overviews, unread), session.output, compact=compact)
        return Frame(text.rstrip("\n").split("\n"), code)
    lines: list[str] = []
    for overview in overviews:
        lines += [*([""] if lines else []), *render_overview(overview, session.painter, wide=session.output == "wide")]
    lines += [f"{session.painter.paint('? not read', Tone.WARN)}: {gap}" for gap in unread]
    return Frame(lines or ["There are no ClusterRings."], code)


async def read_overviews(session: Session, ring: str | None) -> tuple[list[Overview], list[Unread]]:
    """The overviews of `ring` or of all rings, and what could not be read beside them."""
    reader = make_reader(session)
    rings = await find_rings(session, reader, ring)
    if rings is None and ring is not None:
        # Its leases carry its name, so something can be said all the same.
        return [await reader.overview(Ring(ring, {}, read=False))], []
    found = [await make_reader(session).overview(each) for each in rings or ()]
    return found, reader.gaps.found


async def find_rings(session: Session, reader: Reader, ring: str | None) -> list[Ring] | None:
    """The rings asked for; None: they cannot be read.  Raises: ConfigurationError for one that is not there."""
    try:
        return await reader.rings(ring)
    except NotFound as error:
        if "CustomResourceDefinition" in str(error):
            raise ConfigurationError(
                f"{session.host} does not serve ClusterRings; install them: `sharder crds --apply`, or the Helm chart"
            ) from error
        raise ConfigurationError(
            f"there is no ClusterRing {ring!r} at {session.host}; look at `kubectl get clusterrings` (labels that a"
            f" deleted ring has left go with `kubectl sharding cleanup {ring}`)"
        ) from error


def make_reader(session: Session) -> Reader:
    """A reader with no gaps yet."""
    return Reader(session.api, session.clock, session.namespace)


def _passing(error: Exception) -> str:
    """What to show instead of a frame.  Raises: `error` when asking again cannot help."""
    causes = list(leaves(error))
    if not all(isinstance(cause, ShardingError) and not isinstance(cause, ConfigurationError) for cause in causes):
        raise error
    return f"not refreshed: {' '.join(str(causes[0]).split())}"


def _redraw(session: Session, lines: list[str], pause_seconds: float, *, clear: bool) -> None:
    """Draw over the last frame without flicker; what does not fit on the screen is left out, and said."""
    now = session.clock.now().astimezone().strftime("%H:%M:%S")
    head = session.painter.paint(f"{now}  every {pause_seconds:.0f} s, Ctrl-C ends", Tone.FAINT)
    room = max(shutil.get_terminal_size().lines - 3, 1)
    shown = lines[:room] + ([f"… {len(lines) - room} more lines"] if len(lines) > room else [])
    text = "".join(f"{line}{_TO_LINE_END}\n" for line in [head, *shown])
    session.out.write((_CLEAR if clear else "") + _HOME + text + _TO_SCREEN_END)
    session.out.flush()

"""`kubectl sharding status --watch`: read again at intervals, and shown.

A terminal is redrawn; elsewhere what has changed is appended.  It reads for a
tenth of the time at most, however large the cluster and however busy; while
reads fail, it tries again sooner.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from sharder.failures import leaves
from sharder.kubectl.outcomes import ExitCode
from sharder.kubectl.session import Session
from sharder.kubectl.status.command import View, make_frame, read_view
from sharder.kubectl.status.overview import Overview
from sharder.kubectl.text import Tone, for_terminal, plural, rows_of
from shardsdk.errors import ConfigurationError, ShardingError

#: Of the time that a refresh took, this many times as long passes until the next one begins.
REST: Final = 9
#: But so long at most after one that failed: most of its time was waiting, and then its end is what people wait for.
FAILED_REST_SECONDS: Final = 15.0

_CLEAR, _HOME, _TO_LINE_END, _TO_SCREEN_END = "\x1b[2J", "\x1b[H", "\x1b[K", "\x1b[J"


async def watch_status(session: Session, ring: str | None, interval_seconds: float) -> ExitCode:
    """Show it for ever, at most once in `interval_seconds`; a question that fails is said and asked again."""
    on_terminal = session.for_people and session.out.isatty()
    essence: object = None
    while True:
        began, before, longest = session.clock.monotonic(), essence, math.inf
        failed = False
        try:
            view = await read_view(session, ring)
            lines, essence = make_frame(session, view, compact=True).lines, _essence_of(view)
        except Exception as error:
            essence = lines = [_passing(error)]
            longest, failed = FAILED_REST_SECONDS, True
        pause = max(interval_seconds, min(REST * (session.clock.monotonic() - began), longest))
        if on_terminal:
            _redraw(session, f"every {round(pause, 1):g} s, Ctrl-C ends", lines, first=before is None)
        elif essence != before and failed and not session.for_people:
            session.complain(*lines)
        elif essence != before:
            session.say(*([""] if session.for_people and before is not None else []), *lines)
        await session.clock.sleep(pause)


def _essence_of(view: View) -> object:
    """What is shown, but for what only time changes."""
    return view.unread, [_timeless(overview) for overview in view.rings]


def _timeless(overview: Overview) -> object:
    shards = overview.shard_statuses
    return replace(
        overview,
        conditions=tuple(replace(each, seconds=None) for each in overview.conditions),
        shard_statuses=None
        if shards is None
        else tuple(replace(each, renewed_seconds=None, held_seconds=None) for each in shards),
    ), [each.silent for each in shards or ()]


def _passing(error: Exception) -> str:
    """What to show instead of a frame.  Raises: `error` when asking again cannot help."""
    causes = list(leaves(error))
    if not all(isinstance(cause, ShardingError) and not isinstance(cause, ConfigurationError) for cause in causes):
        raise error
    return f"not refreshed: {' '.join(str(causes[0]).split())}"


def _redraw(session: Session, how: str, lines: list[str], *, first: bool) -> None:
    """Draw over the last frame without flicker; what does not fit on the screen is left out, and said."""
    now = session.clock.now().astimezone().strftime("%H:%M:%S")
    head = session.painter.paint(f"{now}  {how}", Tone.FAINT)
    shown = fitting(lines, shutil.get_terminal_size())
    text = "".join(f"{for_terminal(line, session.painter)}{_TO_LINE_END}\n" for line in [head, *shown])
    session.out.write((_CLEAR if first else "") + _HOME + text + _TO_SCREEN_END)
    session.out.flush()


def fitting(lines: Sequence[str], size: os.terminal_size) -> list[str]:
    """The lines that a terminal has room for, next to the head; what is left out is said."""
    room, shown = max(size.lines - 3, 1), list[str]()
    for line in lines:
        room -= rows_of(line, size.columns)
        if room < 0:
            return [*shown, f"… {plural(len(lines) - len(shown), 'more line')}"]
        shown.append(line)
    return shown

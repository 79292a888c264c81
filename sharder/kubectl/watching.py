"""`kubectl sharding status --watch`: shown anew when something has changed.

Does: follow watches, read again what they say has changed, and redraw; where the
caller may not watch, read at intervals, and say so once.  Refuses: to load the
API server by being looked at: it reads for a tenth of the time at most, however
large the cluster and however busy.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from sharder.kubectl.following import Follower, News, Source, lasting
from sharder.kubectl.outcome import ExitCode, Unread, leaves
from sharder.kubectl.reading import Gathered
from sharder.kubectl.session import Session
from sharder.kubectl.status import View, make_frame, make_reader, read_view
from sharder.kubectl.text import Tone, plural, rows_of
from shardsdk.errors import ConfigurationError, ShardingError
from shardsdk.kube.selectors import Selector, equals, exists
from shardsdk.protocol.labels import LEASE_RING_LABEL
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES

#: Of the time that a refresh took, this many times as long passes until the next one begins.
REST: Final = 9

_CLEAR, _HOME, _TO_LINE_END, _TO_SCREEN_END = "\x1b[2J", "\x1b[H", "\x1b[K", "\x1b[J"


async def watch_status(session: Session, ring: str | None, interval_seconds: float) -> ExitCode:
    """Show it for ever, at most once in `interval_seconds`; a question that fails is said and asked again."""
    follower = Follower(session.api, session.clock, random.Random())
    watch = Watch(session, ring, interval_seconds, follower)
    try:
        while True:
            await watch.turn()
    finally:
        await follower.close()


@dataclass(slots=True)
class Watch:
    """What is shown, and what it was made of; `view` None: nothing has been read yet, or not of late."""

    session: Session
    ring: str | None
    interval_seconds: float
    follower: Follower
    view: View | None = None
    essence: object = None
    read: News = News.NOTHING
    shown: int = 0
    told: set[Unread] = field(default_factory=set)

    @property
    def on_terminal(self) -> bool:
        """Whether frames are drawn over one another."""
        return self.session.for_people and self.session.out.isatty()

    async def turn(self) -> None:
        """Read what has changed, show it, and wait until there is something to show again."""
        clock = self.session.clock
        began = clock.monotonic()
        try:
            self.view = await self._read(self.follower.take())
            now = clock.now() if self.on_terminal else None
            lines = make_frame(self.session, self.view, now=now, compact=True).lines
        except Exception as error:
            self.view, lines = None, [_passing(error)]
            self.read = News.CHANGE
        pause = max(self.interval_seconds, REST * (clock.monotonic() - began))
        before, self.essence = self.essence, lines if self.view is None else essence_of(self.view)
        if self.on_terminal or self.essence != before:
            self._show(lines, pause)
        self._tell(pause)
        await self._wait(pause)

    async def _read(self, news: News) -> View:
        now = self.session.clock.now()
        old, self.read = self.view, News.NOTHING
        if news is News.RENEWAL and old is not None:
            old = View(tuple([await self._read_leases(each) for each in old.rings]), old.unread)
            self.read = News.RENEWAL
        by_period = bool(self.follower.refused)
        if old is None or news is News.CHANGE or by_period or any(each.is_outdated(now) for each in old.rings):
            old = await read_view(self.session, self.ring)
            self.read = News.CHANGE
            self.follower.aim(self._sources(old))
        return old

    async def _read_leases(self, known: Gathered) -> Gathered:
        return replace(known, seen=await make_reader(self.session).leases(known.ring.name))

    async def _wait(self, pause_seconds: float) -> None:
        """Return when it is time for another frame."""
        if self.view is None or self.follower.refused:
            await self.session.clock.sleep(pause_seconds)
            return
        match self.read:
            case News.CHANGE:
                await self.session.clock.sleep(pause_seconds)
            case News.RENEWAL:
                await self.follower.wait(News.CHANGE, pause_seconds)
            case News.NOTHING:
                # Ages go on, and a lease may run out without any event.
                await self.follower.wait(News.RENEWAL, self.interval_seconds)

    def _sources(self, view: View) -> Iterator[Source]:
        one = Selector() if self.ring is None else Selector(fields=equals("metadata.name", self.ring))
        yield Source(CLUSTERRINGS, selector=one)
        labels = exists(LEASE_RING_LABEL) if self.ring is None else equals(LEASE_RING_LABEL, self.ring)
        for each in view.rings:
            yield Source(LEASES, None if each.seen.whole else self.session.namespace, Selector(labels=labels))
            for resource in each.resources:
                yield Source(resource, self.session.namespace if resource.namespaced else None)

    def _show(self, lines: list[str], pause_seconds: float) -> None:
        session, refused = self.session, self.follower.refused
        if self.on_terminal:
            how = f"every {pause_seconds:.0f} s" if refused else "as it changes"
            more = [f"{session.painter.paint('? not watched', Tone.WARN)}: {each}" for each in refused]
            _redraw(session, f"{how}, Ctrl-C ends", [*lines, *more], clear=self.shown == 0)
        else:
            session.say(*([""] if session.for_people and self.shown else []), *lines)
        self.shown += 1

    def _tell(self, pause_seconds: float) -> None:
        """Say once what is not watched, apart from what is shown; on a terminal each frame says it."""
        for each in () if self.on_terminal else self.follower.refused:
            if each not in self.told:
                self.told.add(each)
                self.session.complain(f"not watched, read every {pause_seconds:.0f} s instead: {each}")


def essence_of(view: View) -> object:
    """What is shown, but for what only time changes."""
    return view.unread, [
        (each.ring.raw, each.counts, each.problems, each.unread, shards_of(each), leases_of(each))
        for each in view.rings
    ]


def shards_of(gathered: Gathered) -> list[str] | None:
    """The shards that objects are counted for."""
    return None if gathered.membership is None else sorted(gathered.membership.available)


def leases_of(gathered: Gathered) -> list[str]:
    """Its leases, in order, without the time of their renewal."""
    return sorted(repr(lasting(lease)) for lease in gathered.seen.leases or ())


def _passing(error: Exception) -> str:
    """What to show instead of a frame.  Raises: `error` when asking again cannot help."""
    causes = list(leaves(error))
    if not all(isinstance(cause, ShardingError) and not isinstance(cause, ConfigurationError) for cause in causes):
        raise error
    return f"not refreshed: {' '.join(str(causes[0]).split())}"


def _redraw(session: Session, how: str, lines: list[str], *, clear: bool) -> None:
    """Draw over the last frame without flicker; what does not fit on the screen is left out, and said."""
    now = session.clock.now().astimezone().strftime("%H:%M:%S")
    head = session.painter.paint(f"{now}  {how}", Tone.FAINT)
    shown = fitting(lines, shutil.get_terminal_size())
    text = "".join(f"{line}{_TO_LINE_END}\n" for line in [head, *shown])
    session.out.write((_CLEAR if clear else "") + _HOME + text + _TO_SCREEN_END)
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

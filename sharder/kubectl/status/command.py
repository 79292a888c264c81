"""`kubectl sharding status`: rings at a glance."""

from __future__ import annotations

from dataclasses import dataclass

from sharder.failures import no_ring
from sharder.kubectl.cluster import Reader, Ring
from sharder.kubectl.documents import overviews_document, render_document
from sharder.kubectl.outcomes import ExitCode, Unread, exit_code
from sharder.kubectl.session import Session
from sharder.kubectl.status.overview import Overview
from sharder.kubectl.status.text import render_overview
from sharder.kubectl.text import Tone
from shardsdk.errors import NotFound


@dataclass(frozen=True, slots=True)
class Frame:
    """What is shown at one moment."""

    lines: list[str]
    code: ExitCode


@dataclass(frozen=True, slots=True)
class View:
    """What was read: of each ring, and what could not be read beside them."""

    rings: tuple[Overview, ...]
    unread: tuple[Unread, ...] = ()


async def show_status(session: Session, ring: str | None) -> ExitCode:
    """Show `ring` (None: every ring) once."""
    frame = make_frame(session, await read_view(session, ring))
    session.say(*frame.lines)
    return frame.code


async def read_view(session: Session, ring: str | None) -> View:
    """Read `ring` or all rings.  Raises: ConfigurationError for a ring that is not there."""
    reader = make_reader(session)
    rings = await find_rings(session, reader, ring)
    if rings is None and ring is not None:
        # Its leases carry its name, so something can be said all the same.
        return View((await reader.overview(Ring(ring, {}, read=False)),))
    found = [await make_reader(session).overview(each) for each in rings or ()]
    return View(tuple(found), tuple(reader.gaps.found))


def make_frame(session: Session, view: View, *, compact: bool = False) -> Frame:
    """Render; `compact`: a document on one line."""
    code = exit_code(
        wrong=any(overview.wrong for overview in view.rings),
        unknown=bool(view.unread) or any(overview.unknown for overview in view.rings),
    )
    if not session.for_people:
        document = overviews_document(view.rings, view.unread)
        text = render_document(document, session.output, compact=compact, ascii_only=session.ascii_only)
        return Frame(text.rstrip("\n").split("\n"), code)
    lines: list[str] = []
    for overview in view.rings:
        lines += [*([""] if lines else []), *render_overview(overview, session.painter, wide=session.output == "wide")]
    lines += [f"{session.painter.paint('? not read', Tone.WARN)}: {gap}" for gap in view.unread]
    return Frame(lines or ["There are no ClusterRings."], code)


async def find_rings(session: Session, reader: Reader, ring: str | None) -> list[Ring] | None:
    """The rings asked for; None: they cannot be read.  Raises: ConfigurationError for one that is not there."""
    try:
        return await reader.rings(ring)
    except NotFound as error:
        remedy = (
            "look at `kubectl get clusterrings` (labels that a deleted ring has left go with"
            f" `kubectl sharding cleanup {ring}`)"
        )
        raise no_ring(error, ring, session.host, remedy) from error


def make_reader(session: Session) -> Reader:
    """A reader with no gaps yet."""
    return Reader(session.api, session.clock, session.namespace)

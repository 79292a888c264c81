"""`kubectl sharding check`: everything that has to hold for rings to work, each with its remedy."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from sharder.core.ringspec import AssignBy
from sharder.kubectl.check.cluster import check_leaders, check_sharder, check_strangers
from sharder.kubectl.check.definitions import check_definitions, read_definitions
from sharder.kubectl.check.evidence import Evidence
from sharder.kubectl.check.findings import Finding, Level, failed, unknown
from sharder.kubectl.check.rings import check_ring
from sharder.kubectl.check.webhooks import check_other, check_webhook
from sharder.kubectl.documents import findings_document, render_document
from sharder.kubectl.explain.command import read_leader
from sharder.kubectl.leader import Sharder
from sharder.kubectl.outcomes import ExitCode, exit_code
from sharder.kubectl.session import Session
from sharder.kubectl.status.command import find_rings, make_reader
from sharder.kubectl.text import Painter, Tone, one_line, plural

_SIGNS: Final = {
    Level.OK: ("✓", Tone.GOOD),
    Level.SKIPPED: ("-", Tone.FAINT),
    Level.WARNING: ("!", Tone.WARN),
    Level.UNKNOWN: ("?", Tone.WARN),
    Level.PROBLEM: ("✗", Tone.BAD),
}
_TOPIC_WIDTH: Final = 13


@dataclass(frozen=True, slots=True)
class Section:
    """What was found about one ring, or (`ring` None) about what all rings share."""

    ring: str | None
    findings: tuple[Finding, ...]


async def run_check(
    session: Session, ring: str | None, sharder: Sharder, *, probe: bool = True, quiet: bool = False
) -> ExitCode:
    """Check `ring` (None: every ring, and what belongs to none)."""
    sections = [each async for each in _sections(session, ring, sharder, probe=probe)]
    findings = [finding for section in sections for finding in section.findings]
    levels = {finding.level for finding in findings}
    code = exit_code(wrong=Level.PROBLEM in levels, unknown=Level.UNKNOWN in levels)
    if session.for_people:
        for at, section in enumerate(sections):
            session.say(*([""] if at else []), *render_section(section, session.painter, quiet=quiet))
        session.say("", summarize(findings, session.painter))
    else:
        named = [(section.ring, section.findings) for section in sections]
        session.out.write(render_document(findings_document(named), session.output, ascii_only=session.ascii_only))
    return code


async def _sections(session: Session, ring: str | None, sharder: Sharder, *, probe: bool) -> AsyncIterator[Section]:
    reader = make_reader(session)
    rings = await find_rings(session, reader, ring)
    leading = await read_leader(session.api, reader, sharder.lease)
    evidence = Evidence(reader, sharder, leading, probe)
    unseen = [each.name for each in rings or () if each.read and each.spec is not None and not each.up_to_date]
    shared = list(check_sharder(leading, await evidence.denied(), sharder, reader.gaps.found, unseen=unseen))
    shared += check_leaders(await evidence.leaders(), reader.gaps.found)
    shared += check_definitions(await read_definitions(reader), reader.gaps.found)
    if rings is None:
        shared += [unknown("rings", f"{gap.what}: {gap.why}", gap.remedy) for gap in reader.gaps.found[:1]]
    elif ring is None:
        names, before = {each.name for each in rings}, len(reader.gaps.found)
        shared += check_strangers(names, await evidence.shards_of_rings(), await evidence.webhooks_of_rings())
        shared += [failed("rings", gap) for gap in reader.gaps.found[before:] if not gap.denied]
    yield Section(None, tuple(shared))
    for each in rings or ():
        own = Evidence(make_reader(session), sharder, leading, probe)
        about = await own.of_ring(each)
        findings = list(check_ring(about))
        if about.resolved is not None and about.resolved.spec.assign_by is AssignBy.LABELS:
            whole = not (about.undiscovered or about.missing)  # the sharder may know what is served no longer
            seen = await own.of_webhook(about.resolved, each.status, whole=whole)
            findings += check_webhook(seen, session.clock.now())
        elif about.resolved is not None:
            findings += check_other(*await own.of_other_sharder(about.resolved.spec))
        yield Section(each.name, tuple(findings))


def render_section(section: Section, painter: Painter, *, quiet: bool) -> Iterator[str]:
    """The lines of one section; `quiet`: only what is amiss."""
    yield painter.paint("Sharder" if section.ring is None else f"Ring {section.ring}", Tone.STRONG)
    shown = [each for each in section.findings if not quiet or each.level not in (Level.OK, Level.SKIPPED)]
    for finding in shown:
        sign, tone = _SIGNS[finding.level]
        faint = Tone.FAINT if finding.level is Level.SKIPPED else Tone.PLAIN
        topic = finding.topic.ljust(_TOPIC_WIDTH)
        yield f"  {painter.paint(f'{sign} {topic}', tone)} {painter.paint(finding.message, faint)}"
        if finding.remedy:
            yield f"    {' ' * _TOPIC_WIDTH} {painter.paint('→', Tone.STRONG)} {one_line(finding.remedy)}"
    if not shown:
        yield painter.paint("  nothing amiss", Tone.FAINT)


def summarize(findings: Sequence[Finding], painter: Painter) -> str:
    """One line for all of it."""
    counts = {level: sum(each.level is level for each in findings) for level in Level}
    parts = []
    if counts[Level.PROBLEM]:
        parts.append(painter.paint(plural(counts[Level.PROBLEM], "problem"), Tone.BAD))
    if counts[Level.WARNING]:
        parts.append(painter.paint(plural(counts[Level.WARNING], "warning"), Tone.WARN))
    if counts[Level.UNKNOWN]:
        parts.append(painter.paint(f"{counts[Level.UNKNOWN]} could not be checked", Tone.WARN))
    return ", ".join(parts) if parts else painter.paint("nothing amiss", Tone.GOOD)

"""An overview as text, for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from sharder.core.problems import MAX_QUOTED
from sharder.core.ringspec import Role
from sharder.core.shards import State
from sharder.kubectl.counting import Trouble
from sharder.kubectl.shards import ShardStatus
from sharder.kubectl.status.overview import (
    Overview,
    ResourceCount,
    balance_of,
    count_of,
    loads_of,
    unleased_shards,
)
from sharder.kubectl.text import Cell, Painter, Tone, bar, number, one_line, plural, span

_BAR_WIDTH: Final = 12
#: The title of the column with bars, which are for eyes: what goes into a pipe ends with the numbers.
_BAR: Final = ""
#: A table that would be wider leaves columns out, unless `-o wide` asks for all of them.
MAX_COLUMNS: Final = 120
_INDENT, _GAP = "  ", "   "
_STATE_TONES: Final = {
    State.READY: Tone.GOOD,
    State.EXPIRED: Tone.WARN,
    State.UNCERTAIN: Tone.WARN,
    State.DEAD: Tone.BAD,
    State.ORPHANED: Tone.BAD,
}
_SIGNS: Final = {True: ("✓", Tone.GOOD), False: ("✗", Tone.BAD), None: ("?", Tone.FAINT)}
_TROUBLE_WORDS: Final = {
    Trouble.UNASSIGNED: ("no shard owns them", Tone.WARN),
    Trouble.STRANDED: ("on a shard that is not available", Tone.BAD),
    Trouble.DRAINING: ("asked to leave their shard", Tone.WARN),
    Trouble.MISPLACED: ("on another shard than the one they belong on", Tone.WARN),
    Trouble.LEAVING: ("labelled, but outside the ring's scope", Tone.WARN),
}


def render_overview(overview: Overview, painter: Painter, *, wide: bool = False) -> list[str]:
    """The lines of one ring."""
    lines = [_headline(overview, painter)]
    if overview.scope:
        lines.append(painter.paint(f"  namespaces: {overview.scope}", Tone.FAINT))
    if how := _how(overview):
        lines.append(painter.paint(f"  {how}", Tone.FAINT))
    if overview.namespace is not None:
        lines.append(
            painter.paint(f"  of objects in namespaces only those of {overview.namespace} are counted", Tone.WARN)
        )
    lines += [painter.paint(f"  ✗ {problem}", Tone.BAD) for problem in overview.problems]
    rows = [list(row) for row in _shard_rows(overview, wide=wide)]
    if rows:
        head = _head(overview, wide=wide)
        shown = _columns_that_fit(head, rows, bars=painter.colours, wide=wide)
        picked = [[row[at] for at in shown] for row in rows]
        lines += ["", *painter.table([head[at] for at in shown], picked, indent=_INDENT)]
    footer = [*_troubles(overview, painter), *_conditions(overview, painter, wide=wide), *_gaps(overview, painter)]
    return [*lines, *([""] if footer else []), *footer]


def _how(overview: Overview) -> str:
    """How objects are given to shards; empty: by a label that the ring's name does not make."""
    ranges = overview.ranges
    if ranges is None:
        return f"label: {overview.shard_label}" if overview.shard_label is not None else ""
    count, moving = sum(ranges.by_shard.values()), ranges.moving
    on_the_way = "" if not moving else f", {moving} on their way"
    return (
        f"by hash of {ranges.hash_by}: {plural(count, 'range')} of {plural(len(ranges.by_shard), 'shard')}{on_the_way}"
    )


def _headline(overview: Overview, painter: Painter) -> str:
    parts = [painter.paint(f"Ring {overview.name}", Tone.STRONG), _ready(overview, painter)]
    if (present := overview.present) is not None:
        available = overview.available
        whole = overview.membership is not None
        text = f"{available} of {plural(len(present), 'shard') if whole else '? shards'} available"
        parts.append(painter.paint(text, Tone.PLAIN if available or not whole else Tone.BAD))
    match overview.settled:
        case True:
            parts.append(painter.paint("settled", Tone.GOOD))
        case False:
            parts.append(painter.paint("not settled", Tone.WARN))
        case None:
            parts.append(painter.paint("not known whether settled", Tone.WARN))
    balance = balance_of(overview)
    if balance is not None and len(overview.shard_statuses or ()) > 1:
        parts.append(f"fullest shard at {balance.fullest_share:.2f} of the mean")
    return "  ".join(parts)


def _ready(overview: Overview, painter: Painter) -> str:
    if not overview.read:
        return painter.paint("ring not read", Tone.WARN)
    if overview.ready:
        return painter.paint("ready", Tone.GOOD)
    if overview.ready is False:
        return painter.paint("not ready", Tone.BAD)
    if overview.conditions and not overview.up_to_date:
        return painter.paint("spec not seen by a sharder yet", Tone.WARN)
    return painter.paint("not seen by a sharder", Tone.BAD)


def _head(overview: Overview, *, wide: bool) -> list[str]:
    head = ["SHARD", "STATE", "RENEWED", "HELD"]
    if wide:
        head += ["NAMESPACE", "HOLDER", "DURATION", "FENCED", "TRANSITIONS"]
    plurals = Counter(each.resource.resource for each in overview.resources)
    for each in overview.resources:
        alone = plurals[each.resource.resource] == 1
        head.append((each.resource.resource if alone else str(each.resource)).upper())
    return [*head, "DRAINING", "SHARE", _BAR] if overview.resources else head


def _columns_that_fit(head: Sequence[str], rows: Sequence[Sequence[Cell]], *, bars: bool, wide: bool) -> list[int]:
    """Which columns to show: what people miss least goes first where lines would wrap."""
    shown = [at for at, title in enumerate(head) if title != _BAR or bars]
    widths = [max([len(title), *(len(row[at].text) for row in rows)]) for at, title in enumerate(head)]
    for title in () if wide else (_BAR, "SHARE", "HELD"):
        if len(_INDENT) + sum(widths[at] for at in shown) + len(_GAP) * (len(shown) - 1) <= MAX_COLUMNS:
            break
        shown = [at for at in shown if head[at] != title]
    return shown


def _shard_rows(overview: Overview, *, wide: bool) -> Iterator[Sequence[Cell]]:
    shard_statuses = overview.shard_statuses or ()
    loads = loads_of(overview.resources, {shard_status.name for shard_status in shard_statuses})
    blank = [Cell("")] * (7 if wide else 2)
    for shard_status in shard_statuses:
        row = [
            Cell(shard_status.name, Tone.NAME),
            _state(overview, shard_status),
            _renewed(shard_status),
            _held(shard_status),
        ]
        row += _wide_cells(shard_status) if wide else []
        yield [*row, *_counts(overview, shard_status.name), *_share(overview, shard_status.name, loads)]
    unknown = Cell("?", Tone.FAINT) if overview.membership is None else Cell("no lease", Tone.BAD)
    for name in unleased_shards(overview):
        yield [Cell(name or '""', Tone.NAME), unknown, *blank, *_counts(overview, name), Cell(""), Cell("")]
    if any(each.unassigned for each in overview.resources):
        counts = [number(each.unassigned, Tone.WARN) for each in overview.resources]
        yield [Cell("(nobody)", Tone.WARN), Cell(""), *blank, *counts, Cell(""), Cell(""), Cell("")]


def _counts(overview: Overview, name: str) -> list[Cell]:
    if not overview.resources:
        return []
    cells = [number(each.by_shard.get(name, 0) if each.counted else None) for each in overview.resources]
    return [*cells, number(sum(each.draining.get(name, 0) for each in overview.resources), Tone.WARN)]


def _share(overview: Overview, name: str, loads: Mapping[str, int]) -> list[Cell]:
    """A shard's part of the main objects; the bar compares it with the fullest shard."""
    if not overview.resources:
        return []
    if not sum(loads.values()):
        return [Cell(""), Cell("")]
    share, of_fullest = loads[name] / sum(loads.values()), loads[name] / max(loads.values())
    return [Cell(f"{share:.0%}", right=True), Cell(bar(of_fullest, _BAR_WIDTH), Tone.NAME)]


def _state(overview: Overview, shard_status: ShardStatus) -> Cell:
    if overview.has_left(shard_status):
        return Cell("left", Tone.FAINT)
    text = shard_status.state.value + ("?" if shard_status.silent else "")
    if shard_status.taken_over:
        text += ", being emptied"
    return Cell(text, Tone.WARN if shard_status.silent else _STATE_TONES[shard_status.state])


def _renewed(shard_status: ShardStatus) -> Cell:
    if shard_status.renewed_seconds is None:
        return Cell("never", Tone.FAINT)
    late = shard_status.ahead or (
        shard_status.available and shard_status.renewed_seconds > shard_status.duration_seconds
    )
    return Cell(shard_status.renewed, Tone.WARN if late else Tone.PLAIN)


def _held(shard_status: ShardStatus) -> Cell:
    """For how long its holder has had it; nobody has a lease that was given back."""
    return Cell(span(shard_status.held_seconds)) if shard_status.holder else Cell("-", Tone.FAINT)


def _wide_cells(shard_status: ShardStatus) -> list[Cell]:
    transitions = "?" if shard_status.transitions is None else str(shard_status.transitions)
    return [
        Cell(shard_status.namespace),
        Cell(shard_status.holder[:MAX_QUOTED] or "-", Tone.PLAIN if shard_status.available else Tone.FAINT),
        Cell(f"{shard_status.duration_seconds}s", right=True),
        Cell("yes" if shard_status.fenced else "no"),
        Cell(transitions, right=True),
    ]


def _troubles(overview: Overview, painter: Painter) -> Iterator[str]:
    for trouble, (words, tone) in _TROUBLE_WORDS.items():
        parts = [part for each in overview.resources if (part := _trouble_of(each, trouble))]
        if parts:
            yield f"  {painter.paint(f'! {trouble.value}', tone)} ({words}): {', '.join(parts)}"
    for each in overview.resources:
        if each.unjudged:
            sign = painter.paint("! unknown", Tone.WARN)
            named = one_line(str(each.resource))
            yield f"  {sign}: {each.unjudged} {named} without shard, in or out of the ring's scope"
        uncounted = each.counted and each.misplaced is None and not each.removed
        if each.role is Role.CONTROLLED and uncounted and overview.membership is not None:
            yield painter.paint(f"  ? whether {each.resource} are with their owners was not counted", Tone.FAINT)
    for shard_status in overview.shard_statuses or ():
        if shard_status.silent:
            sign, age = painter.paint("! silent", Tone.WARN), span(shard_status.renewed_seconds)
            yield (
                f"  {sign}: {one_line(shard_status.name)} last renewed {age} ago and still counts as ready:"
                " no sharder judges its lease, or clocks differ"
            )


def _trouble_of(each: ResourceCount, trouble: Trouble) -> str:
    count = count_of(each, trouble)
    if not count:
        return ""
    named = each.examples.get(trouble, ())
    more = ", …" if count > len(named) else ""
    return one_line(f"{each.resource} {count}" + (f" ({', '.join(named)}{more})" if named else ""))


def _conditions(overview: Overview, painter: Painter, *, wide: bool) -> Iterator[str]:
    for each in overview.conditions:
        counted_anew = each.type == "Settled" and overview.settled is not None and overview.waits is None
        if (each.status is True or counted_anew) and not wide:
            continue
        sign, tone = _SIGNS[each.status]
        since = f" for {span(each.seconds)}" if each.seconds is not None else ""
        head = painter.paint(f"{sign} {each.type}", tone)
        yield f"  {head} {painter.paint(f'({each.reason}{since})', Tone.FAINT)}: {one_line(each.message)}"


def _gaps(overview: Overview, painter: Painter) -> Iterator[str]:
    for gap in overview.unread:
        yield f"  {painter.paint('? not read', Tone.WARN)}: {one_line(str(gap))}"

"""What pages take from the code: each name stands between two comments in a page.

    <!-- printed: decisions -->
    ...
    <!-- end -->

Does: print all of them anew, and draw the diagrams.  Refuses: to make up a name
that a page asks for; a typo in a marker is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from docsite import balance, commandline, conditions, crd, meters, objects, ports, states, tables, wire
from docsite.pages import DOCS
from sharder.core.decisions import LEAVING, render_table
from tests.chaos import results as reliability
from tests.chaos.soak import report as soak

_MARKED: Final = re.compile(r"^<!-- printed: (?P<name>[\w-]+) -->\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)

PRINTERS: Final[Mapping[str, Callable[[], str]]] = {
    "decisions": render_table,
    "decisions-leaving": lambda: render_table(LEAVING),
    "decision-words": states.render_decisions,
    "balance": balance.render_balance,
    "states": states.render_states,
    "observed": tables.render_observed,
    "handover": tables.render_handover,
    "resync": tables.render_resync,
    "resync-conclusions": tables.render_conclusions,
    "takeover": tables.render_takeover,
    "conditions": conditions.render_rings,
    "ringassignment-conditions": conditions.render_assignments,
    "outcomes": states.render_outcomes,
    "object-waits": objects.render_waits,
    "object-steps": objects.render_steps,
    "clusterring-spec": partial(crd.render_spec, crd.RINGS),
    "clusterring-status": partial(crd.render_status, crd.RINGS),
    "clusterring-columns": partial(crd.render_columns, crd.RINGS),
    "ringassignment-spec": partial(crd.render_spec, crd.ASSIGNMENTS),
    "ringassignment-status": partial(crd.render_status, crd.ASSIGNMENTS),
    "ringassignment-columns": partial(crd.render_columns, crd.ASSIGNMENTS),
    "ports-lines": ports.render_lines,
    "ports-originals": ports.render_originals,
    "cli-sharder": commandline.render_sharder,
    "cli-kubectl": commandline.render_kubectl,
    "cli-shardsdk": commandline.render_shardsdk,
    "reliability": reliability.render,
    "reliability-ranges": partial(reliability.render, "Ranges"),
    "reliability-not-by-ranges": reliability.render_not_by_ranges,
    "soak": soak.render,
    "metrics-sharder": meters.render_sharder,
    "metrics-shardsdk": meters.render_shardsdk,
    "alerts": meters.render_alerts,
    "vectors-labels": wire.render_labels,
    "vectors-hashes": wire.render_hashes,
    "vectors-owners": wire.render_owners,
    "vectors-leases": wire.render_leases,
}


def print_page(text: str) -> str:
    """The page with everything in it printed anew.  Raises: KeyError for a name that nobody prints."""
    return _MARKED.sub(
        lambda found: f"<!-- printed: {found['name']} -->\n{PRINTERS[found['name']]().strip()}\n<!-- end -->", text
    )


def print_anew() -> list[Path]:
    """Write what has changed; returns the files."""
    changed = []
    wanted = {path: print_page(path.read_text()) for path in sorted(DOCS.rglob("*.md"))}
    for path, text in wanted.items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            changed.append(path)
    return changed

"""The test vectors of the wire contract, as tables that a shard's author can check against."""

from __future__ import annotations

import json
from typing import Any, Final

from docsite.pages import ROOT

_VECTORS: Final = ROOT / "tests" / "vectors"
#: Keys that the page shows; the file has more.
_SHOWN_KEYS: Final = 8


def render_labels() -> str:
    """Ring name -> suffix of its labels; names that are refused say so."""
    lines = ["| ring | suffix |", "|---|---|"]
    for vector in _read("labels")["labels"]:
        suffix = f"`{vector['suffix']}`" if vector["valid"] else f"refused (it would be `{vector['suffix']}`)"
        lines.append(f"| `{vector['ring']}` | {suffix} |")
    return "\n".join(lines)


def render_hashes() -> str:
    """Text -> hash."""
    lines = ["| text | xxHash64, seed 0 |", "|---|---|"]
    lines += [
        f"| {f'`{text}`' if text else '(empty)'} | `{value}` |" for text, value in _read("hashring")["hashes"].items()
    ]
    return "\n".join(lines)


def render_owners() -> str:
    """Key -> owner in the vector's rings."""
    rings = _read("hashring")["rings"]
    few = [ring for ring in rings if len(ring["shards"]) <= _SHOWN_KEYS]
    lines = ["| key | " + " | ".join(", ".join(ring["shards"]) for ring in few) + " |", "|---" * (len(few) + 1) + "|"]
    keys = list(few[0]["owners"])[:_SHOWN_KEYS]
    lines += [f"| `{key}` | " + " | ".join(f"`{ring['owners'][key]}`" for ring in few) + " |" for key in keys]
    return "\n".join(lines)


def render_leases() -> str:
    """Leases as peers write them."""
    vectors = _read("leases")
    titles = {
        "held_by_shard": "Held by its shard",
        "released_by_shard": "Released by its shard",
        "taken_over_by_sharder": "Taken over by the sharder",
        "held_by_fenced_shard": "Held by a shard with the optional annotations (see below)",
        "held_by_leaving_shard": "The same, about to leave",
        "left_in_restart_grace": "Left to the next process of its name",
    }
    parts = []
    for name, title in titles.items():
        parts += [f"{title}:", "", "```json", json.dumps(vectors[name], indent=2), "```", ""]
    return "\n".join(parts)


def _read(name: str) -> Any:
    return json.loads((_VECTORS / f"{name}.json").read_text())

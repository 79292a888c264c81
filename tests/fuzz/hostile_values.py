"""What hostile input is made of: values of files and answers, and texts on which terminals and parsers stumble."""

from __future__ import annotations

import copy
import os
from typing import Any, Final

from hypothesis import settings
from hypothesis import strategies as st

#: How many times the usual number of examples: `make fuzz TIMES=100`.
TIMES: Final = int(os.environ.get("FUZZ_TIMES") or 1)


def examples(count: int) -> settings:
    """So many examples, or TIMES as many."""
    return settings(max_examples=count * TIMES)


#: Texts that parsers have stumbled over: empty, control characters, half a character, what looks like something else.
NASTY = (
    "", " ", "\x00", "\x1b[2J\x1b]0;owned\x07", "\r\n", "\u202e\u2066", "\u2028", "\ufeff", "0", "-1", "1e999", "NaN",
    "null", "~", "~nobody/x", "true", "../../etc/passwd", "%s%d{0}", "2030-02-30T00:00:00Z",
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59.999999-23:59", "9" * 99, "a" * 300, "é" * 64, "http://[", "https://user@host:99999/\n", "=",
)  # fmt: skip

texts = st.sampled_from(NASTY) | st.text(max_size=12)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=2**62, max_value=2**130)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
#: Anything that JSON can say.
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=12
)


@st.composite
def mutated(draw: st.DrawFn, well_formed: st.SearchStrategy[Any]) -> Any:
    """`well_formed` with up to three places, however deep, that hold anything, are gone, or are there twice."""
    # What strategies draw may be shared between examples: it is not ours to change.
    tree = copy.deepcopy(draw(well_formed))
    for _ in range(draw(st.integers(0, 3))):
        tree = _changed(draw, tree)
    return tree


def _changed(draw: st.DrawFn, tree: Any) -> Any:
    node, parent = tree, None
    place: Any = None
    while isinstance(node, dict | list) and node and (parent is None or draw(st.booleans())):
        parent, place = node, draw(st.sampled_from(list(node) if isinstance(node, dict) else range(len(node))))
        node = node[place]
    if parent is None:
        return draw(values)
    match draw(st.sampled_from(["anything", "gone", "more"])):
        case "anything":
            parent[place] = draw(values)
        case "gone":
            del parent[place]
        case _ if isinstance(parent, dict):
            parent[draw(texts)] = draw(values)
        case _:
            parent.append(copy.deepcopy(node))
    return tree

"""JSON that is nested deeper than msgspec goes, which whoever may create a custom resource can have in it.

The API server stores objects of up to ten thousand levels, and repeats them in
`managedFields`, so even their metadata is out of reach. What one of them holds is
cut then, so that the list or the watch that it is in is read all the same.
"""

from __future__ import annotations

import re
from typing import Final

#: Deeper levels of what is too deep are cut: enough for whatever describes anything, and less than any program's stack
#: leaves of Python's thousand.
DEPTH_MAX: Final = 200
#: What is there instead: a number that can be passed over, but not be read. So nobody takes it for what was there, and
#: who reads nothing of it has the object.
CUT: Final = b"1e9999999"
#: Why an object in which it is read does not fit.
TOO_DEEP: Final = f"it is nested deeper than {DEPTH_MAX} levels"

_SIGN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]')
_SIGN_OR_CUT: Final = re.compile(_SIGN.pattern + b"|" + CUT)


def is_cut(text: bytes) -> bool:
    """Whether something of it was cut; strings may hold whatever somebody has put there.

    >>> is_cut(b'{"a":' + CUT + b"}"), is_cut(b'{"a":"' + CUT + b'"}')
    (True, False)
    """
    return CUT in text and any(found[0] == CUT for found in _SIGN_OR_CUT.finditer(text))


def cut_nested(text: bytes) -> bytes:
    """`text` without what is nested too deep; as it is where nothing is.

    >>> cut_nested(b'{"a":' * 201 + b"1" + b"}" * 201) == b'{"a":' * 200 + CUT + b"}" * 200
    True
    """
    kept: list[bytes] = []
    depth = begins = 0
    for found in _SIGN.finditer(text):
        if found[0] in (b"{", b"["):
            depth += 1
            if depth == DEPTH_MAX + 1:
                kept += text[begins : found.start()], CUT
        elif found[0] in (b"}", b"]"):
            if depth == DEPTH_MAX + 1:
                begins = found.end()
            depth -= 1
    return b"".join((*kept, text[begins:])) if depth == 0 else text

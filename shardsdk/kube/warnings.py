"""What an API server says of a request that it carries out all the same: its `Warning` headers.

A field of a status that the schema does not have and that was dropped, an API version
that is to go, a finalizer without a domain.  Each is logged once for the kind of
request that it came with, because whoever writes a field in vain writes it each time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from shardsdk.kube.answers import Target
from shardsdk.logs import logger_of

log: Final = logger_of(__name__)

#: How many are remembered; then the oldest may be told again.
MAX_REMEMBERED: Final = 256
#: `299 - "unknown field \"status.ready\""`, and more of them behind commas.  Other codes are for proxies.
#: Source: RFC 9111, 5.5; kube-apiserver sends nothing else.
_WARNING: Final = re.compile(r'\b299 \S+ "((?:[^"\\]|\\.)*)"')


class Warnings:
    """Logs what comes with the answers of one client's requests."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str, str, str], None] = {}

    def tell(self, target: Target, headers: Iterable[str]) -> None:
        """Log what of `headers` is new."""
        for text in (re.sub(r"\\(.)", r"\1", each) for header in headers for each in _WARNING.findall(header)):
            # A field of each entry of a list, `spec.ranges[17].from`, is one field.
            kind = (target.verb, target.group, target.resource, re.sub(r"\[\d+\]", "[]", text))
            if not text or kind in self._told:
                continue
            if len(self._told) >= MAX_REMEMBERED:
                del self._told[next(iter(self._told))]
            self._told[kind] = None
            log.warning("The API server warns of a request", extra={"request": str(target), "warning": text})

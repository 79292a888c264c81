"""Faults of watches: what is believed of one that says nothing."""

from __future__ import annotations

from typing import Final

from tests.mutants.fault import Fault

WATCH_FAULTS: Final[dict[str, Fault]] = {
    "SILENT_WATCHES_ARE_BELIEVED": Fault(
        "a watch that was silent while a request had no answer begins anew once a later one has",
        "shardsdk.kube.openstreams",
        "loop.call_soon_threadsafe(each._end_silent, since)",
        "pass",
        ("tests/unit/shardsdk/kube/test_openstreams.py",),
    ),
    "LIVELY_WATCHES_BEGIN_ANEW": Fault(
        "a watch that has said something since a request without an answer was sent goes on",
        "shardsdk.kube.openstreams",
        "return self._limit is not None and self._heard_at < at and not self._limit.expired()",
        "return self._limit is not None and not self._limit.expired()",
        ("tests/unit/shardsdk/kube/test_openstreams.py",),
    ),
    "UNANSWERED_WATCHES_KEEP_THEIR_PLACE": Fault(
        "where lists are answered and watches are not, what is new is listed",
        "shardsdk.kube.listing",
        "            return not unheard",
        "            return True",
        ("tests/unit/shardsdk/kube/test_initialevents.py",),
    ),
}

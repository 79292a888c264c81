"""Faults of watches: what is believed of one that says nothing."""

from __future__ import annotations

from typing import Final

from tests.mutants.fault import Fault

ABSENT: Final = ("tests/unit/shardsdk/process/test_absent_types.py",)

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
    "ABSENT_TYPES_LEAVE_NO_TRACE": Fault(
        "an owner waits for the children that others have since their type was not served",
        "shardsdk.process.workload",
        "or_others=cache.absences > 0",
        "or_others=False",
        ABSENT,
    ),
    "WATCHES_ALONE_TELL_OF_ABSENCES": Fault(
        "what lists are told of a type that is not served counts though its watch goes on",
        "shardsdk.cache.cache",
        "            self.absences += 1  # a watch",
        "            pass  # a watch",
        ABSENT,
    ),
    "ONE_LIST_ENDS_THE_SEARCH": Fault(
        "until the sharder knows that a type is served again, owners come without their children",
        "shardsdk.reconcile.childlists",
        "(all_ours and served >= LEARNT_SECONDS)",
        "all_ours",
        ABSENT,
    ),
}

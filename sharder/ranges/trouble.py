"""What keeps the ranges of a ring from being assigned, or from being told of, once it has lasted: in words."""

from __future__ import annotations

from typing import Final

from sharder.core.lasting import Lasting
from sharder.ranges.store import allows_fewer
from shardsdk.errors import NotFound

#: For so long an API server that has just begun may not serve a type that is installed.
UNSERVED_SECONDS: Final = 5.0
_ASSIGNING: Final = "assigning"
_TELLING: Final = "telling"
_UNWRITTEN: Final = "the status of the RingAssignment cannot be written, and may say how they were before"


class Trouble:
    """Of one ring, as one leader's looks have ended."""

    def __init__(self) -> None:
        self._failing: Lasting[str, Exception] = Lasting()
        #: The same, of RingAssignments that this leader has never found served.
        self._unserved: Lasting[str, Exception] = Lasting()
        self._lasting: dict[str, Exception] = {}
        self._contested: str | None = None

    def look(
        self,
        error: Exception | None,
        untold: Exception | None,
        now: float,
        *,
        was_served: bool,
        contested: str | None = None,
    ) -> bool:
        """A look has failed with `error` at `now` (monotonic), or its report alone with `untold`; whether that is news.

        `was_served`: RingAssignments were there before.  `contested`: that somebody undoes what is written, in words.
        """
        found = {_ASSIGNING: error, _TELLING: untold}
        failing = {what: each for what, each in found.items() if each is not None}
        # Who makes the first ring by ranges may have forgotten the definition.
        unserved = {_ASSIGNING: error} if isinstance(error, NotFound) and not was_served else {}
        before, self._contested = self.words, contested
        self._lasting = self._failing.look(failing, now) | self._unserved.look(unserved, now, UNSERVED_SECONDS)
        return self.words != before

    @property
    def words(self) -> str | None:
        """What people are to know, with its remedy; `None`: nothing has failed for long."""
        error, untold = self._lasting.get(_ASSIGNING), self._lasting.get(_TELLING)
        if error is None and self._contested is not None:
            return self._contested
        if error is None:
            return None if untold is None else f"ranges are assigned, but {_UNWRITTEN}: {untold}"
        if isinstance(error, NotFound):
            # Also a definition that is there is gone for a while when somebody deletes it.
            return (
                "the API server does not serve RingAssignments; install them: `sharder crds --apply`, or the Helm chart"
            )
        if allows_fewer(error):
            return (
                "the definition of RingAssignments allows fewer ranges than are to be written; bring it up to date:"
                f" `sharder crds --apply`, or the Helm chart: {error}"
            )
        return f"ranges are not assigned: {error}"

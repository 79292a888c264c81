"""Rounds: an object that is reconciled over and over, for nothing but what its reconciles write.

A counter or the time of day in a status, or in a child: each write wakes the object, and its reconcile writes again.
Nothing of that is an error; what it costs is a core, and the API server's patience.

A round is a reconcile that was woken by nothing but what the one before it, of the same controller, has written, and
that has written itself.  Whatever else has a part in it (somebody else's change, a source, a delay that is over, an
error, a `Requeue`) begins the count anew, so that what waits for others, or goes on by steps of its own accord, is
never taken for it.  After `TOLD` rounds in a row there is a warning, which names the fields.

Costs: of each controller `FOLLOWED` objects are followed, those that have written and whose turn it is; of all others
nothing is known, and their events cost one look.

Does not see: two controllers that answer one another.  Where they apply the same fields, `shardsdk.reconcile.applied`
does.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final

from shardsdk.cache.objects import Request, metadata_of, request_of
from shardsdk.kube.clock import Clock
from shardsdk.kube.pace import AtMostEvery
from shardsdk.kube.reflector import Delta
from shardsdk.logs import logger_of
from shardsdk.protocol.objects import Resource
from shardsdk.reconcile.changed import changed_fields, is_told

log: Final = logger_of(__name__)

#: So many rounds in a row are told of; and ten times as many, and so on.
TOLD: Final = 50
#: Of one object this begins anew so often at most: a timer beside it ends its rounds each time.
TELL_SECONDS: Final = 600.0
#: So many objects of a controller are followed at once, each until it has not been reconciled for so long.
FOLLOWED: Final = 16
FOLLOWED_SECONDS: Final = 300.0
#: One of which more changes are heard during a reconcile is followed no longer.
HEARD: Final = 256


@dataclass(slots=True)
class _Followed:
    """An object that has written in its last reconcile.

    `written` are the versions of that one, and of the one before; `heard` the changes since it began, by version, and
    `about` which object has changed in each round.
    """

    at: float
    written: tuple[frozenset[str], frozenset[str]]
    began: bool = False
    rounds: int = 0
    heard: dict[str, tuple[Resource, Delta[Any]] | None] = field(default_factory=dict)
    about: set[tuple[str, Request]] | None = None


class Rounds:
    """The rounds of the objects of `controller`."""

    def __init__(self, controller: str, clock: Clock) -> None:
        self._controller = controller
        self._clock = clock
        self._followed: dict[Request, _Followed] = {}
        self._news = AtMostEvery(TELL_SECONDS)

    def heard(self, request: Request, resource: Resource | None = None, delta: Delta[Any] | None = None) -> None:
        """The object is woken by a change of an object of `resource`; by something else without."""
        followed = self._followed.get(request)
        if followed is None:
            return
        if resource is None or delta is None:
            followed.heard[""] = None
        elif len(followed.heard) >= HEARD:
            del self._followed[request]
        else:
            followed.heard[metadata_of(delta.object).resource_version] = resource, delta

    def begins(self, request: Request) -> None:
        """A reconcile of the object begins."""
        followed = self._followed.get(request)
        if followed is None:
            return
        heard, followed.heard, followed.at = followed.heard, {}, self._clock.monotonic()
        if not followed.began:  # some of it may have been heard before it was followed
            followed.began = True
            return
        own = followed.written[0] | followed.written[1]
        changes = [change for version, change in heard.items() if change is not None and version in own]
        about = {(str(resource.group_resource), request_of(delta.object)) for resource, delta in changes}
        followed.about = about if followed.about is None else followed.about & about
        if len(changes) < len(heard) or not followed.about:
            del self._followed[request]
            return
        followed.rounds += 1
        if is_told(followed.rounds, TOLD) and (followed.rounds > TOLD or self._news.passes(followed.at, request)):
            self._tell(request, followed.rounds, *changes[-1])

    def ended(self, request: Request, written: Collection[str]) -> None:
        """A reconcile of the object has ended, and has `written` these versions; none: or it is to begin anew."""
        if not written:
            self._followed.pop(request, None)
            return
        followed = self._followed.get(request)
        if followed is not None:
            followed.written = followed.written[1], frozenset(written)
        elif self._has_room():
            self._followed[request] = _Followed(self._clock.monotonic(), (frozenset(), frozenset(written)))

    def _has_room(self) -> bool:
        if len(self._followed) < FOLLOWED:
            return True
        oldest = min(self._followed, key=lambda each: self._followed[each].at)
        if self._clock.monotonic() - self._followed[oldest].at < FOLLOWED_SECONDS:
            return False
        del self._followed[oldest]
        return True

    def _tell(self, request: Request, rounds: int, resource: Resource, delta: Delta[Any]) -> None:
        changed = request_of(delta.object)
        log.warning(
            "Reconciles of an object wake one another: each is woken by nothing but what the one before has written",
            extra={
                "controller": self._controller,
                "namespace": request.namespace,
                "object": request.name,
                "rounds": rounds,
                "written": f"{resource.kind} {changed.name}",
                "fields": changed_fields(delta.old, delta.object),
            },
        )

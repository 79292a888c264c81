"""Families: a main object and what it controls are on one shard, so their handlers begin and end together.

A controlled object is never drained (docs/decisions/0004): it goes where its owner
goes.  So what is known of the owner decides for all of them:

    HERE      handlers of the family may begin
    DRAINED   none begins any more; the acknowledgement waits for those that run
              (if that takes long, children have turns: kopf_drains)
    AWAY      none begins: another shard's may
    GONE      deleted: its children are what is left, and no drain will ask for them
    UNKNOWN   a child came before its owner: wait for it, and ask the API server before long

Guarantees (tests/unit/shardsdk/contrib/test_kopf_families.py): what is older than what is
known changes nothing, whichever watch or list has brought it.

Does not guarantee anything about a child whose label is changed by hand while its owner stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final

from shardsdk.cache.identity import ShardIdentity, facts_of
from shardsdk.cache.objects import Request, metadata_of, owner_of, request_of
from shardsdk.errors import Forbidden, ShardingError
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock
from shardsdk.logs import logger_of
from shardsdk.protocol.objects import GroupResource, Resource
from shardsdk.protocol.verdict import Verdict, judge

log: Final = logger_of(__name__)

#: How long a child waits for news of its owner before the API server is asked, at first and at most; doubles.
ASK_SECONDS: Final = (1.0, 30.0)
#: So many owners are asked for at once: children may be listed long before all of their owners are.
CONCURRENT_QUESTIONS: Final = 8


class Whose(Enum):
    """Where the main object of a family is, as far as this shard knows."""

    UNKNOWN = "nothing was heard of it yet"
    HERE = "it is this shard's"
    DRAINED = "it is this shard's, and the sharder asks for it"
    AWAY = "it is another shard's, or nobody's"
    GONE = "it was deleted"


_WHOSE: Final = {Verdict.RECONCILE: Whose.HERE, Verdict.ACKNOWLEDGE: Whose.DRAINED, Verdict.IGNORE: Whose.AWAY}


@dataclass(eq=False, slots=True)
class Child:
    """A controlled object that this shard has seen."""

    resource: Resource
    request: Request
    #: Its daemons, or pauses before a retry, were ended for a drain: should it stay here, they are to begin again.
    stopped: bool = False
    #: One for each event of it that kopf processes: what ends kopf's pauses there.
    at_work: list[asyncio.Event] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Family:
    """One main object, and by their uids the objects that it controls."""

    main: Resource
    request: Request
    uid: str
    ask_at: float
    whose: Whose = Whose.UNKNOWN
    children: dict[str, Child] = field(default_factory=dict)
    #: The versions of its resource that have shown it, and not its end yet: they may still show what is old.
    shown_by: set[str] = field(default_factory=set)
    #: Its drain takes long: meanwhile its children may begin, as long as a handler runs.
    goes_on: bool = False
    #: The resourceVersion at which the main object was as `whose` says.
    _version: int = -1
    _pause: float = ASK_SECONDS[0]
    _news: asyncio.Event | None = None

    def hear(self, version: int, whose: Whose) -> bool:
        """Take note of how the main object was at a resourceVersion; False: that is out of date."""
        if self.whose is Whose.GONE and whose is not Whose.GONE:
            return False  # its uid is no object's any more; if a store that was set back has it again, a list says so
        if version < self._version:
            # Work on what is here is as right by an older event.
            return whose is Whose.HERE is self.whose
        self._settle(version, whose)
        return True

    def correct(self, seen: int, version: int, whose: Whose) -> None:
        """Take note of what a list says that was begun when `seen` was the newest version known.

        If that is newer than what the list has, then versions went back: etcd was restored (docs/decisions/0024).
        """
        if version >= self._version or seen == self._version:
            self._settle(version, whose)

    def _settle(self, version: int, whose: Whose) -> None:
        self._version = version
        if whose is not self.whose:
            self.whose, self._pause, self.goes_on = whose, ASK_SECONDS[0], False
            self._tell()

    def go_on(self) -> None:
        """Let its children begin while its drain waits."""
        self.goes_on = True
        self._tell()

    def hold_back(self) -> None:
        """Nothing of it begins any more."""
        self.goes_on = False

    def _tell(self) -> None:
        if self._news is not None:
            self._news.set()
            self._news = None

    def news(self) -> asyncio.Event:
        """What is set at the next change of `whose`, or when its children may go on."""
        if self._news is None:
            self._news = asyncio.Event()
        return self._news

    @property
    def ended(self) -> bool:
        """Whether nothing of it is here; a child that waits is here, so nothing is heard too late."""
        return not (self.children or self.shown_by)

    def postpone(self, now: float) -> None:
        """The API server is being asked; the next time after a longer pause."""
        self.ask_at, self._pause = now + self._pause, min(2 * self._pause, ASK_SECONDS[1])

    @property
    def asked(self) -> bool:
        """Whether the API server was asked since the last change of `whose`."""
        return self._pause > ASK_SECONDS[0]

    @property
    def version(self) -> int:
        """The resourceVersion of what is known; -1: nothing is."""
        return self._version


class Families:
    """The families of one shard, by the uids of their main objects.

    Whether objects of `main` have a namespace is believed the API server alone: else their children are not found.
    """

    def __init__(self, identity: ShardIdentity, api: Api, main: Collection[Resource], clock: Clock) -> None:
        self._identity = identity
        self._api = api
        self._main = {each.group_resource: each for each in main}
        #: Of which nobody has told yet whether they have a namespace; a type may be served long after a shard starts.
        self._unsure = set(self._main)
        self._told = asyncio.Event()
        #: One question for all that wait: children may come by the thousand before anything is known.
        self._looking: dict[GroupResource, asyncio.Task[bool]] = {}
        self._clock = clock
        self._asking = asyncio.Semaphore(CONCURRENT_QUESTIONS)
        #: By name as well: a child is believed what it says of its owner's uid in its own namespace alone.
        self._families: dict[tuple[GroupResource, Request, str], Family] = {}
        #: The family of each child, by its uid.
        self._of: dict[str, Family] = {}

    @property
    def count(self) -> int:
        """How many families are kept."""
        return len(self._families)

    def of_main(self, resource: Resource, body: Mapping[str, Any], *, left: bool = False) -> Family:
        """The family of a main object that an event shows, as an object of `resource` as it is served.

        `left`: it is not here any more, and what is told of it may be late.
        """
        name = resource.group_resource
        # A type may be made anew as another.
        if not left and (name in self._unsure or self._main[name].namespaced != resource.namespaced):
            self._note(resource)
        return self._get(resource, request_of(body), metadata_of(body).uid)

    def of_child(self, resource: Resource, body: Mapping[str, Any]) -> Family | None:
        """The family that a controlled object belongs to from now on; `None`: nothing of the ring controls it."""
        metadata = metadata_of(body)
        family, child = None, None
        for main in self._main.values():
            owner = owner_of(body, main)
            if owner is not None and metadata.controller is not None:
                family = self._get(main, owner, metadata.controller.uid)
        former = self._of.get(metadata.uid)
        if former is not None and former is not family:
            child = former.children.get(metadata.uid)
            self.leave(metadata.uid)
        if family is not None:
            self._of[metadata.uid] = family
            family.children.setdefault(metadata.uid, child or Child(resource, request_of(body)))
        return family

    async def learn(
        self, body: Mapping[str, Any], news: asyncio.Event | None, waits: Callable[[], Awaitable[None]]
    ) -> None:
        """Return once it is known whether the main object that controls an object has a namespace, or there are `news`.

        `waits` is called before that takes long.
        """
        unsure = (self._main[name] for name in self._unsure)
        found = next(((main, owner) for main in unsure if (owner := owner_of(body, main)) is not None), None)
        if found is None:
            return
        (main, owner), seconds = found, ASK_SECONDS[0]
        while main.group_resource in self._unsure and not (news is not None and news.is_set()):
            if await self._look_up_once(main, owner, news):
                return
            await waits()
            await any_of(self._told, news, seconds=seconds)
            seconds = min(2 * seconds, ASK_SECONDS[1])

    async def _look_up_once(self, main: Resource, owner: Request, news: asyncio.Event | None) -> bool:
        """The same as `_look_up`, with all who ask meanwhile; what hangs is waited for until anybody tells."""
        name = main.group_resource
        looking = self._looking.get(name)
        if looking is None:
            looking = self._looking[name] = asyncio.create_task(self._look_up(main, owner))
            looking.add_done_callback(lambda _: self._looking.pop(name))
        told = asyncio.create_task(any_of(self._told, news))
        try:
            # Whoever asked first may be cancelled; this leaves the question alone.
            await asyncio.wait([looking, told], return_when=asyncio.FIRST_COMPLETED)
        finally:
            told.cancel()
        return looking.result() if looking.done() else name not in self._unsure

    async def _look_up(self, main: Resource, owner: Request) -> bool:
        """Whether it is known by now how `main` is served: where that must not be asked, it is as it was said to be."""
        try:
            served, why = await self._api.discover(main.group, main.plural), "its type is not served"
        except Forbidden:
            served, why = main, ""
        except ShardingError as error:
            served, why = None, str(error)
        if main.group_resource not in self._unsure:
            return True  # an event has told meanwhile: an answer, or what was declared, may be out of date
        if served is not None:
            self._note(served)
        else:
            where = facts_of(self._identity, main, owner)
            log.warning("Could not find out where an owner is; its children wait: %s", why, extra=where)
        return served is not None

    def _note(self, served: Resource) -> None:
        name = served.group_resource
        self._main[name] = replace(self._main[name], namespaced=served.namespaced)
        self._unsure.discard(name)
        self._told.set()
        self._told = asyncio.Event()

    def leave(self, uid: str) -> None:
        """A controlled object is not here any more."""
        family = self._of.pop(uid, None)
        if family is not None:
            del family.children[uid]
            self.tidy(family)

    def tidy(self, family: Family) -> None:
        """Forget a family of which nothing is left here."""
        if family.ended:
            self._families.pop((family.main.group_resource, family.request, family.uid), None)

    def judge(self, labels: Mapping[str, str] | None) -> Whose:
        """Where a main object is, by its labels."""
        return _WHOSE[judge(labels, self._identity.ring, self._identity.shard)]

    async def wait(self, family: Family, news: asyncio.Event | None) -> None:
        """Return when more is known of the main object, or `news` are there; now and then the API server is asked."""
        now = self._clock.monotonic()
        if now >= family.ask_at:
            whose = family.whose
            family.postpone(now)
            async with self._asking:
                if family.whose is whose:
                    await self.ask(family)
            return
        await any_of(family.news(), news, seconds=family.ask_at - now)

    async def find(self, family: Family, news: asyncio.Event | None) -> bool:
        """Wait until the API server, or an event, has said where the main object is; False: there are `news`."""
        family.ask_at = min(family.ask_at, self._clock.monotonic())
        while family.whose is Whose.UNKNOWN:
            if news is not None and news.is_set():
                return False
            await self.wait(family, news)
        return True

    async def ask(self, family: Family) -> None:
        """Find out where the main object is by a consistent list; if that fails, it is logged, and nothing changes."""
        seen = family.version
        try:
            found = await self._api.find(family.main, family.request.name, family.request.namespace or None)
        except ShardingError as error:
            where = facts_of(self._identity, family.main, family.request)
            log.warning("Could not find out where an owner is; its children wait: %s", error, extra=where)
            return
        if found is None or found.metadata.uid != family.uid:
            family.hear(family.version, Whose.GONE)
        else:
            family.correct(seen, int(found.metadata.resource_version), self.judge(found.metadata.labels))

    def _get(self, main: Resource, request: Request, uid: str) -> Family:
        who = main.group_resource, request, uid
        family = self._families.get(who)
        if family is None:
            ask_at = self._clock.monotonic() + ASK_SECONDS[0]
            family = self._families[who] = Family(main, request, uid, ask_at)
        return family


async def any_of(*events: asyncio.Event | None, seconds: float | None = None) -> None:
    """Return when one of `events` is set, or after `seconds`."""
    waits = [asyncio.create_task(event.wait()) for event in events if event is not None]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waits:
            task.cancel()

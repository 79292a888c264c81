"""Faults planted into the sharder's half of the protocol of ranges, and into what it tells people of them."""

from __future__ import annotations

from typing import Final

from tests.mutants.fault import Fault

#: Tests that look for a fault, by what they are about.
STEPS: Final = ("tests/properties/test_ranges_steps.py", "tests/unit/sharder/ranges/test_assignment.py")
TOLD: Final = ("tests/unit/sharder/core/test_rangestatus.py", "tests/unit/sharder/ranges/test_assignment.py")
HOMES: Final = ("tests/unit/sharder/ranges/test_homes.py", "tests/unit/sharder/ranges/test_homes_lost.py")
TRANSIT: Final = ("tests/properties/test_ranges_transit.py", "tests/unit/sharder/ranges/test_transit.py")
CANDIDATES: Final = ("tests/unit/sharder/ranges/test_candidates.py",)
SHARE: Final = ("tests/unit/shardsdk/process/test_share.py",)
PRESUMED: Final = ("tests/unit/sharder/ranges/test_presumed.py",)
PLUGIN: Final = ("tests/unit/sharder/kubectl/test_ranges.py",)

RANGES_FAULTS: Final[dict[str, Fault]] = {
    "GRANT_WHAT_IS_HELD": Fault(
        "a range is granted only when no other shard's lease holds it",
        "sharder.core.ranges",
        "claims.without_others(shard, target & free)",
        "(target & free)",
        STEPS,
    ),
    "GRANT_IN_ONE_WRITE": Fault(
        "a range is nobody's in one version before it is another shard's",
        "sharder.core.ranges",
        "free = named.nobodys",
        "free = named.nobodys | revoked(named, wanted)",
        STEPS,
    ),
    "REBUILD_WHAT_TWO_CLAIM": Fault(
        "what two shards claim to hold is nobody's in an assignment that is rebuilt",
        "sharder.core.ranges",
        "alone = (claims if shard in presumed else said).without_others(shard, ranges)",
        "alone = ranges",
        STEPS,
    ),
    "A_FREE_LEASE_HOLDS_NOTHING_YET": Fault(
        "a shard whose lease vanished may be working until it would have run out",
        "sharder.ranges.assignment",
        "for shard in names - held.keys() if self._takeover.may_hold(shard)}",
        "for shard in names - held.keys() if False}",
        STEPS,
    ),
    "HOLDINGS_FROM_A_CACHE": Fault(
        "what leases hold is read after the assignment, and not from a cache",
        "sharder.ranges.assignment",
        "leases = [each async for page in self._lead.api.pages(LEASES, selector=ours, model=Lease) for each in page]",
        "leases = [each.lease for each in self._cache.get(self._name).leases.values()]",
        PRESUMED,
    ),
    "DELETED_HOLDS_NOTHING": Fault(
        "a lease that was deleted counts as holding anything, also before a watch has told that it is gone",
        "sharder.ranges.assignment",
        "        presumed |= {shard for _, shard in late} - held.keys()\n",
        "",
        PRESUMED,
    ),
    "TWINS_SHARE_RANGES": Fault(
        "a shard takes only what names it in its Lease's namespace",
        "shardsdk.protocol.ranges",
        " and (reader is None or each.shard != reader[0] or each.namespace in where):",
        ":",
        HOMES,
    ),
    "TWINS_SHARE_WHAT_SAYS_NO_NAMESPACE": Fault(
        "a range without a namespace names a shard only where no range has one",
        "shardsdk.protocol.ranges",
        """(reader[1],) if any(each.namespace for each in spec.ranges) else ("", reader[1])""",
        """("", reader[1])""",
        HOMES,
    ),
    "FORGET_WHERE_A_NAME_WAS_BOUND": Fault(
        "a name stays bound to where it was, though the assignment says so no longer",
        "sharder.ranges.homes",
        'last = before.get(shard, "") if shard in remembered else ""',
        'last = ""',
        HOMES,
    ),
    "BIND_WHOSE_NAME_NOBODY_CAN_TELL": Fault(
        "a name that is named and bound nowhere is nobody's until whoever had it can work no longer",
        "sharder.ranges.homes",
        "for shard, homes in said.items() if first or any(homes)}",
        "for shard, homes in said.items() if False}",
        HOMES,
    ),
    "NAME_WHICHEVER_OF_TWO": Fault(
        "a name stays bound to a namespace while a shard of it may be working there",
        "sharder.core.ranges",
        "(before in now or not now or shard in lasting)",
        "(before in now or not now)",
        HOMES,
    ),
    "NAME_BOTH_OF_TWO": Fault(
        "a name that is held in two namespaces and bound to none is named for nothing",
        "sharder.ranges.homes",
        "return frozenset(self._there.keys() - self.of.keys())",
        "return frozenset()",
        HOMES,
    ),
    "FORGET_WHO_ENDS_WORK": Fault(
        "whoever a range was taken from is waited for though its lease is gone",
        "sharder.ranges.homes",
        "(shard in bound if shard in names else shard not in named)",
        "shard in bound and shard in names",
        TRANSIT[1:],
    ),
    "TAKE_A_NAMESAKES_LEASE_FOR_ITS_OWN": Fault(
        "a shard whose lease is gone is waited for though another of its name has given one back elsewhere",
        "sharder.ranges.homes",
        "for key in looked_for - there}",
        "for key in looked_for if key[0] not in {name for name, _ in there}}",
        HOMES,
    ),
    "SAY_WHOSE_IT_WAS_ONCE": Fault(
        "whose a range was is said until its lease shows that it has let go",
        "sharder.core.transit",
        " | (said.taken.get(shard, NOWHERE) & held.get(shard, NOWHERE)))",
        ")",
        TRANSIT,
    ),
    "PLAN_ANEW_HALFWAY": Fault(
        "a leader that has just come sends ranges on where the last one has begun to",
        "sharder.ranges.assignment",
        "else read.transit.arrived(named)",
        "else named",
        TRANSIT[1:],
    ),
    "TAKE_RANGES_FROM_THE_UNCERTAIN": Fault(
        "a shard that is gone keeps its ranges until its lease is the sharder's",
        "sharder.ranges.assignment",
        "return shard not in membership.available and self._takeover.fence_for(shard) is None",
        "return False",
        STEPS,
    ),
    "MOVE_WHILE_ONE_IS_AWAY": Fault(
        "nothing moves between others while one is away that keeps what it has",
        "sharder.ranges.assignment",
        "keep=stays.keys(), short=short)",
        "keep=(), short=short)",
        STEPS,
    ),
    "WRITE_ANY_VERSION_OF_RANGES": Fault(
        "an assignment is written against the version that was read",
        "sharder.ranges.store",
        'body = {"metadata": {"resourceVersion": read.version}, "spec": spec}',
        'body = {"spec": spec}',
        STEPS,
    ),
    "NONSENSE_NAMES_NOBODY": Fault(
        "an assignment that makes no sense is rebuilt from what shards hold",
        "sharder.ranges.store",
        "return Read(version, None, str(error), manager=manager)",
        "return Read(version, Named(by, {}), str(error))",
        STEPS,
    ),
    "EVEN_OUT_FOR_EVER": Fault(
        "for evenness alone ranges move a few times, and then not for a while",
        "sharder.ranges.weights",
        "self._spent.append(self._clock.monotonic())",
        "pass",
        STEPS[1:],
    ),
    "BELIEVE_WHO_HOLDS_NOTHING": Fault(
        "a count of objects is believed of the shard that holds their namespace",
        "sharder.ranges.weights",
        "for point, weight in counts.items() if point in held)",
        "for point, weight in counts.items())",
        ("tests/unit/sharder/ranges/test_weights.py",),
    ),
    "NAME_WHO_KNOWS_LABELS_ALONE": Fault(
        "a shard whose lease says nothing of ranges is named for none",
        "sharder.ranges.candidates",
        "return self._overdue | self.idle | frozenset(name for name in self._silent_until if name not in self._named)",
        "return frozenset()",
        CANDIDATES,
    ),
    "TAKE_FROM_WHO_IS_SILENT_AT_ONCE": Fault(
        "who is named and says nothing of ranges any more keeps them for one duration of its lease",
        "sharder.ranges.candidates",
        "return self._overdue | self.idle | frozenset(name for name in self._silent_until if name not in self._named)",
        "return frozenset(self._silent_until)",
        CANDIDATES,
    ),
    "NAME_WHO_TAKES_NOTHING": Fault(
        "a shard that holds nothing of what is free for it is named for nothing after a while",
        "sharder.ranges.candidates",
        "return frozenset(name for name, (_, until) in self._idle_until.items() if now >= until)",
        "return frozenset()",
        CANDIDATES,
    ),
    "NAME_WHO_TAKES_NOTHING_AGAIN": Fault(
        "and not again until it holds something, or another process has its lease",
        "sharder.ranges.candidates",
        "if known == who and now >= until:",
        "if False:",
        CANDIDATES,
    ),
    "JUDGE_WHOEVER_HAS_THE_NAME": Fault(
        "of two of a name the one that is named is judged by what it takes",
        "sharder.ranges.candidates",
        "bound = [each for each in leases if homes.get(each.metadata.name) == each.metadata.namespace]",
        "bound = leases",
        CANDIDATES,
    ),
    "NAME_NOBODY_WHERE_NONE_TOOK_ANYTHING": Fault(
        "where no shard is left that takes what it is named for, those are named that did not",
        "sharder.ranges.assignment",
        "or there & self._candidates.idle",
        "or frozenset()",
        CANDIDATES,
    ),
    "BEGIN_BY_WHAT_AN_OLDER_SHARDER_WRITES": Fault(
        "a shard that has read that its name is another's takes nothing where namespaces are not said any more",
        "shardsdk.ranges.holder",
        "elif self._other_named and shard in named.shards:",
        "elif False:",
        HOMES,
    ),
    "COUNT_A_GRACE_AS_SILENCE": Fault(
        "a process has its own time to say what its lease holds, also after a grace in which nobody could",
        "sharder.ranges.candidates",
        "(lease.metadata.name, lease.instance)\n",
        "(lease.metadata.name, None)\n",
        CANDIDATES,
    ),
    "INHERIT_WHAT_IS_HELD": Fault(
        "what a lease says that its shard holds is true of the process alone that wrote it with this renewTime",
        "shardsdk.protocol.leases",
        "return None if said is None or not (said[1] is None or self._written_at(said[1])) else said[0]",
        "return None if said is None else said[0]",
        ("tests/unit/shardsdk/protocol/test_ranges.py", *CANDIDATES),
    ),
    "TAKE_WHAT_WAS_LEFT_AT_ONCE": Fault(
        "where a process may be at work whose lease another of its name renews nobody works for one duration of it",
        "shardsdk.ranges.parts",
        "return named.of(shard) - left - ",
        "return named.of(shard) - ",
        ("tests/unit/shardsdk/ranges/test_holder.py",),
    ),
    "GRANT_WHAT_WAS_LEFT_AT_ONCE": Fault(
        "what such a process may be working on is granted to nobody for as long",
        "sharder.ranges.candidates",
        "last |= lease.left_ranges",
        "pass",
        CANDIDATES,
    ),
    "FORGET_SINCE_WHEN": Fault(
        "a range is on its way since the first part of it was",
        "sharder.core.rangestatus",
        "min((each.since for each in _meeting(known, span[0], span[1])), default=now)",
        "now",
        TOLD,
    ),
    "COUNT_BY_WHO_IS_NAMED": Fault(
        "an object is counted for the shard whose lease holds its range",
        "sharder.kubectl.ranges",
        "if place.holder is not None:\n            tally",
        "if place.named is not None:\n            tally",
        PLUGIN,
    ),
    "GIVE_AWAY_WHAT_A_LOOP_WORKS_ON": Fault(
        "a loop of one's own keeps a range until what it has begun there has ended",
        "shardsdk.process.share",
        "        await self._no_block_in(lambda point: point in ranges)\n",
        "",
        SHARE,
    ),
    "BEGIN_WITHOUT_A_LEASE": Fault(
        "and begins nothing once the lease has run out, whether or not the event loop has noticed",
        "shardsdk.process.share",
        " and self._lease.fence.remaining() > 0",
        "",
        SHARE,
    ),
    "GIVE_AWAY_WHAT_A_LOOP_IS_WRITING": Fault(
        "and until its writes have",
        "shardsdk.process.share",
        "        await self._lease.writes_settled()\n",
        "",
        SHARE,
    ),
    "LEAVE_WORK_BEHIND": Fault(
        "a loop's lease is kept until what it has begun has ended",
        "shardsdk.process.share",
        "await self._no_block_in(lambda point: True)",
        "pass",
        SHARE,
    ),
    "COVER_WHAT_WAS_ASKED": Fault(
        "a shard works in the namespaces that its ring covered when it was asked, or ends",
        "shardsdk.process.ringcheck",
        "self._covered = covered\n        self._missing",
        "self._covered = None\n        self._missing",
        SHARE,
    ),
    "BELIEVE_A_SERVER_THAT_STARTS": Fault(
        "what an API server refuses that is not ready is asked again",
        "shardsdk.lease.ring",
        "if self._ready or self._clock.monotonic() >= self._began + STARTING_SECONDS:",
        "if True:",
        ("tests/unit/shardsdk/lease/test_ring.py",),
    ),
    "KEEP_WHAT_HAS_ENDED": Fault(
        "a range is given away as soon as what ran there has ended",
        "shardsdk.ranges.holder",
        "await self._ended(ranges)\n",
        "await self._ended(ranges)\n        await self._clock.sleep(25.0)\n",
        ranges=True,
    ),
}

"""Faults planted into shardsdk, one for each rule that a shard follows."""

from __future__ import annotations

from typing import Final

from tests.mutants.fault import Fault

#: Tests that look for a fault, by what they are about.
FENCING: Final = ("tests/unit/shardsdk/kube/test_fencing.py", "tests/unit/shardsdk/kube/test_confirmations.py")
BARRIER: Final = ("tests/unit/shardsdk/reconcile/test_barrier.py",)
DRAINS: Final = ("tests/unit/shardsdk/reconcile/test_drains.py",)
OWN: Final = ("tests/unit/shardsdk/reconcile/test_ownapi.py",)
LAPSES: Final = ("tests/unit/shardsdk/kube/test_lapses.py",)
ENDS: Final = ("tests/unit/shardsdk/reconcile/test_ends.py",)
RANGES: Final = ("tests/unit/shardsdk/ranges/test_holder.py", "tests/unit/shardsdk/ranges/test_parts.py")
THREADS: Final = ("tests/unit/shardsdk/reconcile/test_threads.py",)
STOPPING: Final = ("tests/unit/shardsdk/process/test_manager_stopping.py",)

SHARD_FAULTS: Final[dict[str, Fault]] = {
    "CANCELLED_TWICE_HAS_ENDED": Fault(
        "a plain function's object is busy until the function returns, however often it is cancelled",
        "shardsdk.lease.threads",
        "while not future.done():",
        "if not future.done():",
        THREADS,
    ),
    # -- ranges of hashes ------------------------------------------------------
    "GIVE_A_RANGE_AWAY_BUSY": Fault(
        "a range stays on the lease until what runs there has ended",
        "shardsdk.ranges.holder",
        "        await self._ended(ranges)\n",
        "",
        RANGES,
    ),
    "TAKE_A_RANGE_UNFLAGGED": Fault(
        "whoever looks has said before that it holds the range",
        "shardsdk.ranges.parts",
        "(Part.OTHERS, Heard.NAMED): Step(Part.FLAGGING,",
        "(Part.OTHERS, Heard.NAMED): Step(Part.FLAGGED,",
        RANGES,
    ),
    "TAKE_A_RANGE_UNSEEN": Fault(
        "a shard takes a range only after it has looked whether another holds it",
        "shardsdk.ranges.parts",
        "(Part.FLAGGED, Heard.LOOKED): Step(Part.LOOKING,",
        "(Part.FLAGGED, Heard.LOOKED): Step(Part.WORKING,",
        RANGES,
    ),
    "A_FAILED_LOOK_CONFIRMS": Fault(
        "a look that failed has found nothing free",
        "shardsdk.ranges.holder",
        "            free = NOWHERE\n",
        "            free = asked\n",
        RANGES,
    ),
    "SAY_NOTHING_OF_WHAT_ENDS": Fault(
        "the lease says what may still be worked on",
        "shardsdk.ranges.parts",
        "Part.LOOKING, Part.WORKING, Part.ENDING})",
        "Part.LOOKING, Part.WORKING})",
        RANGES,
    ),
    "LOOK_AT_LEASES_FIRST": Fault(
        "a look reads the assignment, and the leases after it",
        "shardsdk.ranges.look",
        """    named = await read_named(api, ring, by, (shard, namespace) if namespace else None)
    leases: list[Lease] = []
    ours = Selector(equals(LEASE_RING_LABEL, ring))
    async for page in api.pages(LEASES, namespace, selector=ours, model=Lease, metadata_only=False):
        leases += page
""",
        """    leases: list[Lease] = []
    ours = Selector(equals(LEASE_RING_LABEL, ring))
    async for page in api.pages(LEASES, namespace, selector=ours, model=Lease, metadata_only=False):
        leases += page
    named = await read_named(api, ring, by, (shard, namespace) if namespace else None)
""",
        ("tests/unit/shardsdk/ranges/test_look.py",),
    ),
    "SETTLED_BEFORE_ITS_RECONCILES": Fault(
        "what runs in a range has ended when the writes can no longer be executed that its reconciles have sent",
        "shardsdk.reconcile.ending",
        "(_idle(resource, request, clock))\n    await api.writes_settled()",
        "(_idle(resource, request, clock))\n        await api.writes_settled()",
        ENDS,
    ),
    "LEFT_IS_DELETED": Fault(
        "what leaves a cache with its range has not ended, and may come back as it was",
        "shardsdk.cache.cache",
        "        if self._dropping:\n",
        "        if False:\n",
        ("tests/unit/shardsdk/cache/test_cache_ranges.py", "tests/unit/shardsdk/process/test_manager_ranges.py"),
    ),
    # -- writes ----------------------------------------------------------------
    "ASK_THE_FENCE_ONCE": Fault(
        "the fence is asked again as the bytes go",
        "shardsdk.kube.fencing",
        "            left = self.remaining()\n            if self._fences",
        "            left = self._granted\n            if self._fences",
        FENCING,
    ),
    "GRANT_THE_WHOLE_HOLD": Fault(
        "a fenced write is granted less time than the hold lasts",
        "shardsdk.kube.fencing",
        "self._granted = granted_of(remaining) if self._fences else remaining",
        "self._granted = remaining + 5.0",
        FENCING,
    ),
    "ERRORS_ARE_ANSWERS": Fault(
        "a write that was answered with a 5xx may still be executed",
        "shardsdk.kube.sessions",
        "if guard is not None and not may_be_executed(error):",
        "if guard is not None:",
        FENCING,
    ),
    "RENEWED_BEFORE_A_STOP": Fault(
        "a renewal confirms nothing that this machine has missed since it was sent",
        "shardsdk.lease.tenure",
        "self.hold.extend(deadlines.hold_ends_at, sent.missed)",
        "self.hold.extend(deadlines.hold_ends_at)",
        LAPSES,
    ),
    "AN_IDLE_CONNECTION_TELLS_ALL": Fault(
        "a hold is shorter by the most that may have been missed",
        "shardsdk.kube.lapses",
        "self.seconds += max(seconds, most)",
        "self.seconds += seconds",
        LAPSES,
    ),
    "NO_DATE_TELLS": Fault(
        "an answer after a stop of the machine shows it",
        "shardsdk.kube.lapses",
        "now, missed = self._compare(before, now, stranger=known is None)",
        "missed = NOTHING",
        focus={"stop_shards_machine": 20.0},
    ),
    "BLIND_ONCE_CONFUSED": Fault(
        "a connection whose clocks have agreed again is believed",
        "shardsdk.kube.lapses",
        "if not stranger and now.at < before.unsteady_until:",
        "if not stranger:",
        LAPSES,
    ),
    "A_STOP_COUNTS_TWICE": Fault(
        "a stop that two clients find at once counts once",
        "shardsdk.kube.lapses",
        "        with lapses.comparing:\n",
        "        if True:\n",
        LAPSES,
    ),
    "A_LOST_HOLD_MISSES_NOTHING": Fault(
        "work under a lost lease has none of the time to end that this machine has missed",
        "shardsdk.lease.hold",
        "return self._left(counts_missed=self._lost or self._closed)",
        "return self._left(counts_missed=False)",
        ("tests/unit/shardsdk/lease/test_hold.py",),
    ),
    # -- the shard and its objects -------------------------------------------
    "RECONCILE_WHILE_DRAINING": Fault(
        "a shard reconciles an object only while no drain label is on it",
        "shardsdk.protocol.verdict",
        "return Verdict.ACKNOWLEDGE if ring.drain in labels else Verdict.RECONCILE",
        "return Verdict.RECONCILE",
        ("tests/unit/shardsdk/protocol/test_verdict.py",),
    ),
    "RECONCILE_WHAT_IS_ANOTHERS": Fault(
        "a shard reconciles only what names it",
        "shardsdk.protocol.verdict",
        "if not labels or not shard or labels.get(ring.shard) != shard:",
        "if not labels or not shard or ring.shard not in labels:",
        ("tests/unit/shardsdk/protocol/test_verdict.py",),
    ),
    "KEEP_WHAT_WAS_GIVEN_AWAY": Fault(
        "an object that left a shard's selection is forgotten there",
        "shardsdk.kube.mirror",
        "gone = event.kind is WatchKind.DELETED or (",
        "gone = False or (",
        ("tests/unit/shardsdk/kube/test_reflector.py", "tests/properties/test_reflector.py"),
    ),
    "ACKNOWLEDGE_UNSETTLED": Fault(
        "a drain is acknowledged only when the shard's own writes are answered or dead",
        "shardsdk.reconcile.drains",
        "        if not state.settled:\n",
        "        if False:\n",
        DRAINS,
    ),
    "ACKNOWLEDGE_ANY_VERSION": Fault(
        "an acknowledgement carries the version that was seen",
        "shardsdk.protocol.verdict",
        '"resourceVersion": resource_version, ',
        "",
        DRAINS,
    ),
    "ACKNOWLEDGE_A_NEWER_OBJECT": Fault(
        "a drain that came again while writes were settling is settled anew",
        "shardsdk.reconcile.drains",
        "self._settled(request, state, begun)",
        "self._settled(request, self._states.get(request, state), begun)",
        DRAINS,
    ),
    "ACKNOWLEDGED_FOR_EVER": Fault(
        "a drain label that comes back is acknowledged, also where no watch has shown that it was gone",
        "shardsdk.reconcile.drains",
        "if state.drain is Drain.ACKNOWLEDGED and state.version == version:",
        "if state.drain is Drain.ACKNOWLEDGED:",
        ("tests/unit/shardsdk/reconcile/test_waiting_drains.py",),
    ),
    "EARLY_DRAINS_COUNT": Fault(
        "what is drained is reconciled while it cannot be given away for what a dead process had sent",
        "shardsdk.reconcile.drains",
        "if not self._early or verdict is not Verdict.ACKNOWLEDGE:",
        "if True:",
        ("tests/unit/shardsdk/reconcile/test_early_drains.py",),
    ),
    "FOUND_DRAINED_IS_RECONCILED": Fault(
        "what is found drained rests: the dead process may have given it away at just that version",
        "shardsdk.reconcile.drains",
        "return verdict if found else Verdict.RECONCILE",
        "return Verdict.RECONCILE",
        ("tests/unit/shardsdk/reconcile/test_early_drains.py",),
    ),
    "FOUND_BY_THE_FIRST_LIST_ALONE": Fault(
        "what any list shows drained rests: its first version of it may be older than what a dead process had seen",
        "shardsdk.reconcile.drains",
        "if self._early and delta.initial and not gone",
        "if self._early and delta.initial and delta.old is None and not gone",
        ("tests/unit/shardsdk/reconcile/test_early_drains.py",),
    ),
    "NOBODY_HEARS_THAT_DRAINS_COUNT": Fault(
        "all who listen hear of a drain once it counts: what is known of its children ends",
        "shardsdk.reconcile.drains",
        "self._cache.tell_again(request)",
        "self._look_at(request, self._cache.peek(request), gone=False)",
        ("tests/unit/shardsdk/reconcile/test_early_drains.py",),
    ),
    "IDLE_BY_THE_FIRST": Fault(
        "an object is busy until the last of its reconciles has ended",
        "shardsdk.reconcile.inflight",
        "            if not uids:\n                del self._running[request]\n",
        "            if True:\n                self._running.pop(request, None)\n",
        DRAINS,
    ),
    "BARRIER_REMEMBERS": Fault(
        "an owner that left and comes back waits for its children again",
        "shardsdk.reconcile.state",
        '(Children.KNOWN, ChildEvent.LEFT): Step(Children.UNKNOWN, "others may make',
        '(Children.KNOWN, ChildEvent.LEFT): Step(Children.KNOWN, "others may make',
        BARRIER,
    ),
    "BARRIER_LISTS_ONLY": Fault(
        "an owner passes once the cache shows what the list showed",
        "shardsdk.reconcile.barrier",
        "if not cache.has_seen(found.child, found.version):",
        "if False:",
        BARRIER,
    ),
    "BARRIER_WITHOUT_SETTLING": Fault(
        "after a write in doubt the list begins when that can no longer be executed",
        "shardsdk.reconcile.barrier",
        "                    await self._settle()",
        "                    pass",
        BARRIER,
    ),
    "BARRIER_TAKES_AN_OLD_LIST": Fault(
        "an owner that left and came back waits for a list that begins after that",
        "shardsdk.reconcile.barrier",
        "if state and state.arrival is arrival}",
        "if state and state.arrival}",
        BARRIER,
    ),
    "BARRIER_LOSES_THE_LABELLED": Fault(
        "a child that is labelled meanwhile is found in one of two lists",
        "shardsdk.reconcile.barrier",
        "                listed += await self._list_unassigned(cache, owners, since)\n"
        "                listed += await _list_children(cache, owners, self._main)\n",
        "                listed += await _list_children(cache, owners, self._main)\n"
        "                listed += await self._list_unassigned(cache, owners, since)\n",
        BARRIER,
    ),
    "EXPECT_WHAT_WAS_SEEN": Fault(
        "what a cache has shown already is not waited for",
        "shardsdk.reconcile.expectations",
        "        if cache.has_seen(request, version):\n            return  # the news",
        "        if False:\n            return  # the news",
        ("tests/unit/shardsdk/reconcile/test_expectations.py",),
    ),
    "NO_EXPECTATIONS": Fault(
        "an object is not reconciled again before the cache shows what was written",
        "shardsdk.reconcile.expectations",
        "return state is not None and state.writes is not Writes.SHOWN",
        "return False",
        ("tests/unit/shardsdk/reconcile/test_expectations.py",),
    ),
    "CHILDREN_WITHOUT_LABEL": Fault(
        "a shard labels the children that it creates",
        "shardsdk.reconcile.ownapi",
        "        if not self._labels:\n",
        "        if True:\n",
        OWN,
    ),
    "MAIN_WRITTEN_BLINDLY": Fault(
        "writes on main objects carry their version",
        "shardsdk.reconcile.ownapi",
        '"resourceVersion": metadata.get("resourceVersion") or self._version}',
        '"resourceVersion": metadata.get("resourceVersion")}',
        OWN,
    ),
    "JOIN_A_PASS_UNDER_WAY": Fault(
        "an object is given away once writes were settled that began before it was to be",
        "shardsdk.reconcile.settling",
        "joined, self._joined = self._joined, []",
        "joined = self._joined",
        ("tests/unit/shardsdk/reconcile/test_settling.py",),
    ),
    "RECONCILES_NEVER_END": Fault(
        "what a reconcile has left behind writes no more",
        "shardsdk.reconcile.ownapi",
        "        if self._ended:\n",
        "        if False:\n",
        ENDS,
        {"add_shard": 20.0, "drain_by_hand": 20.0},
    ),
    "ENDS_BEFORE_ITS_WRITES": Fault(
        "an object is busy until the writes of its reconcile that are under way have ended",
        "shardsdk.reconcile.ownapi",
        "        while self._under_way:\n",
        "        while False:\n",
        ENDS,
    ),
    "OWNER_PASSES_TWICE": Fault(
        "an owner that is given back to a shard waits for its children again",
        "shardsdk.reconcile.handlers",
        "            self._barrier.left(request)\n            return\n        priority",
        "            return\n        priority",
        ("tests/unit/shardsdk/reconcile/test_barrier.py", "tests/unit/shardsdk/reconcile/test_drains.py"),
        {"add_shard": 20.0, "drain_by_hand": 20.0},
    ),
    # -- leaving ---------------------------------------------------------------
    "LEAVE_WITHOUT_WHAT_RUNS": Fault(
        "a shard that is about to leave gives away nothing that a reconcile works on",
        "shardsdk.process.workload",
        "            await controller.stop()\n",
        "            await controller.stop()\n"
        "        for resource in self._resources.values():\n"
        "            resource.inflight.busy = lambda request: False\n",
        STOPPING,
        {"stop_shard": 20.0},
    ),
    "LEAVE_UNTOLD": Fault(
        "a shard whose reconciles go on says that it is about to leave",
        "shardsdk.process.workload",
        "            self._lease.tell_leaving()\n",
        "            pass\n",
        STOPPING,
    ),
    "LEAVE_UNTOLD_AMID_TASKS": Fault(
        "a shard whose task goes on in its grace says that it is about to leave",
        "shardsdk.process.workload",
        "(self._lasting or any(",
        "(any(",
        STOPPING,
    ),
    "START_ANEW_FOR_A_CRASH": Fault(
        "a process that its ring's edit ends, to start anew, has not failed",
        "shardsdk.process.workload",
        "not isinstance(error, RingChanged)",
        "True",
        ("tests/unit/shardsdk/process/test_manager_ranges.py",),
    ),
    "LEAVE_AND_KEEP_WHAT_RESTS": Fault(
        "a shard that is about to leave gives away what rests",
        "shardsdk.process.workload",
        "self._tell_leaving(failed=failed)",
        "self._tell_leaving(failed=failed); await self._stop_writing()",
        STOPPING,
    ),
    "CUT_OFF_WHAT_IS_WRITTEN": Fault(
        "acknowledgements and the Event under way end before the lease is released",
        "shardsdk.process.workload",
        "end(writing, WRITES_SECONDS, CANCEL_SECONDS)",
        "end(writing, 0.0, CANCEL_SECONDS)",
        STOPPING,
    ),
}

"""The faults, in the order in which they are told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tests.chaos import control_plane_faults as plane
from tests.chaos import process_faults as processes
from tests.chaos import ring_faults as rings
from tests.chaos import upgrade_faults as upgrades
from tests.chaos.fault import Fault

VICTIM: Final = ("shard-1",)
#: Outages last for so many lease durations.
OUTAGE_LEASES: Final = 4.0

_HOUR: Final = {"shard-1": (3600.0, 1.0), "shard-2": (-3600.0, 1.0), "sharder-1": (3600.0, 1.0)}

FAULTS: Final = {
    fault.name: fault
    for fault in (
        Fault("shard-killed", "SIGKILL of a shard that stays away until others have its objects, and comes back",
              processes.shard_killed, 2, VICTIM, 1.0),
        Fault("unfenced-shard-killed",
              "the same, of shards that do not promise to stop with their lease, as those in Go",
              processes.shard_killed, 2, VICTIM, 2.0, setup={"fenced": False}),
        Fault("shard-killed-and-back", "SIGKILL of a shard, which is started again under its name at once",
              processes.shard_killed_and_back, 0, (), 0.5),
        Fault("all-shards-killed", "SIGKILL of all shards at once, which are started again under their names",
              processes.all_shards_killed, 0, (), 1.0),
        Fault("shard-suspended", "SIGSTOP of a shard until others have its objects, then SIGCONT",
              processes.shard_suspended, 2, VICTIM, 1.0),
        Fault("shard-cut-off", "connections of a shard to the API server are reset and refused until its objects moved",
              processes.shard_cut_off, 2, VICTIM, 1.0),
        Fault("shard-in-a-black-hole", "packets between a shard and the API server are dropped until its objects moved",
              processes.shard_in_a_black_hole, 2, VICTIM, 1.0),
        Fault("shard-half-open", "what a shard sends arrives, what it is sent does not, until its objects moved",
              processes.shard_half_open, 2, VICTIM, 1.0),
        Fault("connections-forgotten", "what is sent over the connections to the API server that there are arrives"
              " nowhere, and new ones work, as when one of its machines dies behind a load balancer",
              processes.connections_forgotten, 0, (), 1.0),
        Fault("leader-killed", "SIGKILL of the sharder's leader",
              processes.leader_killed, 0, (), 1.0, 4.0),
        Fault("leader-suspended", "SIGSTOP of the sharder's leader until another replica leads, then SIGCONT",
              processes.leader_suspended, 0, (), 1.0, 4.0),
        Fault("leader-cut-off", "connections of the sharder's leader are reset and refused until another one leads",
              processes.leader_cut_off, 0, (), 1.0, 4.0),
        Fault("leader-and-shard-killed", "SIGKILL of the sharder's leader and of a shard in the same moment",
              processes.leader_and_shard_killed, 2, VICTIM, 1.0, 4.0),
        Fault("apiserver-killed", "SIGKILL of the API server, started again four lease durations later",
              plane.apiserver_killed, 0, (), OUTAGE_LEASES, 5.0),
        Fault("apiserver-suspended", "SIGSTOP of the API server for four lease durations",
              plane.apiserver_suspended, 0, (), OUTAGE_LEASES, 5.0),
        Fault("etcd-killed", "SIGKILL of etcd, started again four lease durations later",
              plane.etcd_killed, 0, (), OUTAGE_LEASES, 5.0),
        Fault("etcd-suspended", "SIGSTOP of etcd for four lease durations",
              plane.etcd_suspended, 0, (), OUTAGE_LEASES, 5.0),
        Fault("etcd-restored", "etcd is set back to a backup two leases old; API server, sharder and shards are"
              " started again, as the manual has it",
              plane.etcd_restored, None, (), 1.0, 15.0, setup={"restart_grace_seconds": 60}),
        # A reconcile takes 5 s then; with more changes than that allows, what is measured is how long a queue gets.
        Fault("apiserver-slow", "each message to and from the API server takes half a second, for three leases, with no"
              " more changes than shards can make at that speed",
              plane.apiserver_slow, 0, (), 1.0, setup={"changes_per_second": 2.0}),
        Fault("errors", "three of ten requests are answered with 500, for three lease durations",
              plane.errors, 0, (), 1.0, setup={"reads_requests": True}),
        Fault("throttling", "three of ten requests are answered with 429, for three lease durations",
              plane.throttling, 0, (), 1.0, setup={"reads_requests": True}),
        Fault("conflicts", "half of the writes are answered with 409, for three lease durations",
              plane.conflicts, 0, (), 1.0, setup={"reads_requests": True}),
        Fault("one-of-two-apiservers-hangs", "SIGSTOP of one of two API servers behind one address, for four leases",
              plane.one_of_two_hangs, None, (), OUTAGE_LEASES, 5.0, setup={"apiservers": 2}),
        Fault("clocks-an-hour-wrong", "the clocks of two shards and a sharder are an hour ahead or behind",
              plane.time_passes, setup={"clocks": _HOUR}),
        Fault("clock-of-a-shard-slow", "the clock of a shard loses 8 %; it is suspended until its objects moved",
              processes.shard_suspended, 2, VICTIM, 1.2, setup={"clocks": {"shard-1": (0.0, 0.92)}}),
        Fault("clock-of-a-shard-fast", "the clock of a shard gains 8 %; it is suspended until its objects moved",
              processes.shard_suspended, 2, VICTIM, 1.0, setup={"clocks": {"shard-1": (0.0, 1.08)}}),
        Fault("clocks-of-sharders-fast", "the clocks of the sharders gain 8 %; a shard is suspended until its objects"
              " moved", processes.shard_suspended, 2, VICTIM, 1.0,
              setup={"clocks": {"sharder-1": (0.0, 1.08), "sharder-2": (0.0, 1.08)}}),
        Fault("rolling-restart", "each shard in turn is stopped in order and started again under its name",
              processes.rolling_restart, 0, (), 0.5, setup={"restart_grace_seconds": 60}),
        # Whoever gets the objects of one that crashed may crash as well.
        Fault("ten-changes", "ten times in thirty seconds a shard joins, leaves in order or is killed",
              processes.ten_changes, None, (), 2.0, 10.0),
        Fault("sharder-restarted", "each replica of the sharder in turn is stopped in order and started again",
              processes.sharder_restarted),
        Fault("upgraded-sharders-first", "sharders, then shards are upgraded from the version before, one process after"
              " the other, and rolled back in the same order",
              upgrades.sharders_first, None, (), 0.5, setup={"previous": True}),
        Fault("upgraded-shards-first", "shards, then sharders are upgraded from the version before, one process after"
              " the other, and rolled back in the same order",
              upgrades.shards_first, None, (), 0.5, setup={"previous": True}),
        Fault("labels-tampered", "labels of shards are taken off objects and children, and objects are told to drain",
              rings.labels_tampered),
        Fault("leases-deleted", "the lease of each shard is deleted, one after the other",
              rings.leases_deleted),
        Fault("lease-emptied", "the holder of a shard's lease is taken out by hand",
              rings.lease_emptied, 2, VICTIM, 2.0),
        Fault("certificates-expired", "the webhook's certificates are replaced by expired ones, the sharders restarted",
              rings.certificates_expired),
        # Two moves of each object as its shard starts with the certificate, and two more as that is over.
        Fault("client-certificate-expired", "the client certificate of a shard expires, and is replaced once its"
              " objects moved", processes.client_certificate_expired, 4, VICTIM, 1.0, 5.0),
        Fault("webhook-in-a-black-hole", "the webhook takes requests and never answers, for two lease durations",
              rings.webhook_in_a_black_hole, 0, (), 0.0, 15.0),
        Fault("ring-edited", "the ring gives its namespace up and takes it back",
              rings.ring_edited, 0, (), 0.0, 30.0),
        Fault("ring-deleted", "the ring is deleted and made again",
              rings.ring_deleted, 0, (), 0.0, 30.0),
    )
}  # fmt: skip
#: What has no meaning where a ring assigns ranges, and why.
NOT_BY_RANGES: Final = {
    "upgraded-sharders-first": "the version before knows no ranges",
    "upgraded-shards-first": "the version before knows no ranges",
    "labels-tampered": "objects have no labels; `assignment-edited` is played instead",
    "certificates-expired": "such a ring has no webhook",
    "webhook-in-a-black-hole": "such a ring has no webhook",
}
_BY_RANGES: Final = (
    *(fault for name, fault in FAULTS.items() if name not in (*NOT_BY_RANGES, "ring-edited")),
    # Shards read their ring once a minute, and start anew when it covers others.
    replace(FAULTS["ring-edited"], what="the ring gives its namespaces up, until every shard has read so, and takes"
            " them back", act=rings.ranged_ring_edited, moves=None, seconds=150.0),
    Fault("assignment-edited", "ten times ranges are taken from their shards or given to others by hand, or the whole"
          " RingAssignment is deleted", rings.assignment_edited, None, (), 1.0),
)  # fmt: skip
#: What is played on a ring, by its `assignment`.
PLAYED: Final[Mapping[str, Mapping[str, Fault]]] = {
    "Labels": FAULTS,
    "Ranges": {fault.name: fault for fault in _BY_RANGES},
}
#: What `make test` plays, one after the other on one rig.
SELECTED: Final = ("shard-suspended", "leader-killed", "apiserver-killed")

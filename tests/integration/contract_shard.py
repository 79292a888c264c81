"""A shard of a ring by ranges, written from docs/wire-contract.md alone: plain Python, nothing of this repository.

    python contract_shard.py URL CA_FILE TOKEN RING NAME NAMESPACE

It has one config map for each secret, and prints where it works whenever that changes.  One thread does one thing after
the other, so whatever it has begun has ended when it looks again, and each of its writes has its answer.
"""

import itertools
import json
import random
import ssl
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

#: Parts of the space of hashes: half-open, sorted.
Spans = list[tuple[int, int]]
SPACE = 1 << 64
LEASE_SECONDS = 5
HELD = "alpha.sharding.timebertt.dev/held-ranges"
RING_LABEL = "alpha.sharding.timebertt.dev/clusterring"
ASSIGNMENTS = "/apis/sharding.timebertt.dev/v1alpha1/ringassignments"

url, ca_file, token, ring, name, namespace = sys.argv[1:]
leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
tls = ssl.create_default_context(cafile=ca_file)


def call(method: str, path: str, body: Any = None, **query: str) -> Any:
    """The answer's body; `None`: 404."""
    request = urllib.request.Request(f"{url}{path}?{urllib.parse.urlencode(query)}", method=method)
    request.add_header("Authorization", f"Bearer {token}")
    request.add_header("Content-Type", "application/merge-patch+json" if method == "PATCH" else "application/json")
    try:
        data = None if body is None else json.dumps(body).encode()
        return json.load(urllib.request.urlopen(request, data, timeout=2, context=tls))
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise


def point(text: str) -> int:
    found = 0xCBF29CE484222325
    for byte in text.encode():
        found = (found ^ byte) * 0x100000001B3 % SPACE
    return found


def combine(some: Spans, others: Spans, keep: Callable[[bool, bool], bool]) -> Spans:
    """The parts of the space of which keep(in some, in others) holds."""
    edges = sorted({0, SPACE, *itertools.chain(*some, *others)})
    made: Spans = []
    for start, end in itertools.pairwise(edges):
        if keep(*(any(a <= start < b for a, b in spans) for spans in (some, others))):
            made[-1:] = [(made[-1][0], end)] if made and made[-1][1] == start else [*made[-1:], (start, end)]
    return made


def both(some: Spans, others: Spans) -> Spans:
    return combine(some, others, lambda a, b: a and b)


def without(some: Spans, others: Spans) -> Spans:
    return combine(some, others, lambda a, b: a and not b)


def render(spans: Spans) -> str:
    return ",".join(f"0x{start:016x}-0x{end:016x}" for start, end in spans)


def parse(text: str) -> Spans:
    """What a lease says, whoever renews it; nonsense holds everything."""
    try:
        return [(int(part[:18], 16), int(part[19:], 16)) for part in text.partition("@")[0].split(",") if part]
    except ValueError:
        return [(0, SPACE)]


def stamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def until_free() -> Any:
    """This shard's Lease once nobody has it, not even another process of this name; `None`: there is none.

    None says here that it is fenced, so it takes twice its duration until nothing of a dead process's is on its way.
    """
    seen, since = None, 0.0
    while (found := call("GET", f"{leases}/{name}")) is not None and found["spec"].get("holderIdentity"):
        if found["spec"] != seen:
            seen, since = found["spec"], time.monotonic()
        elif time.monotonic() - since > 2 * found["spec"]["leaseDurationSeconds"]:
            break
        time.sleep(0.2)
    return found


class Lease:
    """This shard's; `held` is what it says; by `written`, the renewTimes that it has sent, a process knows its own."""

    def __init__(self) -> None:
        self.held, self.written, self.version, self.sent, self.transitions = Spans(), set[str](), "", 0.0, 0
        self.acquired = stamp()
        while not self.version:
            found = until_free()
            try:
                if found is None:
                    self.write("POST", leases, [], name=name)
                else:
                    spec, version = found["spec"], found["metadata"]["resourceVersion"]
                    self.transitions = (spec.get("leaseTransitions") or 0) + (spec.get("holderIdentity") != name)
                    self.write("PATCH", f"{leases}/{name}", [], resourceVersion=version)
            except urllib.error.HTTPError:
                time.sleep(0.2)  # somebody was faster

    def write(self, method: str, path: str, spans: Spans, **metadata: str) -> None:
        """Say that these are held, by who makes this very write; the lease counts from before it was sent."""
        now, sent = stamp(), time.monotonic()
        self.written.add(now)
        said = {"labels": {RING_LABEL: ring}, "annotations": {HELD: f"{render(spans)}@{now}"}}
        spec = {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "leaseTransitions": self.transitions}
        times = {"acquireTime": self.acquired, "renewTime": now}
        made = call(method, path, {"metadata": {**metadata, **said}, "spec": {**spec, **times}})
        self.version, self.sent, self.held = made["metadata"]["resourceVersion"], sent, spans

    def hold(self, spans: Spans) -> None:
        """Renew, and say that these are held."""
        try:
            self.write("PATCH", f"{leases}/{name}", spans, resourceVersion=self.version)
        except urllib.error.HTTPError:
            found = call("GET", f"{leases}/{name}")  # the sharder labels leases, too
            if found is None or found["spec"]["renewTime"] not in self.written:
                sys.exit("the lease is another's, be it a process of the same name")
            self.version = found["metadata"]["resourceVersion"]
            self.hold(spans)

    def lasts(self) -> float:
        """For how long nobody else may have it, with room for one more request."""
        return self.sent + LEASE_SECONDS - 2.5 - time.monotonic()


def named() -> Spans | None:
    """What the assignment names this shard for; `None`: it says nothing."""
    found = call("GET", f"{ASSIGNMENTS}/{ring}")
    if found is None:
        return None
    ranges = found["spec"]["ranges"]
    starts = [*(int(each["start"], 16) for each in ranges), SPACE]
    if starts[0] != 0 or starts != sorted(set(starts)):
        return None
    spans = itertools.pairwise(starts)
    return [span for each, span in zip(ranges, spans, strict=True) if each.get("shard") == name]


def held_by_others() -> Spans:
    spans: Spans = []
    for each in call("GET", leases, labelSelector=f"{RING_LABEL}={ring}")["items"]:
        other = each["metadata"]["name"]
        if other != name and each["spec"].get("holderIdentity") == other:
            spans += parse((each["metadata"].get("annotations") or {}).get(HELD, ""))
    return spans


def say(spans: Spans) -> None:
    sys.stdout.write(f"{render(spans)}\n")
    sys.stdout.flush()


def reconcile(lease: Lease, working: Spans) -> None:
    ranges = [f"shardRange(object.metadata.namespace, '0x{a:016x}', '0x{b:016x}')" for a, b in working]
    for secret in call("GET", "/api/v1/secrets", shardSelector=" || ".join(ranges))["items"]:
        meta = secret["metadata"]
        here = point(meta["namespace"])
        if meta["namespace"] == "kube-system" or not both(working, [(here, here + 1)]):
            continue  # the server may not filter, and does not know what the ring covers
        maps = f"/api/v1/namespaces/{meta['namespace']}/configmaps"
        owners = [each["metadata"].get("ownerReferences") or [] for each in call("GET", maps)["items"]]
        if any(owner["uid"] == meta["uid"] for owner in itertools.chain(*owners)):
            continue
        if lease.lasts() < 0:
            return
        owner = {"apiVersion": "v1", "kind": "Secret", "name": meta["name"], "uid": meta["uid"], "controller": True}
        call("POST", maps, {"metadata": {"generateName": f"{meta['name']}-", "ownerReferences": [owner]}})


def main() -> None:
    lease = Lease()
    working: Spans = []
    while lease.lasts() > -1:
        mine = named()
        mine = lease.held if mine is None else mine
        if without(lease.held, mine):
            working = both(working, mine)
            say(working)
            lease.hold(both(lease.held, mine))
        elif gained := without(mine, lease.held):
            lease.hold(combine(lease.held, gained, lambda a, b: a or b))
            again = named()
            if again is None or without(lease.held, again) or both(lease.held, held_by_others()):
                lease.hold(working)
                time.sleep(random.uniform(0.1, 1.0))
            else:
                working = lease.held
                say(working)
        elif time.monotonic() - lease.sent > 1:
            lease.hold(lease.held)
        if working:
            reconcile(lease, working)
        time.sleep(0.1)
    say([])


if __name__ == "__main__":
    main()

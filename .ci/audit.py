"""Name the known vulnerabilities of all that lock files pin, and fail if there is one.

Asks OSV (https://osv.dev), which has PyPA's advisories and GitHub's; names and versions are all that it is told.
Run by `make check`, which goes on where OSV does not answer, and by `make audit`, which does not.

    python .ci/audit.py [--if-reachable] requirements.txt requirements-dev.txt
"""

import json
import os
import sys
from http.client import HTTPException
from urllib.parse import urljoin
from urllib.request import Request, urlopen

from licences import locked

#: Set by tests, and where OSV has a mirror.
SERVICE = os.environ.get("OSV_URL", "https://api.osv.dev/")
#: An answer takes a fraction of a second.
SECONDS = 10
#: What one question may be about; OSV allows 1,000.
BATCH = 500


class Unanswered(Exception):
    """Nobody knows."""


def ask(queries):
    """What OSV answers to each of `queries`.  Raises: Unanswered."""
    body = json.dumps({"queries": queries}).encode()
    request = Request(urljoin(SERVICE, "v1/querybatch"), body, {"Content-Type": "application/json"})
    try:
        with urlopen(request, timeout=SECONDS) as answer:
            results = json.load(answer)["results"]
    except (OSError, HTTPException, ValueError, LookupError, TypeError) as error:
        raise Unanswered(f"{SERVICE} does not answer: {error}") from error
    if len(results) != len(queries):
        raise Unanswered(f"{SERVICE} answers {len(results)} of {len(queries)} questions")
    return results


def known(pinned):
    """The identifiers of what is known of each `(name, version)`.  Raises: Unanswered."""
    found = {each: [] for each in pinned}
    asking = [
        (each, {"package": {"name": each[0], "ecosystem": "PyPI"}, "version": each[1]}) for each in pinned
    ]  # fmt: skip
    while asking:
        now, asking = asking[:BATCH], asking[BATCH:]
        for (each, query), result in zip(now, ask([query for _, query in now]), strict=True):
            found[each] += [one["id"] for one in result.get("vulns", ())]
            if token := result.get("next_page_token"):
                asking.append((each, query | {"page_token": token}))
    return {each: ids for each, ids in found.items() if ids}


def main(*arguments):
    """Ask about every lock file that is named."""
    locks = [each for each in arguments if each != "--if-reachable"]
    pinned = sorted({each for lock in locks for each in locked(lock)})
    try:
        found = known(pinned)
    except Unanswered as error:
        print(f"{', '.join(locks)}: not audited: {error}", file=sys.stderr)
        return "--if-reachable" not in arguments
    for (name, version), ids in found.items():
        print(f"{name} {version} has {', '.join(ids)} (https://osv.dev/{ids[0]}): `make lock` takes another version")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

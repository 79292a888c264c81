"""Refuse a dependency whose licence nobody has agreed to: nothing of the lock may be under another than these.

Run by `make check`, without network: a distribution's own metadata says its licence, as an SPDX expression, a
classifier, or a word.

    python .ci/licences.py requirements-dev.txt
"""

import re
import sys
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

#: Licences that ask for no more than their text, as SPDX calls them. The MPL concerns the files under it alone.
ALLOWED = {"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MIT-0", "MPL-2.0", "PSF-2.0", "Python-2.0"}
#: What older metadata says instead.
CALLED = {
    "Apache 2": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache License Version 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD": "BSD-3-Clause",
    "BSD License": "BSD-3-Clause",
    "BSD-3-Clause License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}


def locked(lock):
    """Name and version of each distribution that a lock file pins."""
    return re.findall(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", Path(lock).read_text(), re.MULTILINE)


def licence_of(name):
    """What the installed distribution says, in words of SPDX where it can be told; `None`: it is not installed here."""
    try:
        about = metadata(name)
    except PackageNotFoundError:  # for another platform
        return None
    said = about.get("License-Expression")
    if not said:
        classified = [
            line.rpartition(" :: ")[2] for line in about.get_all("Classifier") or () if line.startswith("License ::")
        ]
        named = [each for each in classified if each not in ("OSI Approved", "DFSG approved")]
        said = " AND ".join(CALLED.get(each, each) for each in named)
    said = said or (about.get("License") or "").strip().split("\n")[0] or "UNKNOWN"
    return CALLED.get(said.replace(",", ""), said)


def allowed(expression):
    """Whether one may choose by OR, and all that AND asks for is allowed; no expression of ours is nested deeper."""
    choices = re.split(r"\s+OR\s+", expression.replace("(", "").replace(")", ""))
    return any(set(re.split(r"\s+AND\s+", choice)) <= ALLOWED for choice in choices)


def main(lock):
    """Name each distribution under another licence, and fail if there is one."""
    found = {name: licence_of(name) for name, _ in locked(lock)}
    wrong = {name: said for name, said in found.items() if said is not None and not allowed(said)}
    for name, said in wrong.items():
        print(f"{lock}: {name} is under {said!r}, which .ci/licences.py does not allow; take another, or agree")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

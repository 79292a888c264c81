"""Each definition has a number that is higher with each change: by it an older sharder leaves a newer one alone."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import yaml

from shardsdk.kube.definitions import VERSION_ANNOTATION

#: What each number of a definition stands for, from 1 on.
DIGESTS = {
    "clusterrings": ["e62dbe4e720f1488", "d5308e768e668f4b"],
    "ringassignments": ["f10b806c380bcb7a", "589fe04fd6cd626a"],
}


@pytest.mark.parametrize("path", sorted(Path("crds").iterdir()), ids=lambda path: path.stem)
def test_a_definition_that_changes_has_a_higher_number(path: Path) -> None:
    definition = yaml.safe_load(path.read_text())
    digest = hashlib.sha256(json.dumps(definition["spec"], sort_keys=True).encode()).hexdigest()[:16]
    known = DIGESTS[path.stem]

    assert known[-1] == digest, (
        f"append {digest} to DIGESTS[{path.stem!r}] here, and raise the annotation {VERSION_ANNOTATION} of {path};"
        " or replace the last one there, if no release has it"
    )
    assert definition["metadata"]["annotations"][VERSION_ANNOTATION] == str(len(known)), (
        f"the annotation {VERSION_ANNOTATION} of {path} has to be the length of DIGESTS[{path.stem!r}]"
    )

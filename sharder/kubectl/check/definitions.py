"""Compares the cluster's CustomResourceDefinitions with this program's: older ones drop what it may write."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from sharder.install import own_definitions
from sharder.kubectl.check.findings import Finding, failed, failure_of, good, skipped, warning
from sharder.kubectl.cluster import Reader
from sharder.kubectl.outcomes import ONE_RESOURCE, Unread
from sharder.kubectl.text import plural
from shardsdk.errors import NotFound
from shardsdk.kube.definitions import CRDS, number_of

#: What a gap is called where a definition could not be read.
DEFINITION: Final = "definition"
_REMEDY: Final = "`sharder crds --apply` of this version, or its Helm chart with crds.upgrade"

Definition = Mapping[str, Any]


async def read_definitions(reader: Reader) -> list[tuple[Definition, Definition | None]] | None:
    """This program's, each with the cluster's (None: not there); None: they could not be read."""
    found: list[tuple[Definition, Definition | None]] = []
    for own in own_definitions():
        name = own["metadata"]["name"]
        try:
            definition: dict[str, Any] = await reader.api.get(CRDS, name, model=dict)
        except NotFound:
            found.append((own, None))
        except ONE_RESOURCE as error:
            reader.gaps.note(f"{DEFINITION} {name}", error)
            return None
        else:
            found.append((own, definition))
    return found


def check_definitions(
    read: Sequence[tuple[Definition, Definition | None]] | None, gaps: Collection[Unread] = ()
) -> Iterator[Finding]:
    """Are the cluster's as new as this program's, as `read_definitions` has them?  `gaps` say why it has none."""
    topic = "definitions"
    if read is None:
        gap = failure_of(gaps, DEFINITION)
        yield failed(topic, gap) if gap is not None else skipped(topic, "you may not read the definitions of rings")
        return
    before = 0
    for own, definition in read:
        name, number = own["metadata"]["name"], number_of(own)
        said = number_of(definition) if definition is not None else None
        if definition is None:
            before += 1
            yield warning(topic, f"{name} is not installed", _REMEDY)
        elif number is not None and (said is None or said < number):
            before += 1
            older = f"is number {said}" if said is not None else "has no number, as those of older sharders,"
            yield warning(
                topic, f"{name} {older} and this program's {number}: what a sharder of this version writes is dropped"
                " where it has no field", _REMEDY,
            )  # fmt: skip
    if not before:
        yield good(topic, f"{plural(len(read), 'definition')} as new as this program's, or newer")

"""CustomResourceDefinitions: brought up to date by server-side apply, and awaited until they are served."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from shardsdk.errors import Forbidden, NotFound, ShardingError
from shardsdk.kube.api import Api, PatchKind
from shardsdk.kube.clock import Clock
from shardsdk.kube.discovery import served_by
from shardsdk.logs import logger_of
from shardsdk.protocol.objects import Resource

log: Final = logger_of(__name__)

CRDS: Final = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
#: On a definition: a number that is higher with each change, so that an older program leaves a newer one alone.
VERSION_ANNOTATION: Final = "alpha.sharding.timebertt.dev/definition-version"
#: A definition is served a moment after it was written.
ESTABLISHED_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.2
#: What a condition says until then may be about the definition as it was before.
JUDGED_SECONDS: Final = 2.0
#: So many fields are named in a line.
NAMED: Final = 10


class NotInstalled(ShardingError):
    """The API server does not do what it is told, or not in time; the message says what to look at."""


async def apply_crds(
    api: Api, documents: Sequence[dict[str, Any]], clock: Clock, *, field_manager: str, allow_less: bool = False
) -> None:
    """Bring the cluster's definitions up to `documents`, and return once they are served.

    One of a higher number (`VERSION_ANNOTATION`) stays as it is, unless `allow_less`. Any other is replaced, also by
    less, as when an older program is started again; what that costs is told.

    Raises: NotInstalled when one lacks a version in which objects are stored, another definition has their names, or
    they are not served after a minute.
    """
    for document in documents:
        name = document["metadata"]["name"]
        there = await _find(api, name)
        version, own = number_of(there), number_of(document)
        if version is not None and own is not None and version > own and not allow_less:
            log.warning(
                "The definition on the cluster is newer than this program's; it stays as it is",
                extra={"object": name, "version": version, "own": own},
            )
        else:
            _check_stored(name, there, document)
            _tell_of_lost(name, there, document)
            await api.patch(CRDS, name, None, document, kind=PatchKind.APPLY, field_manager=field_manager, force=True)
            log.info("custom resource definition applied", extra={"object": name})
        await _wait_served(api, name, clock)


async def _find(api: Api, name: str) -> dict[str, Any]:
    """The cluster's definition of that name, or an empty one."""
    try:
        there: dict[str, Any] = await api.get(CRDS, name, model=dict)
    except NotFound:
        return {"metadata": {}, "spec": {"versions": []}}
    return there


def number_of(definition: Mapping[str, Any]) -> int | None:
    """The number that the definition says of itself, if any."""
    said = (definition["metadata"].get("annotations") or {}).get(VERSION_ANNOTATION, "")
    return int(said) if re.fullmatch("[0-9]{1,9}", said) else None


def _check_stored(name: str, there: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raises: NotInstalled, where the API server would refuse `given` with words about the status of `there`."""
    stored = (there.get("status") or {}).get("storedVersions") or ()
    if missing := [each for each in stored if each not in _versions(given)]:
        raise NotInstalled(
            f"this program's definition of {name} lacks {', '.join(missing)}, in which objects are stored, as"
            " status.storedVersions on the cluster says; keep that version's class beside the others (of an operator by"
            " `operator.defines(…)`) until all objects were written anew and somebody has taken it out of there"
        )


def _tell_of_lost(name: str, there: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """The API server drops what a definition does not know, without a word."""
    if missing := [each for each, served in _versions(there).items() if served and each not in _versions(given)]:
        log.warning(
            "The definition lacks versions that the one on the cluster serves; whoever uses them gets 404",
            extra={"object": name, "versions": ", ".join(missing)},
        )
    if lost := list(lost_fields(there, given)):
        more = f" and {len(lost) - NAMED} more" if len(lost) > NAMED else ""
        log.warning(
            "The definition lacks fields that the one on the cluster has; what objects hold there is lost",
            extra={"object": name, "fields": ", ".join(lost[:NAMED]) + more},
        )


def lost_fields(there: Mapping[str, Any], given: Mapping[str, Any]) -> Iterator[str]:
    """Fields that the definition `there` has and `given` has not, in the versions of both: `v1: spec.size`.

    A version that is not given is left out: its objects are stored in another, or it could not be left out.
    """
    schemas = {each["name"]: _schema(each) for each in given["spec"]["versions"]}
    for version in there["spec"]["versions"]:
        if (schema := schemas.get(version["name"])) is not None:
            for field in _lost(_schema(version), schema, ""):
                # Every object has these, whether its schema says so or not.
                if field.partition(".")[0] not in ("apiVersion", "kind", "metadata"):
                    yield f"{version['name']}: {field}"


def _versions(definition: Mapping[str, Any]) -> dict[str, bool]:
    """Its versions, and whether each is served."""
    return {each["name"]: bool(each.get("served")) for each in definition["spec"]["versions"]}


def _schema(version: Mapping[str, Any]) -> Mapping[str, Any]:
    schema: Mapping[str, Any] = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    return schema


def _lost(there: Mapping[str, Any], given: Mapping[str, Any], path: str) -> Iterator[str]:
    if given.get("x-kubernetes-preserve-unknown-fields"):
        return
    known, others = given.get("properties") or {}, given.get("additionalProperties")
    for name, below in (there.get("properties") or {}).items():
        where = f"{path}.{name}" if path else name
        if name in known:
            yield from _lost(below, known[name], where)
        elif not others:
            yield where
    for part, mark in (("items", "[]"), ("additionalProperties", ".*")):
        inner, kept = there.get(part), given.get(part)
        if isinstance(inner, Mapping) and isinstance(kept, Mapping):
            yield from _lost(inner, kept, path + mark)


async def _wait_served(api: Api, name: str, clock: Clock) -> None:
    begun = clock.monotonic()
    while True:
        crd: dict[str, Any] = await api.get(CRDS, name, model=dict)
        conditions = {each["type"]: each for each in (crd.get("status") or {}).get("conditions") or ()}
        established = conditions.get("Established", {}).get("status") == "True"
        if established and not (missing := await _unlisted(api, crd["spec"])):
            return
        names = conditions.get("NamesAccepted", {})
        said = ": ".join(filter(None, (names.get("reason"), names.get("message")))) or "no condition says why"
        if names.get("status") == "False" and clock.monotonic() - begun >= JUDGED_SECONDS:
            raise NotInstalled(
                f"{name} is not accepted ({said}); give the kind other names, or delete the definition that has them"
            )
        if clock.monotonic() - begun > ESTABLISHED_SECONDS:
            if established:
                said = f"the API server does not list it in {', '.join(missing)}"
            raise NotInstalled(f"{name} is not served after {ESTABLISHED_SECONDS:.0f} s ({said}); look at its status")
        await clock.sleep(POLL_SECONDS)


async def _unlisted(api: Api, spec: dict[str, Any]) -> list[str]:
    """The versions in which the API server does not list a resource yet, which it does a moment after Established."""
    served, group, plural = served_by(api), spec["group"], spec["names"]["plural"]
    versions = [each["name"] for each in spec["versions"] if each.get("served")]
    try:
        return [each for each in versions if plural not in (await served.resources(group, each) or {})]
    except Forbidden:
        return []  # whoever may not look has no more than the condition

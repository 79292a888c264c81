"""CustomResourceDefinitions: brought up to date by server-side apply, and awaited until they are served."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from shardsdk.errors import Forbidden, ShardingError
from shardsdk.kube.api import Api, PatchKind
from shardsdk.kube.clock import Clock
from shardsdk.kube.discovery import served_by
from shardsdk.logs import logger_of
from shardsdk.protocol.objects import Resource

log: Final = logger_of(__name__)

CRDS: Final = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
#: A definition is served a moment after it was written.
ESTABLISHED_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.2
#: What a condition says until then may be about the definition as it was before.
JUDGED_SECONDS: Final = 2.0


class NotInstalled(ShardingError):
    """The API server did not do in time what it was told; the message says what to look at."""


async def apply_crds(api: Api, documents: Sequence[dict[str, Any]], clock: Clock, *, field_manager: str) -> None:
    """Bring the cluster's definitions up to `documents`, and return once they are served.

    Raises: NotInstalled when another definition has their names, or they are not served after a minute.
    """
    for document in documents:
        name = document["metadata"]["name"]
        await api.patch(CRDS, name, None, document, kind=PatchKind.APPLY, field_manager=field_manager, force=True)
        await _wait_served(api, name, clock)
        log.info("custom resource definition applied", extra={"object": name})


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

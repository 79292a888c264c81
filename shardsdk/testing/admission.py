"""What an operator's webhooks do to writes, as an API server would have them done: mutate, then validate.

Selectors and match conditions are the API server's; here a function is called
for every object of its kind, but for those that are on their way out.
"""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Coroutine, Sequence
from typing import Any, Final, TypeVar

import msgspec

from shardsdk.admission.review import AdmissionRequest, Operation, User, Verdict
from shardsdk.admission.webhook import Sort, Webhook
from shardsdk.errors import ApiError, Forbidden, Invalid, ServerError
from shardsdk.kinds import resource_of
from shardsdk.protocol.objects import Resource
from shardsdk.testing.patching import apply_json_patch
from shardsdk.testing.strategies import Object

T = TypeVar("T")

#: Who writes, as far as functions are told.
USER: Final = User(username="drive")
_ERRORS: Final[dict[int, type[ApiError]]] = {403: Forbidden, 422: Invalid, 500: ServerError}


class WebhooksAsked:
    """Asks `webhooks` about writes; plays `MemoryServer.admit`, and of deletions `admit_deletion`."""

    def __init__(self, webhooks: Sequence[Webhook]) -> None:
        self._webhooks = sorted(webhooks, key=lambda each: each.sort is Sort.VALIDATE)
        #: Warnings that people would have read, with the webhook that they are from.
        self.warnings: Final[list[tuple[str, str]]] = []

    def admit(self, verb: str, resource: Resource, old: Object | None, new: Object) -> Object:
        """The object as it is stored.  Raises: Forbidden, Invalid, ServerError, with what whoever wrote would read."""
        if _on_its_way_out(new) or (old is not None and _same_but_status(old, new)):
            return new
        for webhook in self._of(resource, verb):
            verdict = self._ask(webhook, verb, old, new)
            new = apply_json_patch(new, list(verdict.patch)) if verdict.patch else new
        return new

    def admit_deletion(self, resource: Resource, old: Object) -> None:
        """Raises: as `admit` does."""
        for webhook in self._of(resource, Operation.DELETE):
            self._ask(webhook, Operation.DELETE, old, None)

    def _of(self, resource: Resource, verb: str) -> list[Webhook]:
        return [
            each
            for each in self._webhooks
            if resource_of(each.kind).group_resource == resource.group_resource and verb in each.operations
        ]

    def _ask(self, webhook: Webhook, verb: str, old: Object | None, new: Object | None) -> Verdict:
        metadata = (new or old or {})["metadata"]
        request = AdmissionRequest(
            uid="drive",
            operation=verb,
            namespace=metadata.get("namespace"),
            name=metadata.get("name"),
            object=_raw(new),
            old_object=_raw(old),
            user_info=USER,
        )
        verdict = _finish(webhook.answer(request))
        self.warnings.extend((webhook.name, each) for each in verdict.warnings)
        if not verdict.allowed:
            message = f'admission webhook "{webhook.name}" denied the request: {verdict.message}'
            raise _ERRORS[verdict.code](message, status=verdict.code, reason=verdict.reason)
        return verdict


def _raw(thing: Object | None) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(thing))


def _finish(answering: Coroutine[Any, Any, T]) -> T:
    """What a coroutine gives, though an event loop runs already: writes to the server in memory are no coroutines."""
    found: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(asyncio.run(answering))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="webhook")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return found[0]


def _on_its_way_out(thing: Object) -> bool:
    return "deletionTimestamp" in thing["metadata"]


def _same_but_status(old: Object, new: Object) -> bool:
    """A write of a subresource, or none."""
    return _main(old) == _main(new)


def _main(thing: Object) -> Object:
    kept = copy.copy(thing)
    kept.pop("status", None)
    kept["metadata"] = {
        name: value for name, value in thing["metadata"].items() if name not in ("managedFields", "resourceVersion")
    }
    return kept

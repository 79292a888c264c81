"""Mutating admission as the API server does it: whom it asks, what it sends, and that it never insists.

Asks the real webhook application of some replica, which may be stale, paused
or dead; whatever goes wrong there, the object passes as it is (failurePolicy
Ignore).
"""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping
from itertools import product
from typing import Any, Final

import msgspec

from sharder.core.selectors import NAMESPACE_NAME_LABEL, parse_selector
from sharder.core.webhookconfig import WEBHOOK_CONFIGURATIONS
from shardsdk.kube.store import Key
from shardsdk.protocol.labels import parse_ring_name
from shardsdk.protocol.objects import NAMESPACES, Resource
from shardsdk.testing.patching import apply_json_patch
from tests.simulation.poison import Poison
from tests.simulation.storage import Author, Doc, Storage, Version
from tests.simulation.undoing import Undo

#: Answers a review posted to a path, within the process of a replica; `None`: no replica can be reached.
Ask = Callable[[str, bytes], Awaitable[bytes | None]]

#: Under which all replicas write; what others are called does not matter.
SHARDER: Final = "sharder"
#: What the conditions mean that the sharder writes into its webhook configurations: of object before and after, label
#: and account.
_CONDITIONS: Final[Mapping[str, Callable[[Version | None, Doc, str, str], bool]]] = {
    "lacks-the-shard-label-or-is-new": lambda before, doc, label, account: _lacks_or_is_new(before, doc, label),
    "lacks-or-changes-the-shard-label-or-is-new": lambda before, doc, label, account: (
        _lacks_or_is_new(before, doc, label)
        or (account != SHARDER and before is not None and before.label(label) not in (None, _labels(doc)[label]))
    ),
    "is-no-status-or-wore-the-shard-label": lambda *_: True,  # no status is written here that wears it
    "is-main-or-has-a-controller": lambda before, doc, label, account: (
        doc["kind"] != "Piece" or any(ref.get("controller") for ref in doc["metadata"].get("ownerReferences") or ())
    ),
}


def _lacks_or_is_new(before: Version | None, doc: Doc, label: str) -> bool:
    return label not in _labels(doc) or (before is None and doc["kind"] != "Piece")


def account_of(author: Author) -> str:
    """The name under which the API server knows a process."""
    return SHARDER if author.name.startswith(f"{SHARDER}-") else author.name


class Webhooks:
    """The webhooks that the stored configurations name; `ask` reaches the replicas behind their Service."""

    def __init__(self, storage: Storage, ask: Ask, poison: Poison) -> None:
        self._storage = storage
        self._ask = ask
        self._poison = poison
        self._reviews = 0
        #: The state of the webhook configurations when they were last looked at, and the resources that they name.
        self._configured: tuple[tuple[int, int], frozenset[tuple[str, str]]] = ((0, 0), frozenset())

    def wants(self, resource: Resource, before: Version | None, doc: Doc, author: Author) -> bool:
        if self._poison.refuses(resource, _key_of(before, doc)):
            return True
        if self._undone(resource, before, author) is not None:
            return True
        if not self._is_configured(resource):
            return False
        return next(self._matching(resource, before, doc, account_of(author)), None) is not None

    async def admit(self, resource: Resource, before: Version | None, doc: Doc, author: Author) -> Doc:
        account = account_of(author)
        for webhook in list(self._matching(resource, before, doc, account)):
            answer = None
            try:
                async with asyncio.timeout(webhook["timeoutSeconds"]):
                    review = self._review(resource, before, doc, account)
                    answer = await self._ask(webhook["clientConfig"]["url"], review)
            except TimeoutError:
                pass
            doc = _apply(doc, answer)
        undo = self._undone(resource, before, author)
        if undo is not None and before is not None:
            doc = undo.apply(resource, before, doc)
        key = _key_of(before, doc)
        if self._poison.refuses(resource, key):
            await self._poison.fail(resource, key, author.name)
        return doc

    def _undone(self, resource: Resource, before: Version | None, author: Author) -> Undo | None:
        return self._poison.undoings.of(resource, before.key, account_of(author)) if before is not None else None

    def _is_configured(self, resource: Resource) -> bool:
        """Whether any webhook is there for the resource at all."""
        state = self._storage.state_of(WEBHOOK_CONFIGURATIONS)
        if state != self._configured[0]:
            stored = self._storage.objects(WEBHOOK_CONFIGURATIONS)
            rules = (rule for each in stored for webhook in each.doc.get("webhooks") or () for rule in webhook["rules"])
            named = {pair for rule in rules for pair in product(rule["apiGroups"], rule["resources"])}
            self._configured = (state, frozenset(named))
        return (resource.group, resource.plural) in self._configured[1]

    def _matching(self, resource: Resource, before: Version | None, doc: Doc, account: str) -> Any:
        operation = "CREATE" if before is None else "UPDATE"
        for configuration in self._storage.objects(WEBHOOK_CONFIGURATIONS):
            for webhook in configuration.doc.get("webhooks") or ():
                if self._matches(webhook, operation, resource, before, doc, account):
                    yield webhook

    def _matches(
        self,
        webhook: Mapping[str, Any],
        operation: str,
        resource: Resource,
        before: Version | None,
        doc: Doc,
        account: str,
    ) -> bool:
        for rule in webhook["rules"]:
            if (
                resource.group in rule["apiGroups"]
                and resource.plural in rule["resources"]
                and operation in rule["operations"]
            ):
                break
        else:
            return False
        label = parse_ring_name(webhook["clientConfig"]["url"].rpartition("/")[2]).shard
        assert webhook["objectSelector"] == {}, "every object is selected"
        if not self._in_namespace(webhook["namespaceSelector"], doc["metadata"].get("namespace", "")):
            return False
        return all(_CONDITIONS[each["name"]](before, doc, label, account) for each in webhook["matchConditions"])

    def _in_namespace(self, raw: Any, namespace: str) -> bool:
        if not namespace:
            return True
        selector, problems = parse_selector(raw, "namespaceSelector")
        assert not problems, problems
        found = self._storage.get(NAMESPACES, Key("", namespace))
        labels = _labels(found.doc) if found is not None else {}
        return selector.matches({**labels, NAMESPACE_NAME_LABEL: namespace})

    def _review(self, resource: Resource, before: Version | None, doc: Doc, account: str) -> bytes:
        self._reviews += 1
        meta = doc["metadata"]
        request = {
            "uid": f"review-{self._reviews}",
            "resource": {"group": resource.group, "version": resource.version, "resource": resource.plural},
            "namespace": meta.get("namespace"),
            "name": meta.get("name"),
            "operation": "CREATE" if before is None else "UPDATE",
            "object": doc,
            "oldObject": before.doc if before is not None else None,
            "dryRun": False,
            "userInfo": {"username": account},
        }
        return msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})


def _apply(doc: Doc, answer: bytes | None) -> Doc:
    if answer is None:
        return doc
    response = msgspec.json.decode(answer)["response"]
    assert response["allowed"] is True, response
    if "patch" not in response:
        return doc
    return apply_json_patch(doc, msgspec.json.decode(b64decode(response["patch"])))


def _key_of(before: Version | None, doc: Doc) -> Key:
    """The key of what is written; one that is made may have no name yet."""
    meta = doc["metadata"]
    return before.key if before is not None else Key(meta.get("namespace", ""), meta.get("name", ""))


def _labels(doc: Doc) -> Mapping[str, str]:
    labels: Mapping[str, str] = doc["metadata"].get("labels") or {}
    return labels

"""A kind to review, and reviews of it as API servers send them."""

from __future__ import annotations

from typing import Any

import msgspec

from shardsdk.admission.review import API_VERSION
from shardsdk.admission.webhook import FailurePolicy, Sort, Webhook
from shardsdk.kinds import CustomResource, Model


class Route(Model):
    name: str
    path: str = "/"
    weight: int = 1


class WebsiteSpec(Model):
    html: str
    replicas: int = 1
    tier: str | None = None
    routes: list[Route] = msgspec.field(default_factory=list)


class Website(CustomResource[WebsiteSpec], group="example.com", version="v1"):
    """A page."""


def website(html: Any = "<h1>", **spec: Any) -> dict[str, Any]:
    """A website as it is stored, with a field that its class does not know."""
    metadata = {"name": "home", "namespace": "default", "managedFields": [{"manager": "kubectl"}]}
    return {
        "apiVersion": "example.com/v1",
        "kind": "Website",
        "metadata": metadata,
        "spec": {"html": html, "later": {"x": 1}, **spec},
    }


def review(
    operation: str = "CREATE", new: Any = None, old: Any = None, *, dry_run: bool = False, uid: str = "u-1"
) -> bytes:
    request = {
        "uid": uid,
        "kind": {"group": "example.com", "version": "v1", "kind": "Website"},
        "operation": operation,
        "name": "home",
        "namespace": "default",
        "object": new,
        "oldObject": old,
        "dryRun": dry_run,
        "userInfo": {"username": "anna", "groups": ["developers"], "extra": {"scopes": ["all"]}},
    }
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": "AdmissionReview", "request": request})


def webhook(
    function: Any, sort: Sort = Sort.VALIDATE, on_failure: FailurePolicy = "Fail", timeout_seconds: int = 5
) -> Webhook:
    from shardsdk.admission.review import Operation

    return Webhook(
        sort, Website, function, "check.websites.example.com", tuple(Operation), on_failure, timeout_seconds, {}, {}, {}
    )

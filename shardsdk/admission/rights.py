"""What a process that serves webhooks needs to do, by how it serves them."""

from __future__ import annotations

from collections.abc import Sequence

from shardsdk.admission.configuration import Manifest, cluster_rules, development_name, development_rules, own_rules
from shardsdk.admission.settings import Serving
from shardsdk.admission.webhook import Webhook


def serving_rules(
    operator: str, webhooks: Sequence[Webhook], serving: Serving | None
) -> tuple[list[Manifest], list[Manifest]]:
    """Rules for its own namespace, and for the cluster; none where nothing is served (`None`).

    Certificates of somebody else's making are theirs to keep and to have trusted.
    """
    if serving is None or not webhooks:
        return [], []
    if serving.install:
        return [], development_rules(development_name(operator), webhooks)
    if serving.cert_dir:
        return [], []
    return own_rules(operator), cluster_rules(operator, webhooks)
